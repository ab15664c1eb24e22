"""HTTP/1.1 as the embedded relay speaks it: Hypercorn's, without what nobody here needs.

Rules:
- Nothing else is spoken. HTTP/2 has limits and a life of its own, and Hypercorn changes over to it
  for whoever asks: who has shown no token could stay in it for good.
- No message of a WebSocket is packed. A few kilobytes may unpack to many megabytes, all at once,
  and before their size is looked at.
- A message may be as long as its sender's token is good for. What comes behind one that is longer
  is let go of, where Hypercorn would add it up.
- Who sends before he was let in is hung up on, and so is he whose handshake is none.

It leans on the inside of Hypercorn's `H11Protocol`, and each of these rules has a test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H11Protocol, H11WSConnection
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState

from kimiaepd.collector.same_site import Headers

Longest: TypeAlias = Callable[[Headers, bytes], int]
"""How long a message may be, in bytes, by the headers and the query of a WebSocket's handshake."""

IDLE_SECONDS = 5.0
"""How long a connection may stay on which nothing is asked or answered."""

_PACKING = b"sec-websocket-extensions"


class Http1Server(TCPServer):
    """One connection."""

    _protocol: ProtocolWrapper

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        stream: trio.SSLStream[trio.SocketStream],
        longest: Longest,
    ) -> None:
        super().__init__(app, config, context, ConnectionState({}), stream)
        self._longest = longest

    @property
    def protocol(self) -> ProtocolWrapper:
        """What Hypercorn hands on to whom."""
        return self._protocol

    @protocol.setter
    def protocol(self, made: ProtocolWrapper) -> None:
        made.protocol = _Http1(made, self._longest)
        self._protocol = made


class _Http1(H11Protocol):
    """Its protocol."""

    def __init__(self, outer: ProtocolWrapper, longest: Longest) -> None:
        super().__init__(
            outer.app,
            outer.config,
            outer.context,
            outer.task_group,
            outer.state,
            outer.ssl,
            outer.client,
            outer.server,
            outer.send,
        )
        self._longest = longest

    async def handle(self, event: Event) -> None:
        socket = self.stream if isinstance(self.stream, WSStream) else None
        if socket and not socket.handshake.accepted and isinstance(event, RawData) and event.data:
            await self.send(Closed())
            return
        await super().handle(event)
        if socket and socket.buffer.length > socket.buffer.max_length:
            await self._let_go(socket)

    async def _let_go(self, socket: WSStream) -> None:
        """Forget a message that is too long; whatever is said after it is too long as well."""
        socket.buffer.clear()
        if socket.buffer.max_length >= 0:
            socket.buffer.max_length = -1
            await self.send(Updated(idle=True))  # its sender was told, and has so long to go

    async def _check_protocol(self, event: h11.Request) -> None:
        """No other one is changed over to."""

    async def _create_stream(self, request: h11.Request) -> None:
        await super()._create_stream(_unpacked(request))
        if isinstance(self.stream, WSStream):
            query = request.target.partition(b"?")[2]
            self.stream.buffer.max_length = self._longest(list(request.headers), query)
            is_early = isinstance(self.connection, H11WSConnection) and self.connection.buffer
            if is_early or self.stream.closed:
                await self.send(Closed())


def _unpacked(request: h11.Request) -> h11.Request:
    """The same request without the wish for packed messages."""
    headers = [(name, value) for name, value in request.headers if name != _PACKING]
    if len(headers) == len(request.headers):
        return request
    return h11.Request(
        method=request.method,
        target=request.target,
        headers=headers,
        http_version=request.http_version,
    )
