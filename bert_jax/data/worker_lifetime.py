"""Stop a worker process when its parent process ends."""

import multiprocessing
import os
import signal
import threading


def end_with_parent() -> None:
    """Exit this process when its parent ends for any reason; leave Ctrl-C to that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
