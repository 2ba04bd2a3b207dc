"""The web page of a run, or of several side by side."""
