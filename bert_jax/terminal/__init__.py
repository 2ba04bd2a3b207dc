"""Messages to the user, and the handling of signals."""
