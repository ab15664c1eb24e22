"""A listener and its connections, lean: what is there already is taken without waiting for it.

A hook's frame is nearly always in the socket when its connection is accepted, and its reply always
fits. Trio's own `SocketStream` asks the scheduler at each step all the same, and each deadline has
to be set up and taken down: together half of what a hook costs the daemon. So here `*_nowait` does
the work, in Trio's sense of the word, and the async methods, with a deadline around them, are for
the rest.

Errors are Trio's: `BrokenResourceError` for what the peer did, `ClosedResourceError` for what we
did. It knows no protocol (`wire.py`) and no limits (`server.py`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import trio
from attrs import define

PIECE_BYTES = 64 << 10
"""The most that is read at once."""


def _check_open(sock: socket.socket) -> None:
    if sock.fileno() < 0:
        raise trio.ClosedResourceError


@define(eq=False)
class Connection(trio.abc.AsyncResource):
    """One client.

    Attributes:
        sock: connected, and not blocking.
        reserved: what the server keeps back of its shared room for this one, in bytes.
    """

    sock: socket.socket
    reserved: int = 0

    def receive_nowait(self) -> bytes:
        """What is there; nothing at all where the peer hung up.

        Raises:
            trio.WouldBlock: nothing is there yet.
            trio.BrokenResourceError: the peer reset the connection.
        """
        try:
            return self.sock.recv(PIECE_BYTES)
        except BlockingIOError:
            raise trio.WouldBlock from None
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def receive_some(self) -> bytes:
        """Wait for the next bytes; nothing at all where the peer hung up.

        Raises:
            trio.BrokenResourceError: the peer reset the connection.
            trio.ClosedResourceError: it was closed here.
        """
        while True:
            _check_open(self.sock)
            await trio.lowlevel.wait_readable(self.sock)
            try:
                return self.receive_nowait()
            except trio.WouldBlock:
                continue

    def send_nowait(self, data: bytes) -> bytes:
        """Send what fits, and give back the rest.

        Raises:
            trio.BrokenResourceError: the peer hung up.
        """
        try:
            return data[self.sock.send(data) :]
        except BlockingIOError:
            return data
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def send_all(self, data: bytes) -> None:
        """Send everything, as the peer makes room for it.

        Raises:
            trio.BrokenResourceError: the peer hung up.
            trio.ClosedResourceError: it was closed here.
        """
        while data:
            _check_open(self.sock)
            await trio.lowlevel.wait_writable(self.sock)
            data = self.send_nowait(data)

    def close(self) -> None:
        """Hang up; any number of times."""
        if self.sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self.sock)
            self.sock.close()

    async def aclose(self) -> None:
        """Hang up; a checkpoint only where it was not closed yet.

        `trio.serve_listeners` closes each connection once more after its handler, and another pass
        of the scheduler there would be a quarter of what a hook costs here.
        """
        if self.sock.fileno() >= 0:
            self.close()
            await trio.lowlevel.checkpoint()

    # For `peer_uid`.
    def getsockopt(self, level: int, option: int, length: int, /) -> bytes:
        """An option of the socket."""
        return self.sock.getsockopt(level, option, length)


@define(eq=False)
class Listener(trio.abc.Listener[Connection]):
    """Accepts connections for `trio.serve_listeners`, which deals with a lack of descriptors.

    Attributes:
        sock: listening; made non-blocking by `wrap`.
        on_error: called with what `accept` is about to raise, because Trio tells nobody of it.
    """

    sock: socket.socket
    on_error: Callable[[OSError], None] | None = None

    @classmethod
    def wrap(cls, listening: socket.socket) -> Listener:
        """Take over a listening socket."""
        listening.setblocking(False)
        return cls(listening)

    async def accept(self) -> Connection:
        """Wait for the next connection.

        Raises:
            OSError: the system lacks something, descriptors most of all.
            trio.ClosedResourceError: it was closed here.
        """
        while True:
            _check_open(self.sock)
            await trio.lowlevel.wait_readable(self.sock)
            try:
                accepted, _ = self.sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                if self.on_error:
                    self.on_error(error)
                raise
            accepted.setblocking(False)
            return Connection(accepted)

    def close(self) -> None:
        """Stop listening; any number of times."""
        if self.sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self.sock)
            self.sock.close()

    async def aclose(self) -> None:
        """Stop listening, as Trio wants it said."""
        self.close()
        await trio.lowlevel.checkpoint()
