"""Import TensorFlow without its log messages; it reads some files and batches."""

import contextlib
import functools
import os
from collections.abc import MutableMapping
from typing import Any


def quieten_tensorflow(environment: MutableMapping[str, str]) -> None:
    """Set the environment variables that suppress TensorFlow's start-up messages."""
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # oneDNN, which reading does not need, logs at every level.
    environment.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


@functools.cache
def quiet_tensorflow() -> Any:
    """Import TensorFlow without its log lines and without access to GPU memory."""
    quieten_tensorflow(os.environ)
    import tensorflow as tf

    with contextlib.suppress(RuntimeError):  # devices are already initialized
        tf.config.set_visible_devices([], "GPU")
    return tf
