"""Describe a run before it starts: its shapes, data, memory and time."""
