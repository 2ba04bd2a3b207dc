"""Import TensorFlow without its log messages; it reads some files and batches."""

import contextlib
import functools
import os
import sys
from collections.abc import MutableMapping
from typing import Any


def quieten_tensorflow(environment: MutableMapping[str, str]) -> None:
    """Set the environment variables that suppress TensorFlow's start-up messages."""
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # oneDNN, which reading does not need, logs at every level.
    environment.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


@functools.cache
def quiet_tensorflow() -> Any:
    """Import TensorFlow without its log lines and without access to GPU memory.

    Keras, which reading does not need, is not imported with it: it is a third of the
    time. `tf.keras` imports it where it is used.
    """
    quieten_tensorflow(os.environ)
    # An import of a module that is None fails, which TensorFlow passes over.
    modules: MutableMapping[str, Any] = sys.modules
    modules.setdefault("keras", None)
    try:
        import tensorflow as tf
    finally:
        if modules["keras"] is None:
            del modules["keras"]

    with contextlib.suppress(RuntimeError):  # devices are already initialized
        tf.config.set_visible_devices([], "GPU")
    return tf
