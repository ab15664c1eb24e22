"""One hello with a relay over its WebSocket: what proves that events could go there.

Rules:
- We say that we are a consumer: an emitter would be taken for a daemon that has come.
- Everything is inside one deadline and one nursery, and the stream is ours to close: the library
  keeps what fails in its reader to itself, a refused handshake first of all. So the status line of
  the answer is overheard, and a refusal is told with its number and at once.
- Where the answer came, nothing that goes wrong while we leave can take it back.

It judges nothing that the relay says (`relay.py`).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from typing import cast

import h11
import trio
import wsproto.utilities
from attrs import define, field
from trio_websocket import ConnectionClosed, HandshakeError, wrap_client_stream

from kimiaepd.doctor.one_get import LONGEST, why
from kimiaepd.log_lines import tame
from kimiaepd.mapping.event import VERSION
from kimiaepd.mapping.json_value import JSONObject, MalformedJSONError, dump, parse
from kimiaepd.relay.address import Address

HELLO_SECONDS = 5.0
"""For TCP, TLS, the handshake and both hellos together."""

CLOSE_SECONDS = 1.0

HELLO = dump(
    {
        "type": "hello",
        "versions": [VERSION],
        "role": "consumer",
        "identity": {"agent": "kimiaepd-doctor"},
        "capabilities": {},
    }
).decode("ascii")
"""AEP-0003 section 4; a consumer may leave its identity out, and a person likes to see it."""

_ENDS = (
    HandshakeError,
    ConnectionClosed,
    trio.BrokenResourceError,
    wsproto.utilities.LocalProtocolError,  # a ping comes while we close
    h11.LocalProtocolError,  # what comes after our request is no HTTP, or a strange 101
)
"""What the library raises where the other side goes, or does what it must not."""

_SWITCHED = 101
_REFUSED = (401, 403)
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})\b")


class NoHelloError(Exception):
    """No hello came back; `str()` says why in a few words.

    Attributes:
        refused: whether it is for want of a token that is taken.
    """

    def __init__(self, said: str, *, refused: bool = False) -> None:
        super().__init__(said)
        self.refused = refused


async def exchange(address: Address, token: str | None) -> JSONObject:
    """Say hello, and give back the relay's.

    Raises:
        NoHelloError: there was none.
    """
    stream: _Overheard | None = None
    answer: str | bytes | None = None
    try:
        with trio.move_on_after(HELLO_SECONDS):
            stream = _Overheard(await _open(address))
            answer = await _talk(stream, address, token)
    finally:
        if stream is not None:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
    if answer is None:
        raise _silence(stream)
    return _understood(answer)


async def _open(address: Address) -> trio.abc.Stream:
    try:
        tcp = await trio.open_tcp_stream(address.host, address.port)
    except (OSError, UnicodeError) as error:
        raise NoHelloError(why(error)) from None
    if not address.is_tls:
        return tcp
    tls = trio.SSLStream(
        tcp, ssl.create_default_context(), server_hostname=address.host, https_compatible=True
    )
    try:
        await tls.do_handshake()
    except BaseException as error:
        await trio.aclose_forcefully(tcp)
        if isinstance(error, trio.BrokenResourceError):
            raise NoHelloError(why(error)) from None
        raise
    return tls


async def _talk(stream: _Overheard, address: Address, token: str | None) -> str | bytes | None:
    """The first message that came; None where none did."""
    headers = [(b"Authorization", b"Bearer " + token.encode("ascii"))] if token else []
    answer = None
    try:
        async with trio.open_nursery() as socket_nursery:
            stream.on_refusal = socket_nursery.cancel_scope.cancel
            socket = await wrap_client_stream(
                socket_nursery,
                cast(trio.SocketStream, stream),  # it takes any stream, as its documentation says
                address.host_header,
                address.socket_path,
                extra_headers=headers,
                max_message_size=LONGEST,
            )
            await socket.send_message(HELLO)
            answer = await socket.get_message()
            with trio.move_on_after(CLOSE_SECONDS):
                await socket.aclose()
            socket_nursery.cancel_scope.cancel()
    except* _ENDS:
        stream.is_over = True
    return answer


def _silence(stream: _Overheard | None) -> NoHelloError:
    """Why no message came."""
    if stream is None:
        return NoHelloError(f"no connection within {HELLO_SECONDS:g} s")
    status = stream.status
    if status is None and stream.is_over:
        return NoHelloError("it hung up at the WebSocket handshake")
    if status is None:
        return NoHelloError(f"no WebSocket handshake within {HELLO_SECONDS:g} s")
    if status != _SWITCHED:
        return NoHelloError(f"HTTP {status} and no WebSocket", refused=status in _REFUSED)
    if stream.is_over:
        return NoHelloError("it closed the WebSocket without a hello")
    return NoHelloError(f"no hello within {HELLO_SECONDS:g} s")


def _understood(answer: str | bytes) -> JSONObject:
    raw = answer if isinstance(answer, bytes) else answer.encode("utf-8", "replace")
    try:
        frame = parse(raw)
    except MalformedJSONError:
        frame = None
    kind = frame.get("type") if isinstance(frame, dict) else None
    if isinstance(frame, dict) and kind == "hello":
        return frame
    if isinstance(frame, dict) and kind == "error":
        code = frame.get("code")
        raise NoHelloError(
            tame(f"it answers with the error {code}"), refused=code == "unauthorized"
        )
    raise NoHelloError("its first frame is no hello")


def _nothing() -> None:
    pass


@define(eq=False)
class _Overheard(trio.abc.Stream):
    """A stream that notes the status of the HTTP answer which comes through it.

    Attributes:
        on_refusal: called when there will be no WebSocket.
        status: HTTP's; None until it was heard.
        is_over: whether the other side has hung up, or done what ends a connection.
    """

    _stream: trio.abc.Stream
    on_refusal: Callable[[], None] = field(default=_nothing, init=False)
    status: int | None = field(default=None, init=False)
    is_over: bool = field(default=False, init=False)
    _head: bytes = field(default=b"", init=False)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """The next bytes, with an ear at the first of them."""
        data = await self._stream.receive_some(max_bytes)
        self.is_over |= not data
        if self.status is None:
            self._head = (self._head + data)[:64]
            if match := _STATUS_LINE.match(self._head):
                self.status = int(match[1])
            if self.is_over or self.status not in (None, _SWITCHED):
                self.on_refusal()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()
