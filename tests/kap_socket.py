"""One WebSocket of a scripted `kimi web` server: framing by hand, so that it can misbehave.

What the server says is put in a queue at once, as bytes, and sent as fast as the client reads: the
order of what is said is the order of what is sent, and a client that does not read holds up nobody.

What is answered to a client's messages: `kap_talk.py`.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING

import trio
from attrs import define, field
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

import kap_talk
from kap_journal import LONGEST_GAP, NOW, Session, members, ulid
from kimiaepd.mapping.json_value import JSON, JSONObject

if TYPE_CHECKING:
    from kap_server import KapServer

BEARER = "kimi-code.bearer."
MOST_MISSED = 2
"""Pings in a row that a client may leave unanswered; then the connection is closed."""

_PROTOCOL_PING = b"\x89\x01x"
_GOODBYE_SECONDS = 5


@define(eq=False)
class Connection:
    """One client on its WebSocket.

    Attributes:
        said: every frame of the client, in order; each an object.
        odd: its messages that were none.
        subscriptions: the sessions that it is told of.
        goodbye: the code with which it closed; None while it has not.
        code: the code with which the server closed.
        is_over: the bytes flow no more.
        subprotocol: what was agreed on.
    """

    server: KapServer
    stream: trio.SocketStream
    id: str = field(factory=lambda: f"conn_{ulid()}")
    said: list[JSONObject] = field(factory=list)
    odd: list[str | bytes] = field(factory=list)
    subscriptions: dict[str, Session] = field(factory=dict)
    goodbye: int | None = None
    code: int | None = None
    is_over: bool = False
    subprotocol: str | None = None
    waiting: int = 0
    _missed: int = 0
    _pieces: list[str | bytes] = field(factory=list)
    _protocol: WSConnection = field(factory=lambda: WSConnection(ConnectionType.SERVER))
    _queue: tuple[trio.MemorySendChannel[bytes], trio.MemoryReceiveChannel[bytes]] = field(
        factory=lambda: trio.open_memory_channel[bytes](math.inf)
    )

    # --- for tests -------------------------------------------------------------------------------

    def frames(self, kind: str) -> list[JSONObject]:
        """What the client said of one type."""
        return [frame for frame in self.said if frame.get("type") == kind]

    @property
    def pongs(self) -> list[JSON]:
        """The nonces that it answered."""
        return [members(frame.get("payload")).get("nonce") for frame in self.frames("pong")]

    def send(self, message: JSONObject | str | bytes) -> None:
        """Say a message: an object or any text, or bytes as a binary message."""
        if self.goodbye is not None:
            return
        if isinstance(message, bytes):
            self._do(BytesMessage(message))
        else:
            self._do(TextMessage(message if isinstance(message, str) else json.dumps(message)))

    def send_raw(self, data: bytes) -> None:
        """Put bytes on the connection as they are, such as a part of a frame."""
        if not self.is_over:
            self.waiting += len(data)
            self._queue[0].send_nowait(data)

    def ping(self) -> str:
        """The server's own ping; gives the nonce."""
        nonce = ulid()
        self.send({"type": "ping", "timestamp": NOW, "payload": {"nonce": nonce}})
        return nonce

    def close(self, code: int, reason: str = "") -> None:
        """Close, and wait for the client to do so."""
        if self.goodbye is None:
            self.code = code
            self._do(CloseConnection(code, reason))

    async def drop(self) -> None:
        """Hang up without a word."""
        await trio.aclose_forcefully(self.stream)

    # --- its life --------------------------------------------------------------------------------

    async def run(self, target: str, headers: list[tuple[bytes, bytes]], rest: bytes) -> None:
        """Shake hands and talk until it is over."""
        self._protocol.initiate_upgrade_connection(headers, target)
        (request,) = self._protocol.events()
        assert isinstance(request, Request)
        status = self._status(headers, request)
        if status:
            await self.stream.send_all(b"HTTP/1.1 %s\r\nConnection: close\r\n\r\n" % status)
            return
        if self.server.switches.never_shakes_hands:
            await trio.sleep_forever()
        self._do(AcceptConnection(subprotocol=self.subprotocol))
        self.server.connections.append(self)
        self.server.changed()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                nursery.start_soon(self._beat)
                self._greet()
                try:
                    await self._read(rest)
                    await self._flush()
                finally:
                    self.is_over = True
                    self.server.changed()
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError, RemoteProtocolError):
            pass  # it went without a word, or speaks something else

    def _status(self, headers: list[tuple[bytes, bytes]], request: Request) -> bytes | None:
        """Why the handshake is refused."""
        if not self.server.is_ours(dict(headers)):
            return b"403 Forbidden"
        wanted = f"{BEARER}{self.server.home.token}"
        if wanted in request.subprotocols:
            self.subprotocol = wanted
        # A header beats a subprotocol, also where it is wrong.
        bearer = dict(headers).get(b"authorization")
        if bearer is not None:
            is_right = bearer.decode("latin-1") == f"Bearer {self.server.home.token}"
        else:
            is_right = self.subprotocol is not None
        return None if is_right else b"401 Unauthorized"

    def _greet(self) -> None:
        if self.server.switches.no_hello:
            return
        payload: JSONObject = {"ws_connection_id": self.id, "protocol_version": 2}
        if self.server.heartbeat is not None:
            payload["heartbeat_ms"] = int(self.server.heartbeat * 1000)
        payload["max_event_buffer_size"] = LONGEST_GAP
        payload["capabilities"] = {"event_batching": False, "compression": False}
        self.send({"type": "server_hello", "timestamp": NOW, "payload": payload})

    async def _read(self, data: bytes) -> None:
        while True:
            if data:  # to the library, nothing is the end
                self._protocol.receive_data(data)
            for event in self._protocol.events():
                self._handle(event)
            if self.goodbye is not None:
                break
            if not (data := bytes(await self.stream.receive_some())):
                return
        while self.server.switches.never_close and await self.stream.receive_some():
            pass

    def _handle(self, event: Event) -> None:
        match event:
            case TextMessage() | BytesMessage():
                data = event.data
                self._pieces.append(data if isinstance(data, str) else bytes(data))
                if event.message_finished:
                    pieces, self._pieces = self._pieces, []
                    self._take(pieces)
            case Ping():
                self._do(event.response())
            case CloseConnection():
                self.goodbye = int(event.code)
                if self.server.switches.ping_at_goodbye:
                    self.send_raw(_PROTOCOL_PING * 3)
                if not self.server.switches.never_close:
                    self._do(event.response())

    def _do(self, event: Event) -> None:
        """Say what a protocol event is in bytes; after a goodbye, nothing."""
        with suppress(LocalProtocolError):
            self.send_raw(self._protocol.send(event))

    async def _write(self) -> None:
        async for piece in self._queue[1]:
            pieces = [piece]
            with suppress(trio.WouldBlock):
                while len(pieces) < 1000:
                    pieces.append(self._queue[1].receive_nowait())
            data = b"".join(pieces)
            await self.stream.send_all(data)
            self.waiting -= len(data)
            self.server.changed()

    async def _flush(self) -> None:
        with trio.move_on_after(_GOODBYE_SECONDS):
            await self.server.until(lambda: not self.waiting)

    async def _beat(self) -> None:
        while self.server.heartbeat is not None:
            await trio.sleep(self.server.heartbeat)
            if self._missed == MOST_MISSED:
                self.close(1001, "heartbeat timeout")
                return
            self._missed += 1
            self.ping()

    # --- what the client says --------------------------------------------------------------------

    def _take(self, pieces: list[str | bytes]) -> None:
        self._missed = 0
        text: str | bytes
        if isinstance(pieces[0], str):
            text = "".join(piece for piece in pieces if isinstance(piece, str))
        else:
            text = b"".join(piece for piece in pieces if isinstance(piece, bytes))
        try:
            frame = json.loads(text)
        except ValueError:
            frame = None
        if isinstance(frame, dict):
            self.said.append(frame)
            kap_talk.answer(self, frame)
        else:
            self.odd.append(text)
        self.server.changed()
