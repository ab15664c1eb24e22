"""The collector's life: a port of its own, Hypercorn's connections on it, and an orderly end.

Rules:
- The wanted port, or the next free one: whoever needs it reads it from us, never from a guess.
- A stop tells every consumer, waits `GRACE_SECONDS`, and cuts off who is still there.
- What the application raises costs one connection and is logged here; Hypercorn itself says nothing
  to stderr, and no request line, which could hold what nobody should read, is ever logged.
- Hypercorn shields what it sends from every cancellation: a peer that reads nothing would hold a
  connection, and us, for good. So the stream beneath has a deadline of its own for each send, and
  is closed under Hypercorn's hands where we have to go.
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import structlog
import trio
from attrs import frozen
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework
from hypercorn.utils import wrap_app

from kimiaepd.collector import http1
from kimiaepd.collector.routes import Collector
from kimiaepd.errors import BusyError, ConfigError
from kimiaepd.settings import LARGEST_PORT

log: structlog.stdlib.BoundLogger = structlog.get_logger()

PORT = 8398
PORTS_TRIED = 20
GRACE_SECONDS = 2.0
SEND_SECONDS = 10.0
"""How long a peer may take nothing of what it is sent."""

BACKLOG = 128

MOST_OPEN = 320
"""Connections at once: those that have shown a token (`routes.MOST_CONNECTIONS`), and some that
have not yet. One more is hung up on: no other user of the machine shall take our descriptors.
"""

_TAKEN = (errno.EADDRINUSE, errno.EACCES)
_QUIET = "kimiaepd.collector.hypercorn"


@frozen
class Tls:
    """A certificate and its key, in files."""

    certificate: Path
    key: Path


def bind(host: str, port: int, *, others: int = PORTS_TRIED) -> socket.socket:
    """A listening socket on the port, or on the first free one of those after it.

    Args:
        host: an address of this machine, as a number.
        port: the wanted one; 0: any.
        others: how many more are tried.

    Raises:
        BusyError: none is free.
        ConfigError: the address cannot be bound at all.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last = min(port + others, LARGEST_PORT)
    for number in range(port, last + 1) if port else (0,):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, number))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno not in _TAKEN:
                raise ConfigError(
                    f"the collector cannot listen at {host}:{number}: {error.strerror}"
                ) from None
        else:
            return listener
    raise BusyError(f"no port from {port} to {last} is free for the collector")


async def serve(
    collector: Collector,
    listener: socket.socket,
    *,
    tls: Tls | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `collector.stopping` is set and everybody has gone, or the grace is over.

    The listener is closed in every case.
    """
    listener.setblocking(False)
    doors = _Doors(trio.SocketListener(trio.socket.from_stdlib_socket(listener)))
    context = WorkerContext(None)
    app = wrap_app(cast("ASGIFramework", collector.app()), 0, "asgi")
    config = _config()

    def connection(stream: trio.abc.Stream) -> http1.Http1Server:
        # Hypercorn takes any stream that has a socket beneath; only its annotation is narrower.
        one = cast("trio.SSLStream[trio.SocketStream]", stream)
        return http1.Http1Server(app, config, context, one, collector.longest_message)

    handle = partial(_converse, connection)
    async with trio.open_nursery() as connection_nursery:
        try:
            async with trio.open_nursery() as accept_nursery:
                accept_nursery.start_soon(
                    partial(
                        trio.serve_listeners,
                        handle,
                        [_secured(doors, tls)],
                        handler_nursery=connection_nursery,
                    )
                )
                task_status.started()
                await collector.stopping.wait()
                accept_nursery.cancel_scope.cancel()
            await context.terminated.set()
            connection_nursery.cancel_scope.deadline = trio.current_time() + GRACE_SECONDS
            with trio.move_on_after(GRACE_SECONDS):
                await doors.emptied()
        finally:
            doors.slam()
        connection_nursery.cancel_scope.cancel()


async def _converse(
    connection: Callable[[trio.abc.Stream], http1.Http1Server], stream: trio.abc.Stream
) -> None:
    """One connection; what goes wrong with it is its own."""
    try:
        await connection(stream)
    except Exception:
        # A defect of ours, or of a library: it costs this connection alone.
        log.exception("collector connection failed")
    finally:
        await trio.aclose_forcefully(stream)


def _secured(doors: _Doors, tls: Tls | None) -> trio.abc.Listener[trio.abc.Stream]:
    if tls is None:
        return doors
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tls.certificate, tls.key)
    return cast(
        "trio.abc.Listener[trio.abc.Stream]",
        trio.SSLListener(doors, context, https_compatible=True),
    )


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = _quiet_logger()
    config.include_server_header = False
    config.keep_alive_timeout = http1.IDLE_SECONDS
    config.ssl_handshake_timeout = http1.IDLE_SECONDS
    config.h11_max_incomplete_size = 64 << 10
    config.alpn_protocols = ["http/1.1"]
    return config


class _Door(trio.abc.HalfCloseableStream):
    """A connection whose peer must take what it is sent, in time."""

    def __init__(self, stream: trio.SocketStream, closed: Callable[[_Door], None]) -> None:
        self.socket = stream.socket
        self._stream = stream
        self._closed = closed

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with trio.move_on_after(SEND_SECONDS) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            raise trio.BrokenResourceError("the peer takes nothing")

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        # Hypercorn asks for it right before it closes, also while another task sends; and that one
        # must find us closed, not busy.
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        self._closed(self)
        await self._stream.aclose()

    def slam(self) -> None:
        """Close it now, under the hands of whoever uses it."""
        self._closed(self)
        self.socket.close()


class _Doors(trio.abc.Listener[trio.abc.Stream]):
    """The listener, and every connection that came through it and is still there."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener
        self._open: set[_Door] = set()
        self._emptied = trio.Event()

    async def accept(self) -> trio.abc.Stream:
        while True:
            stream = await self._listener.accept()
            if len(self._open) < MOST_OPEN:
                door = _Door(stream, self._close)
                self._open.add(door)
                return door
            stream.socket.close()

    def _close(self, door: _Door) -> None:
        self._open.discard(door)
        if not self._open:
            self._emptied.set()

    async def emptied(self) -> None:
        """Wait until nobody is there any more."""
        while self._open:
            self._emptied = trio.Event()
            await self._emptied.wait()

    def slam(self) -> None:
        """Cut everybody off, whatever is being sent; nothing new comes either."""
        self._listener.socket.close()
        for door in list(self._open):
            door.slam()

    async def aclose(self) -> None:
        await self._listener.aclose()


class _ToOurLog(logging.Handler):
    """Hypercorn's own words, as lines of ours; what it says of its start is nobody's news."""

    def emit(self, record: logging.LogRecord) -> None:
        log.error("collector", what=record.getMessage(), exc_info=record.exc_info)


def _quiet_logger() -> logging.Logger:
    logger = logging.getLogger(_QUIET)
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    if not logger.handlers:
        logger.addHandler(_ToOurLog())
    return logger
