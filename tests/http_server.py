"""A small HTTP server for tests: on loopback, in this process, a reply a path."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import trio
from attrs import define, field, frozen

from kimiaepd.mapping.json_value import JSON


@define
class Request:
    """What a client asked."""

    path: str
    headers: Mapping[str, str]
    method: str = "GET"
    body: bytes = b""


@frozen
class Drip:
    """A reply in pieces, each a while after the one before it; the last piece stalls too."""

    pieces: Sequence[bytes]
    seconds: float


Reply: TypeAlias = bytes | Callable[[Request], bytes] | Drip | None
"""What goes back; None: nothing, for ever."""


def http(status: int, body: JSON | bytes = b"", **headers: str) -> bytes:
    """A whole reply."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Something", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


@define
class Server:
    """Where it is, and what it was asked.

    Attributes:
        port: on 127.0.0.1.
        replies: by path; every other path is 404.
        asked: every request, in order.
    """

    port: int
    replies: dict[str, Reply]
    asked: list[Request] = field(factory=list)

    async def talk(self, stream: trio.abc.Stream) -> None:
        """Answer one request and hang up."""
        try:
            request = await self._request(stream)
            if request is not None:
                self.asked.append(request)
                await self._answer(stream, request)
        except trio.BrokenResourceError:
            pass  # a client that has read enough
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _answer(self, stream: trio.abc.Stream, request: Request) -> None:
        reply = self.replies.get(request.path, http(404))
        if callable(reply):
            reply = reply(request)
        if reply is None:
            await trio.sleep_forever()
        elif isinstance(reply, Drip):
            for piece in reply.pieces:
                await stream.send_all(piece)
                await trio.sleep(reply.seconds)
        else:
            await stream.send_all(reply)

    async def _request(self, stream: trio.abc.Stream) -> Request | None:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = await stream.receive_some()
            if not piece:
                return None
            head += piece
            if not head[:1].isupper():  # such as TLS where none is spoken
                await stream.send_all(http(400))
                return None
        start, _, body = head.partition(b"\r\n\r\n")
        first, *rest = start.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
        while len(body) < int(headers.get("content-length", 0)):
            body += await stream.receive_some()
        method, path, _ = first.split(" ")
        return Request(path, headers, method, body)


@asynccontextmanager
async def serving(replies: dict[str, Reply]) -> AsyncIterator[Server]:
    """A server until the block ends."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = Server(listener.socket.getsockname()[1], replies)
    async with trio.open_nursery() as server_nursery:
        server_nursery.start_soon(trio.serve_listeners, server.talk, [listener])
        yield server
        server_nursery.cancel_scope.cancel()
