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
import socket
import sys
import threading
from collections.abc import Callable
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
    """Report the loss of any other process from now on, in threads.

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
        _start_thread(monitor.run)
        # Runs before JAX's own exit handler, which waits for the other processes.
        atexit.register(monitor.leave)


def _start_thread(function: Callable[..., None], *args: object) -> None:
    threading.Thread(target=function, args=args, daemon=True).start()


class PeerMonitor:
    """The connections of one process to its peers, each read by a thread.

    Messages are lines: "TOKEN PROCESS" first, then "here", "bye", "lost PROCESS HOW".
    """

    def __init__(self, process: int, num_processes: int, token: str) -> None:
        self.process, self.num_processes, self.token = process, num_processes, token
        self._connections: dict[int, socket.socket] = {}
        self._reported = {process}
        self._leaving = threading.Event()
        # The kernel closes a dead process's files in the order of their numbers. Low
        # numbers are reserved here, so that these connections close before the
        # runtime's, at which JAX ends the other processes.
        num_reserved = num_processes - 1 if process == 0 else 0
        self._reserved_files = [os.dup(0) for _ in range(num_reserved)]

    def listen(self) -> int:
        """Accept connections, as process 0; return the port."""
        listener = socket.create_server(("", 0), backlog=self.num_processes)
        _start_thread(self._accept, listener)
        port: int = listener.getsockname()[1]
        return port

    def connect(self, host: str, port: int) -> None:
        """Connect to process 0."""
        connection = socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT)
        connection.sendall(f"{self.token} {self.process}\n".encode())
        _start_thread(self._read, connection, 0)

    def leave(self) -> None:
        """Announce the end of this process, so that it is not reported as lost."""
        self._leaving.set()
        self._send_to_all("bye")

    def run(self) -> None:
        """Send heartbeats until `leave`; a thread's loop."""
        while not self._leaving.wait(HEARTBEAT_INTERVAL):
            self._send_to_all("here")

    def _accept(self, listener: socket.socket) -> None:
        """Accept connections that send the token; close the others."""
        while not self._leaving.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                connection.settimeout(_CONNECT_TIMEOUT)
                greeting = connection.recv(_MAX_BYTES).decode(errors="ignore")
                token, _, number = greeting.rstrip("\n").partition(" ")
                process = int(number) if number.isdecimal() else 0
                has_token = hmac.compare_digest(token.encode(), self.token.encode())
                if not has_token or not 0 < process < self.num_processes:
                    connection.close()
                    continue
                if self._reserved_files:
                    file = self._reserved_files.pop(0)
                    os.dup2(connection.fileno(), file, inheritable=False)
                    connection.close()
                    connection = socket.socket(fileno=file)
                _start_thread(self._read, connection, process)

    def _read(self, connection: socket.socket, process: int) -> None:
        """Read a peer's lines; at their end report it as lost, if it did not leave."""
        how = "is gone: killed, crashed, or its host is lost"
        connection.settimeout(SILENCE_TIMEOUT)
        self._connections[process] = connection
        with connection, connection.makefile("rb") as lines:
            try:
                while line := lines.readline(_MAX_BYTES).decode(errors="ignore"):
                    kind, _, rest = line.rstrip("\n").partition(" ")
                    if kind == "bye":
                        self._connections.pop(process, None)
                        return
                    if kind == "lost":
                        number, _, reason = rest.partition(" ")
                        self._report(int(number) if number.isdecimal() else -1, reason)
            except TimeoutError:
                how = f"has sent no heartbeat for {SILENCE_TIMEOUT:.0f} s"
            except OSError:
                pass
            self._connections.pop(process, None)
        if not self._leaving.is_set():
            self._report(process, how)
            self._send_to_all(f"lost {process} {how}")

    def _report(self, process: int, how: str) -> None:
        if process in self._reported or self._leaving.is_set():
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
        for connection in list(self._connections.values()):
            with contextlib.suppress(OSError):
                connection.send(f"{message}\n".encode())
