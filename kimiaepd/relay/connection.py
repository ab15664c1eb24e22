"""One WebSocket connection, and the end of every way in which the library can fail at it.

Rules (pitfalls of trio-websocket 0.12, each with a test):
- Its reader runs in a nursery of ours, and what escapes from there becomes `LinkError`: its own
  context manager can leak a bare cancellation that ends the whole program.
- A handshake that is refused without a body, or in which the relay hangs up, is told by nobody:
  `overheard.py` does, at once and with HTTP's number.
- Connecting, the handshake and the close are time-boxed; and the stream itself is always closed,
  which the library forgets in some cases. A connection that failed, or that was cancelled, gets no
  close handshake.
- The reader is always being read from (`link.py`), so one unread message cannot stop the pongs.
- A send that was cancelled has written half a frame: the connection is never used again.

It serves relays, and the servers of `kimi web`; it knows nothing of either but the address and the
token's header.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

import h11
import trio
from attrs import define, field
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    HandshakeError,
    WebSocketConnection,
    wrap_client_stream,
)
from wsproto.utilities import LocalProtocolError, ProtocolError

from kimiaepd.relay.address import Address
from kimiaepd.relay.overheard import SWITCHED, Overheard
from kimiaepd.storage.worker_thread import in_thread

CONNECT_SECONDS = 5.0
"""For TCP, TLS and the WebSocket handshake together."""

REFUSAL_SECONDS = 0.5
"""For the rest of an answer that is no handshake."""

CLOSE_SECONDS = 2.0
"""For the close handshake; then the stream is closed without."""

MAX_MESSAGE = 1 << 20
"""Bytes of a message that may come, where nothing else is said: a command is a few kB."""

_TOO_BIG = 1009
_OUR_LIMIT = "Exceeded maximum message size"
"""So the library says that it was we who closed with this code."""

_RECEIVE = 64 << 10
_REFUSED = (401, 403)
_DIGITS = 10

# The library's own, and what falls through it from the libraries below when a peer is no relay.
_BROKEN = (
    HandshakeError,
    ConnectionClosed,
    ProtocolError,
    h11.ProtocolError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
)


class LinkError(Exception):
    """There is no connection, or no longer one; `str()` says why, for people.

    Attributes:
        status: HTTP's, where that was the answer to the handshake.
        retry_after: seconds that the relay wants us to wait, where it said so.
    """

    def __init__(
        self, why: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(why)
        self.status = status
        self.retry_after = retry_after


class RefusedError(LinkError):
    """The relay does not take our token."""


class TooLargeError(LinkError):
    """The relay closed the connection because of a message that is too large for it."""


@define(eq=False)
class Connection:
    """An open connection."""

    _socket: WebSocketConnection
    _who: str
    _is_broken: bool = field(default=False, init=False)

    async def send(self, text: str) -> None:
        """Send one message.

        Raises:
            LinkError: the connection is gone. A message that was handed over proves nothing.
        """
        if self._is_broken:
            raise LinkError("a send was interrupted")
        self._is_broken = True
        try:
            await self._socket.send_message(text)
        except (ConnectionClosed, LocalProtocolError) as error:
            raise _lost(error, self._who) from None
        self._is_broken = False

    async def receive(self) -> str | bytes:
        """The next message.

        Raises:
            LinkError: the connection is gone.
        """
        try:
            return await self._socket.get_message()
        except ConnectionClosed as error:
            raise _lost(error, self._who) from None

    async def close(self) -> None:
        """Say goodbye; the caller sets the deadline."""
        if not self._is_broken:
            await self._socket.aclose()


async def connected(
    address: Address,
    token: str | None,
    use: Callable[[Connection], Awaitable[None]],
    *,
    open_stream: Callable[[Address], Awaitable[trio.abc.Stream]] | None = None,
    longest: int = MAX_MESSAGE,
) -> None:
    """Connect, use the connection, and close it whatever happens.

    Args:
        address: the relay.
        token: what authenticates us.
        use: what to do with it; returns when it is done.
        open_stream: how to reach the address; TCP, and TLS where it asks for that, by default.
        longest: bytes of a message that the other side may send.

    Raises:
        RefusedError: the relay answered 401 or 403.
        LinkError: it cannot be reached, or the connection was lost.
    """
    stream: Overheard | None = None
    try:
        with trio.move_on_after(CONNECT_SECONDS) as connecting:
            stream = Overheard(await (open_stream or _open_stream)(address))
        if stream is None:
            raise LinkError(f"no connection within {CONNECT_SECONDS:g} s")
        shake_hands = partial(_shake_hands, address, token, longest)
        await _talk(stream, address.who, shake_hands, use, connecting.deadline)
    finally:
        if stream is not None:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)


async def _talk(
    stream: Overheard,
    who: str,
    shake_hands: Callable[[trio.Nursery, Overheard], Awaitable[WebSocketConnection]],
    use: Callable[[Connection], Awaitable[None]],
    deadline: float,
) -> None:
    connection: Connection | None = None
    try:
        async with trio.open_nursery() as socket_nursery:
            stream.on_refusal = partial(_call_off, socket_nursery.cancel_scope, deadline)
            with trio.move_on_at(deadline):
                connection = Connection(await shake_hands(socket_nursery, stream), who)
            if connection is not None:
                await use(connection)
                # Only here: after a failure there is nobody to say it to, and in a cancelled
                # nursery the library's reader is gone, which would have to read the answer.
                with trio.move_on_after(CLOSE_SECONDS):
                    await connection.close()
            socket_nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _one(group, who) from None
    if connection is None:
        raise _no_handshake(stream, who)


async def _shake_hands(
    address: Address,
    token: str | None,
    longest: int,
    socket_nursery: trio.Nursery,
    stream: Overheard,
) -> WebSocketConnection:
    return await wrap_client_stream(
        socket_nursery,
        cast(trio.SocketStream, stream),  # it takes any stream, as its documentation says
        address.host_header,
        address.socket_path,
        extra_headers=_headers(token),
        max_message_size=longest,
        receive_buffer_size=_RECEIVE,
    )


def _call_off(scope: trio.CancelScope, deadline: float) -> None:
    """Give the handshake up soon: the body of a refusal, with its headers, may still come."""
    scope.deadline = min(scope.deadline, deadline, trio.current_time() + REFUSAL_SECONDS)


def _no_handshake(stream: Overheard, who: str) -> LinkError:
    if stream.status not in (None, SWITCHED):
        return _answered(stream.status, who)
    if stream.is_over:
        return LinkError(f"{who} hung up at the WebSocket handshake")
    return LinkError(f"no WebSocket handshake within {CONNECT_SECONDS:g} s")


def _answered(status: int | None, who: str, retry_after: float | None = None) -> LinkError:
    if status in _REFUSED:
        return RefusedError(f"{who} refuses the token (HTTP {status})", status=status)
    return LinkError(
        f"{who} answered HTTP {status}, not a WebSocket",
        status=status,
        retry_after=retry_after,
    )


def _one(group: BaseExceptionGroup[BaseException], who: str) -> BaseException:
    """What went wrong, out of the nursery's wrapping.

    Where there is more than the link's own failure, a cancellation first of all, that alone goes
    on: a failure beside it must not outlive the scope that the cancellation belongs to.
    """
    known, rest = group.split((LinkError, *_BROKEN))
    if rest is not None or known is None:
        return rest or group
    found: BaseException = known
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    if isinstance(found, LinkError):
        return found
    if isinstance(found, ConnectionRejected):
        return _answered(found.status_code, who, _retry_after(found))
    return _lost(found, who)


def _retry_after(refusal: ConnectionRejected) -> float | None:
    """What a refusal says of when to come again; a date, which HTTP allows too, is passed over."""
    for name, value in refusal.headers or ():
        if name.lower() == b"retry-after" and value.isdigit() and len(value) < _DIGITS:
            return float(value)
    return None


async def _open_stream(address: Address) -> trio.abc.Stream:
    try:
        # It reads every certificate authority that the system knows: 50 ms that no hook may wait.
        context = await in_thread(ssl.create_default_context) if address.is_tls else None
        tcp = await trio.open_tcp_stream(address.host, address.port)
    except OSError as error:
        raise LinkError(f"cannot connect: {_os_words(error)}") from None
    if context is None:
        return tcp
    tls = trio.SSLStream(tcp, context, server_hostname=address.host, https_compatible=True)
    try:
        await tls.do_handshake()
    except trio.BrokenResourceError as error:
        await trio.aclose_forcefully(tcp)
        raise LinkError(f"no TLS: {error.__cause__ or error}") from None
    except BaseException:
        await trio.aclose_forcefully(tcp)
        raise
    return tls


def _headers(token: str | None) -> list[tuple[bytes, bytes]]:
    return [(b"Authorization", b"Bearer " + token.encode("ascii"))] if token else []


def _lost(error: BaseException, who: str) -> LinkError:
    """A failure of the connection, in words without what the other side may have put into it."""
    if isinstance(error, ConnectionClosed) and error.reason is not None:
        reason = error.reason
        if reason.code == _TOO_BIG and (reason.reason or "").startswith(_OUR_LIMIT):
            return LinkError(f"{who} sent a message that is larger than we take (1009)")
        kind = TooLargeError if reason.code == _TOO_BIG else LinkError
        return kind(f"{who} closed the connection ({reason.code} {reason.name.lower()})")
    if isinstance(error, h11.ProtocolError):
        return LinkError("the connection broke: what answers there speaks no HTTP")
    return LinkError(f"the connection broke ({type(error).__name__})")


def _os_words(error: OSError) -> str:
    """The reason, also where Trio tried several addresses: then the first one's."""
    found: BaseException = error
    if isinstance(error.__cause__, BaseExceptionGroup):
        found = error.__cause__.exceptions[0]
    number = found.errno if isinstance(found, OSError) else None
    # A resolver's numbers are its own, and negative.
    return os.strerror(number) if number and number > 0 else str(found)
