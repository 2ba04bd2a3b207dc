"""The logger `bert_jax`: where the messages of the package go.

By default, information goes to standard output and warnings to standard error, so that
a command and a notebook show them. A handler that the program set before is kept.
"""

import logging
import sys

LOGGER = logging.getLogger("bert_jax")


class TerminalHandler(logging.Handler):
    """Prints each record as a line, on the streams that `sys` has at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record; an error of the stream is the caller's, as of `print`."""
        stream = sys.stderr if record.levelno >= logging.WARNING else sys.stdout
        print(self.format(record), file=stream, flush=True)


# Show the messages, unless the program has decided that itself.
if not LOGGER.handlers:
    LOGGER.addHandler(TerminalHandler())
    LOGGER.propagate = False
if LOGGER.level == logging.NOTSET:
    LOGGER.setLevel(logging.INFO)
