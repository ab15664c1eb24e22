"""A WebSocket client for tests, on wsproto alone: what comes, as it comes."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio
import wsproto
from attrs import define, field
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    RejectConnection,
    Request,
    TextMessage,
)

from kimiaepd.mapping.json_value import JSONObject


class DeniedError(Exception):
    """The handshake was refused."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class OverError(Exception):
    """The connection is over."""

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code


@define(eq=False)
class Client:
    """One connection.

    Attributes:
        subprotocol: what the server named.
    """

    stream: trio.SocketStream
    subprotocol: str | None = None
    _protocol: wsproto.WSConnection = field(
        factory=lambda: wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
    )
    _came: deque[wsproto.events.Event] = field(factory=deque)
    _text: str = ""

    async def shake_hands(
        self, port: int, target: str, headers: Sequence[tuple[bytes, bytes]], offers: Sequence[str]
    ) -> None:
        request = Request(
            host=f"127.0.0.1:{port}",
            target=target,
            extra_headers=list(headers),
            subprotocols=list(offers),
        )
        await self.stream.send_all(self._protocol.send(request))
        event = await self._next()
        if isinstance(event, RejectConnection):
            raise DeniedError(event.status_code)
        assert isinstance(event, AcceptConnection), event
        self.subprotocol = event.subprotocol

    async def say(self, *messages: JSONObject | str | bytes) -> None:
        for message in messages:
            event: wsproto.events.Event
            if isinstance(message, bytes):
                event = BytesMessage(message)
            else:
                event = TextMessage(message if isinstance(message, str) else json.dumps(message))
            await self.stream.send_all(self._protocol.send(event))

    async def text(self) -> str:
        """The next message as it came."""
        with trio.fail_after(5):
            while True:
                event = await self._next()
                if isinstance(event, CloseConnection):
                    raise OverError(event.code)
                if isinstance(event, TextMessage):
                    self._text += event.data
                    if event.message_finished:
                        text, self._text = self._text, ""
                        return text

    async def hear(self) -> JSONObject:
        value = json.loads(await self.text())
        assert isinstance(value, dict)
        return value

    async def until(self, kind: str) -> JSONObject:
        while (frame := await self.hear())["type"] != kind:
            pass
        return frame

    async def rest(self) -> tuple[list[JSONObject], int | None]:
        """Everything until the end, and the code of the close."""
        said: list[JSONObject] = []
        while True:
            try:
                said.append(await self.hear())
            except OverError as over:
                return said, over.code

    async def answer_close(self) -> None:
        """Say that the close was heard; until then the server waits for it."""
        await self.stream.send_all(self._protocol.send(CloseConnection(1000)))

    async def _next(self) -> wsproto.events.Event:
        while not self._came:
            data = bytes(await self.stream.receive_some())
            if not data:
                return CloseConnection(1006)
            self._protocol.receive_data(data)
            self._came.extend(self._protocol.events())
        return self._came.popleft()


@asynccontextmanager
async def connected(
    port: int,
    *headers: tuple[bytes, bytes],
    target: str = "/socket",
    offers: Sequence[str] = (),
) -> AsyncIterator[Client]:
    """A client until the end of the block; then the stream is cut."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        client = Client(stream)
        await client.shake_hands(port, target, headers, offers)
        yield client
