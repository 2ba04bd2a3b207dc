"""Multiple choice: which of a few endings follows (Devlin et al. 2018, §4.4)."""
