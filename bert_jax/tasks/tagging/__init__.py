"""A tag for each word of a sentence."""
