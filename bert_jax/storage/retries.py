"""Retry operations that a file system or network may refuse for a moment."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

ATTEMPTS = 4
FIRST_DELAY_SECONDS = 0.5


def with_retries(action: Callable[[], T]) -> T:
    """Call `action` until it succeeds, at most `ATTEMPTS` times.

    Each pause is twice as long as the one before. The error of the last call is raised.
    """
    for attempt in range(ATTEMPTS - 1):
        try:
            return action()
        except Exception:  # the libraries for buckets have errors of their own
            time.sleep(FIRST_DELAY_SECONDS * 2**attempt)
    return action()
