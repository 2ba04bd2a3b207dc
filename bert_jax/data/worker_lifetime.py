"""How long a worker process lives: no longer than the process that started it."""

import multiprocessing
import os
import signal
import threading


def end_with_parent() -> None:
    """Have this worker process end when its parent does, however that ends.

    Ctrl-C is the parent's to handle.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
