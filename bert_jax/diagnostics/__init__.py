"""The verbs `doctor` and `inspect`, and the web page of a run."""
