"""Messages to the user, the handling of signals, and the number of cores."""
