"""Token classification: a tag for each word, and the entities that the tags spell."""
