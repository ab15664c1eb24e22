"""A wire between the daemon and a real `kimi web` server, which a test can cut.

The daemon gets a Kimi home of its own, in which a server's file names this wire's port, and the
token is that of the real home. So a connection ends in the middle of things while the server, its
turns and its other connections go on; the vendor itself offers no such way.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, field

from vendor.place import Place
from vendor.web import Web

CHUNK = 1 << 16
UPGRADE = b"/api/v1/ws"


@define(eq=False)
class Wire:
    """A port of its own, and what is connected through it to a server.

    Attributes:
        upgrades: WebSockets that were asked for, cut or not.
    """

    port: int
    upgrades: int = 0
    _listener: socket.socket = field(factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _ends: list[socket.socket] = field(factory=list)
    _threads: list[threading.Thread] = field(factory=list)
    _is_cut: bool = False

    @property
    def own_port(self) -> int:
        return int(self._listener.getsockname()[1])

    def cut(self) -> None:
        """End every connection, and take no new one until `mend`."""
        self._is_cut = True
        self._drop()

    def mend(self) -> None:
        self._is_cut = False

    def start(self) -> None:
        self._spawn(self._accept)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            # shutdown, because a close alone does not wake an accept in another thread.
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _drop(self) -> None:
        for end in list(self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _spawn(self, work: Callable[..., None], *given: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=work, args=given)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            self._spawn(self._connect, here)

    def _connect(self, here: socket.socket) -> None:
        with here, contextlib.suppress(ConnectionRefusedError):
            if not self._is_cut:
                with socket.create_connection(("127.0.0.1", self.port)) as there:
                    self._ends += (here, there)
                    back = self._spawn(self._carry, there, here)
                    self._carry(here, there)
                    back.join()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        is_first = True
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK):
                self.upgrades += is_first and UPGRADE in chunk
                is_first = False
                target.sendall(chunk)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def wired(web: Web, real: Place, ours: Place) -> Iterator[Wire]:
    """A wire to a server, and a home for the daemon in which it is the only one."""
    wire = Wire(web.port)
    wire.start()
    instances = ours.kimi_home / "server/instances"
    instances.mkdir(parents=True, exist_ok=True)
    (ours.kimi_home / "server.token").symlink_to(real.kimi_home / "server.token")
    said = {"pid": os.getpid(), "host": "127.0.0.1", "port": wire.own_port, "started_at": 0}
    (instances / "wire.json").write_text(json.dumps(said))
    try:
        yield wire
    finally:
        wire.close()
