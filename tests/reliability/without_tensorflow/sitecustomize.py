"""On PYTHONPATH, makes a process find no TensorFlow, whose import takes seconds."""

import sys

sys.modules["tensorflow"] = None  # type: ignore[assignment]
