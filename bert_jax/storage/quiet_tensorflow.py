"""Reduce the log output of TensorFlow, which reads some files for bert_jax."""

from collections.abc import MutableMapping


def quieten_tensorflow(environment: MutableMapping[str, str]) -> None:
    """Set the environment variables that keep TensorFlow's start-up messages out."""
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # oneDNN, which reading does not need, logs at every level.
    environment.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
