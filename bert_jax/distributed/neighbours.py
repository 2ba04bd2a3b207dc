"""A line when another process of the run is lost, before JAX's runtime ends this one.

The runtime ends every process, with a stack trace, where one gives no sign of life for
`distributed.LOST_AFTER` seconds, and does not say which one to look at. Here process 0
keeps a connection to each of the others. The kernel closes it with the process, however
that ends, so that a lost one is known at once; a host that is cut off or a process that
hangs is known by its silence.
"""

import atexit
import contextlib
import hmac
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from typing import Any

BEAT = 5.0
"""Seconds between two signs of life."""
SILENT_AFTER = 60.0
"""Seconds without one after which a process is reported; less than LOST_AFTER."""
KEY = "bert_jax/neighbours"
_WITHIN = 10.0
"""Seconds for the first words of a connection."""
_MOST_BYTES = 4096


def watch() -> None:
    """Report the loss of another process, from now to this one's end.

    To be called once the processes have met. Nothing is watched where process 0 cannot
    be reached on a port of its choice, or where JAX does not tell what it knows of the
    others: it has no public name for that.
    """
    distributed: Any = sys.modules.get("jax._src.distributed")
    state: Any = getattr(distributed, "global_state", None)
    with contextlib.suppress(OSError, RuntimeError, ValueError, AttributeError):
        process, number = state.process_id, state.num_processes
        if number < 2:
            return
        if process == 0:
            watcher = Watcher(process, number, secrets.token_hex(16))
            state.client.key_value_set(KEY, f"{watcher.listen()} {watcher.token}")
        else:
            found = state.client.blocking_key_value_get(KEY, int(1000 * _WITHIN))
            port, token = found.split()
            watcher = Watcher(process, number, token)
            host = state.coordinator_address.rpartition(":")[0]
            watcher.connect(host.strip("[]"), int(port))
        threading.Thread(target=watcher.run, name="neighbours", daemon=True).start()
        # Before JAX's own, which waits for the others.
        atexit.register(watcher.leave)


class Watcher:
    """The connections of one process, and what was last heard on each."""

    def __init__(self, process: int, number: int, token: str) -> None:
        self.process, self.number, self.token = process, number, token
        self._selector = selectors.DefaultSelector()
        self._heard: dict[socket.socket, float] = {}
        self._names: dict[socket.socket, int] = {}
        self._reported: set[int] = set()
        self._leaving = False
        # The kernel closes a dead process's files in the order of their numbers. Ours
        # are low, so as to come before the runtime's, at which the others' ends them.
        self._low = [os.dup(0) for _ in range(number - 1)] if process == 0 else []

    def listen(self) -> int:
        """Take connections, as process 0; on which port."""
        listener = socket.create_server(("", 0), backlog=self.number)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        port: int = listener.getsockname()[1]
        return port

    def connect(self, host: str, port: int) -> None:
        """Find process 0."""
        one = socket.create_connection((host, port), timeout=_WITHIN)
        one.sendall(f"{self.token} {self.process}\n".encode())
        self._add(one, 0)

    def leave(self) -> None:
        """Say goodbye, so that the end of this process is not taken for a loss."""
        self._leaving = True
        for one in list(self._names):
            self._send(one, "bye")

    def run(self) -> None:
        """Hear and be heard; the thread's loop."""
        beat = time.monotonic()
        while not self._leaving:
            for key, _ in self._selector.select(BEAT):
                one: Any = key.fileobj
                if one in self._names:
                    self._hear(one)
                else:
                    self._accept(one)
            now = time.monotonic()
            if now - beat >= BEAT:
                beat = now
                for one in list(self._names):
                    self._send(one, "here")
            for one, heard in list(self._heard.items()):
                if now - heard > SILENT_AFTER:
                    self._lose(
                        one, f"has given no sign of life for {now - heard:.0f} s"
                    )

    def _add(self, one: socket.socket, process: int) -> None:
        one.setblocking(False)
        self._names[one], self._heard[one] = process, time.monotonic()
        self._selector.register(one, selectors.EVENT_READ)

    def _accept(self, listener: socket.socket) -> None:
        """A process that tells the token; anybody else is turned away."""
        with contextlib.suppress(OSError):
            one, _ = listener.accept()
            one.settimeout(_WITHIN)
            process = self._greeted(one.recv(_MOST_BYTES).decode(errors="ignore"))
            if process is None:
                one.close()
                return
            if self._low:
                low = self._low.pop(0)
                os.dup2(one.fileno(), low, inheritable=False)
                one.close()
                one = socket.socket(fileno=low)
            self._add(one, process)

    def _greeted(self, greeting: str) -> int | None:
        """Which process says so; None where it is not one of ours."""
        token, _, process = greeting.rstrip("\n").partition(" ")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        ours = process.isdecimal() and 0 < int(process) < self.number
        return int(process) if ours else None

    def _hear(self, one: socket.socket) -> None:
        try:
            words = one.recv(_MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            words = b""
        if not words:
            self._lose(one, "is gone: killed, crashed, or its host is lost")
            return
        self._heard[one] = time.monotonic()
        for word in words.decode(errors="ignore").split("\n"):
            what, _, rest = word.partition(" ")
            if what == "bye":
                self._drop(one)
            elif what == "lost":
                process, _, how = rest.partition(" ")
                self._report(int(process) if process.isdecimal() else -1, how)

    def _drop(self, one: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(one)
        self._names.pop(one, None)
        self._heard.pop(one, None)
        one.close()

    def _lose(self, one: socket.socket, how: str) -> None:
        process = self._names[one]
        self._report(process, how)
        self._drop(one)
        for other in list(self._names):
            self._send(other, f"lost {process} {how}")

    def _report(self, process: int, how: str) -> None:
        if process in self._reported or self._leaving or process == self.process:
            return
        self._reported.add(process)
        line = (
            f"bert-jax: process {process} of {self.number} {how}. Process "
            f"{self.process} cannot go on without it and ends, too; see the log of "
            f"process {process}. Start all again to go on from the newest whole "
            "checkpoint.\n"
        )
        # At once, whatever Python's own stream is doing: the runtime may be ending us.
        with contextlib.suppress(OSError):
            os.write(2, line.encode())

    def _send(self, one: socket.socket, words: str) -> None:
        with contextlib.suppress(OSError):
            one.send(f"{words}\n".encode())
