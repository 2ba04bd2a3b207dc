"""The right one of several endings or answers."""
