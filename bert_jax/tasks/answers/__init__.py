"""Spans of a document that answer a question."""
