"""Workers, and what their start leaves of the program."""

import sys
import threading
from multiprocessing.context import SpawnProcess

from bert_jax.terminal.processes import WorkerContext


def test_workers_of_two_threads_leave_the_main_module(monkeypatch):
    main, is_second, modules = sys.modules["__main__"], threading.Event(), []

    def start(process):
        modules.append(sys.modules["__main__"])
        if len(modules) == 1:
            is_second.wait(0.5)  # it comes in vain: one starts after the other
        else:
            is_second.set()
            threads[0].join()

    monkeypatch.setattr(SpawnProcess, "start", start)
    workers = [WorkerContext().Process() for _ in range(2)]
    threads = [threading.Thread(target=worker.start) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(modules) == 2 and main not in modules
    assert sys.modules["__main__"] is main
