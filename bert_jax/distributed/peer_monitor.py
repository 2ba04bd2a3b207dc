"""Report a lost process of the run before JAX's runtime ends this one.

If a process sends no heartbeat for `startup.HEARTBEAT_TIMEOUT` seconds, JAX's runtime
ends all the others with a stack trace that does not name it. Here, process 0 keeps a
TCP connection to each of the others. The kernel closes it when a process ends, however
it ends; a host that is cut off or a process that hangs stops sending heartbeats.
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

HEARTBEAT_INTERVAL = 5.0
"""Seconds between two heartbeats."""
SILENCE_TIMEOUT = 60.0
"""Seconds without a heartbeat after which a process is reported; less than
`startup.HEARTBEAT_TIMEOUT`."""
KEY = "bert_jax/peer_monitor"
_CONNECT_TIMEOUT = 10.0
"""Seconds to connect and to receive the first message."""
_MAX_BYTES = 4096


def start_peer_monitor() -> None:
    """Report the loss of any other process from now on, in a thread.

    Call it after `jax.distributed.initialize`. A no-op if process 0 cannot be reached
    on a port of its choice, or if JAX's private `global_state` is not as expected: the
    other processes have no public name.
    """
    distributed = sys.modules.get("jax._src.distributed")
    state: Any = getattr(distributed, "global_state", None)
    with contextlib.suppress(OSError, RuntimeError, ValueError, AttributeError):
        process, num_processes = state.process_id, state.num_processes
        if num_processes < 2:
            return
        if process == 0:
            monitor = PeerMonitor(process, num_processes, secrets.token_hex(16))
            state.client.key_value_set(KEY, f"{monitor.listen()} {monitor.token}")
        else:
            milliseconds = int(1000 * _CONNECT_TIMEOUT)
            value = state.client.blocking_key_value_get(KEY, milliseconds)
            port, token = value.split()
            monitor = PeerMonitor(process, num_processes, token)
            host = state.coordinator_address.rpartition(":")[0]
            monitor.connect(host.strip("[]"), int(port))
        threading.Thread(target=monitor.run, name="peer monitor", daemon=True).start()
        # Runs before JAX's own exit handler, which waits for the other processes.
        atexit.register(monitor.leave)


class PeerMonitor:
    """The connections of one process to its peers, and when each was last heard.

    Messages are lines: "TOKEN PROCESS" first, then "here", "bye", "lost PROCESS HOW".
    """

    def __init__(self, process: int, num_processes: int, token: str) -> None:
        self.process, self.num_processes, self.token = process, num_processes, token
        self._selector = selectors.DefaultSelector()
        self._last_heard: dict[socket.socket, float] = {}
        self._processes: dict[socket.socket, int] = {}
        # The start of a line whose rest has not arrived.
        self._unfinished: dict[socket.socket, bytes] = {}
        self._reported = {process}
        self._leaving = False
        # The kernel closes a dead process's files in the order of their numbers. Low
        # numbers are reserved here, so that these connections close before the
        # runtime's, at which JAX ends the other processes.
        num_reserved = num_processes - 1 if process == 0 else 0
        self._reserved_files = [os.dup(0) for _ in range(num_reserved)]

    def listen(self) -> int:
        """Accept connections, as process 0; return the port."""
        listener = socket.create_server(("", 0), backlog=self.num_processes)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        port: int = listener.getsockname()[1]
        return port

    def connect(self, host: str, port: int) -> None:
        """Connect to process 0."""
        connection = socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT)
        connection.sendall(f"{self.token} {self.process}\n".encode())
        self._add(connection, 0)

    def leave(self) -> None:
        """Announce the end of this process, so that it is not reported as lost."""
        self._leaving = True
        self._send_to_all("bye")

    def run(self) -> None:
        """Send heartbeats and read the others' until `leave`; the thread's loop."""
        last_sent = time.monotonic()
        while not self._leaving:
            for key, _ in self._selector.select(HEARTBEAT_INTERVAL):
                connection: Any = key.fileobj
                if connection in self._processes:
                    self._receive(connection)
                else:
                    self._accept(connection)
            now = time.monotonic()
            if now - last_sent >= HEARTBEAT_INTERVAL:
                last_sent = now
                self._send_to_all("here")
            for connection, heard in list(self._last_heard.items()):
                if (silence := now - heard) > SILENCE_TIMEOUT:
                    self._lose(connection, f"has sent no heartbeat for {silence:.0f} s")

    def _add(self, connection: socket.socket, process: int) -> None:
        connection.setblocking(False)
        self._processes[connection] = process
        self._last_heard[connection] = time.monotonic()
        self._selector.register(connection, selectors.EVENT_READ)

    def _accept(self, listener: socket.socket) -> None:
        """Accept a connection if it sends the token, else close it."""
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            connection.settimeout(_CONNECT_TIMEOUT)
            greeting = connection.recv(_MAX_BYTES).decode(errors="ignore")
            token, _, number = greeting.rstrip("\n").partition(" ")
            process = int(number) if number.isdecimal() else 0
            has_token = hmac.compare_digest(token.encode(), self.token.encode())
            if not has_token or not 0 < process < self.num_processes:
                connection.close()
                return
            if self._reserved_files:
                file = self._reserved_files.pop(0)
                os.dup2(connection.fileno(), file, inheritable=False)
                connection.close()
                connection = socket.socket(fileno=file)
            self._add(connection, process)

    def _receive(self, connection: socket.socket) -> None:
        try:
            content = connection.recv(_MAX_BYTES)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        if not content:
            self._lose(connection, "is gone: killed, crashed, or its host is lost")
            return
        self._last_heard[connection] = time.monotonic()
        content = self._unfinished.pop(connection, b"") + content
        *lines, self._unfinished[connection] = content[-_MAX_BYTES:].split(b"\n")
        for line in lines:
            kind, _, rest = line.decode(errors="ignore").partition(" ")
            if kind == "bye":
                self._drop(connection)
            elif kind == "lost":
                process, _, how = rest.partition(" ")
                self._report(int(process) if process.isdecimal() else -1, how)

    def _drop(self, connection: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        for table in (self._processes, self._last_heard, self._unfinished):
            table.pop(connection, None)
        connection.close()

    def _lose(self, connection: socket.socket, how: str) -> None:
        """Report the process of `connection` as lost, here and to the other peers."""
        process = self._processes[connection]
        self._report(process, how)
        self._drop(connection)
        self._send_to_all(f"lost {process} {how}")

    def _report(self, process: int, how: str) -> None:
        if process in self._reported or self._leaving:
            return
        self._reported.add(process)
        line = (
            f"bert-jax: process {process} of {self.num_processes} {how}. Process "
            f"{self.process} cannot continue without it and ends, too; see the log of "
            f"process {process}. Start all processes again to resume from the latest "
            "verified checkpoint.\n"
        )
        # Not through sys.stderr, which may be locked: the runtime may be ending us.
        with contextlib.suppress(OSError):
            os.write(2, line.encode())

    def _send_to_all(self, message: str) -> None:
        for connection in list(self._processes):
            with contextlib.suppress(OSError):
                connection.send(f"{message}\n".encode())
