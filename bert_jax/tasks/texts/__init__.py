"""Classes or numbers for texts and pairs of texts."""
