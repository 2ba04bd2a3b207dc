"""The demo: all steps on a corpus of installed documentation, offline."""
