"""TensorFlow reads some files for us, and is not to announce itself."""

from collections.abc import MutableMapping


def quieten_tensorflow(environment: MutableMapping[str, str]) -> None:
    """Keep TensorFlow, which reads some files for us, from announcing itself."""
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # oneDNN, of no use to reading, announces itself whatever the log level.
    environment.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
