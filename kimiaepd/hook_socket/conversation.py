"""One connection's talk: read a request, let the handler answer it, hang up; count what happened.

Rules (the ids are those of the project's operations rules):
- A bad client costs one connection and one counter: garbage, half a frame, a slow reader or writer,
  another user, a crowd (I6, I10). Nothing that a client does is an exception out of here, and only
  the first of a kind is a line in the log.
- Whatever goes wrong, the hook is freed: by the reply that says nothing, or by hanging up.
- A full house still says how it is: a few spare places answer everything but hooks.
- A deadline is set up only where something has to wait. Nearly every hook comes in one piece and
  goes in one piece, and pays for none.
- How long a call is held is the handler's business; `Peer.gone` tells it when nobody waits.
- A handler that must know whether its reply arrived gives a `Reply`. Arrived means that the client
  took every byte, as far as the system tells: after the last one it hung up, and left none behind.

The bytes are `wire.py`'s; accepting, stopping and the socket's file are `server.py`'s.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

import structlog
import trio
from attrs import define, field, frozen

from kimiaepd import __version__
from kimiaepd.errors import UserError
from kimiaepd.hook_socket.connection import PIECE_BYTES, Connection
from kimiaepd.hook_socket.limits import Limits
from kimiaepd.hook_socket.peer import Peer, peer_uid
from kimiaepd.hook_socket.wire import (
    NO_REPLY,
    Kind,
    NeedData,
    Oversized,
    ProtocolError,
    Request,
    RequestReader,
    encode_reply,
)
from kimiaepd.mapping.json_value import JSON, JSONObject, dump

log: structlog.stdlib.BoundLogger = structlog.get_logger()

HEAD_BYTES = 4 << 10
"""How much of an oversized body the handler may see, as far as it came along with the header."""

REQUESTS = ("hook", "ping", "status", "reload", "console")
FAILURES = (
    "knock",  # went without a byte, as a probe does
    "gone",  # went before it had its reply
    "garbage",
    "truncated",
    "slow_read",
    "slow_write",
    "oversized",
    "no_room",
    "over_limit",
    "not_accepted",  # the system had no descriptor for it; it waits, and is tried again
    "foreign_user",
    "handler_error",
)
_EVERYDAY = frozenset({*REQUESTS, "knock", "gone"})


@frozen(eq=False)
class Reply:
    """A reply to a hook, and who wants to know what becomes of it.

    Attributes:
        body: what the shim shall write out.
        over: called once, whatever happens: with True where the client has all of it, with False
            where it may not. It must not wait.
    """

    body: bytes = field(repr=False)
    over: Callable[[bool], None]


class Handler(Protocol):
    """What answers: the daemon."""

    async def hook(self, body: bytes, started_ns: int, peer: Peer) -> bytes | Reply:
        """Take one hook; what its shim shall write out, nearly always nothing."""
        ...

    def oversized(self, head: bytes, size: int, started_ns: int) -> None:
        """Note a hook whose body is not read; `head` is its beginning, as far as it is known."""
        ...

    def status(self) -> JSONObject:
        """What `kimiaepd status` shows; the counters of connections are added to it."""
        ...

    async def reload(self) -> JSONObject:
        """Read the settings again; a UserError is as good an answer as {"error": its line}."""
        ...

    def console(self, *, read_only: bool, with_token: bool) -> JSONObject:
        """What opens our own relay to a browser, or to a client that takes its token in a URL."""
        ...


class _Refused(Exception):  # noqa: N818 - the client's error, not one of ours
    """The talk ends here; `kind` is what is counted."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@define(eq=False)
class Conversations:
    """Every connection's talk, and what they share: who is in, what is reserved, what was counted.

    Attributes:
        uid: whose hooks are taken.
        connected: connections that are being served.
        spare: those of them that have a spare place.
        reserved: bytes of `Limits.large_bytes` that are taken.
        stats: how often what happened, by `REQUESTS` and `FAILURES`.
    """

    handler: Handler
    limits: Limits
    uid: int = field(factory=os.geteuid)
    connected: int = 0
    spare: int = 0
    reserved: int = 0
    stats: dict[str, int] = field(factory=lambda: dict.fromkeys((*REQUESTS, *FAILURES), 0))

    async def serve(self, connection: Connection) -> None:
        """Serve one connection to its end; raises nothing but Cancelled."""
        full = self.connected - self.spare >= self.limits.connections
        if full and self.spare >= self.limits.spare_places:
            self.count("over_limit")
            return
        if not self._is_own(connection):
            self.count("foreign_user")
            return
        self.connected += 1
        self.spare += full
        try:
            await self._talk(connection, spare=full)
        finally:
            self.connected -= 1
            self.spare -= full
            self.reserved -= connection.reserved
            connection.close()

    def count(self, kind: str) -> None:
        """Count it; the first of a kind that is not everyday is told."""
        self.stats[kind] += 1
        if self.stats[kind] == 1 and kind not in _EVERYDAY:
            log.warning("bad connection; more of this kind are only counted", kind=kind)

    def _is_own(self, connection: Connection) -> bool:
        try:
            return peer_uid(connection) in (self.uid, None)
        except OSError:
            return False

    async def _talk(self, connection: Connection, *, spare: bool) -> None:
        try:
            request = await self._request(connection, spare=spare)
            reply = await self._answer(request, Peer(connection), spare=spare)
            if isinstance(reply, Reply):
                await self._confirmed(connection, reply)
            else:
                await self._reply(connection, reply)
        except _Refused as refused:
            self.count(refused.kind)
        except ProtocolError:
            self.count("garbage")
        except trio.BrokenResourceError:
            self.count("gone")

    async def _request(self, connection: Connection, *, spare: bool) -> Request | Oversized:
        limits = self.limits
        reader = RequestReader(
            # Only hooks have bodies: in a spare place the header says all there is to know.
            frame_bytes=0 if spare else limits.frame_bytes,
            header_bytes=limits.header_bytes,
        )
        try:
            said = reader.feed(connection.receive_nowait())
        except trio.WouldBlock:
            pass
        else:
            if not isinstance(said, NeedData):
                return said
        with trio.move_on_after(limits.spare_seconds if spare else limits.read_seconds):
            return await self._rest(connection, reader)
        raise _Refused("slow_read")

    async def _rest(self, connection: Connection, reader: RequestReader) -> Request | Oversized:
        while True:
            if reader.size is not None and reader.size > PIECE_BYTES and not connection.reserved:
                await self._reserve(connection, reader.size)
            data = await connection.receive_some()
            if not data:
                raise _Refused("knock" if reader.empty else "truncated")
            said = reader.feed(data)
            if not isinstance(said, NeedData):
                return said

    async def _reserve(self, connection: Connection, size: int) -> None:
        if self.reserved + size > self.limits.large_bytes:
            await self._reply(connection, NO_REPLY)
            raise _Refused("no_room")
        connection.reserved = size
        self.reserved += size

    async def _reply(self, connection: Connection, reply: bytes) -> None:
        rest = connection.send_nowait(reply)
        if rest:
            with trio.move_on_after(self.limits.write_seconds) as scope:
                await connection.send_all(rest)
            if scope.cancelled_caught:
                raise _Refused("slow_write")

    async def _confirmed(self, connection: Connection, reply: Reply) -> None:
        """Send a reply, and say whether it arrived; no checkpoint may come before the `try`."""
        arrived = False
        try:
            await self._reply(connection, encode_reply(reply.body))
            arrived = await self._is_taken(connection)
        finally:
            self._tell(reply, arrived=arrived)

    async def _is_taken(self, connection: Connection) -> bool:
        """Whether the client took what was sent; who neither hangs up nor goes has it, too.

        A client that goes with bytes unread resets the connection, which Linux tells us.
        """
        with trio.move_on_after(self.limits.write_seconds):
            while await connection.receive_some():
                pass
        return True

    def _tell(self, reply: Reply, *, arrived: bool) -> None:
        try:
            reply.over(arrived)
        except Exception as error:  # noqa: BLE001 - the handler's own defect, as any other of its
            self._count_defect("hook", error)

    async def _answer(
        self, request: Request | Oversized, peer: Peer, *, spare: bool
    ) -> bytes | Reply:
        """The reply's frame. A defect of ours costs this one request and a traceback in the log."""
        if spare and request.kind == "hook":
            raise _Refused("over_limit")
        if isinstance(request, Oversized):
            if request.kind != "hook":
                raise _Refused("garbage")
            self.count("oversized")
        else:
            self.count(request.kind)
        try:
            said = await self._said(request, peer)
            return said if isinstance(said, Reply) else encode_reply(said)
        except Exception as error:  # noqa: BLE001 - whatever the handler does, the client is freed
            return self._apology(request.kind, error)

    async def _said(self, request: Request | Oversized, peer: Peer) -> bytes | Reply:
        if isinstance(request, Oversized):
            self.handler.oversized(request.head[:HEAD_BYTES], request.size, request.started_ns)
            return b""
        match request.kind:
            case "hook":
                return await self.handler.hook(request.body, request.started_ns, peer)
            case "ping":
                return dump({"pid": os.getpid(), "version": __version__})
            case "status":
                return dump({**self.handler.status(), "connections": self._counters()})
            case "reload":
                return dump(await self.handler.reload())
            case "console":
                words = request.body.split()
                read_only, with_token = b"read-only" in words, b"token" in words
                return dump(self.handler.console(read_only=read_only, with_token=with_token))

    def _apology(self, kind: Kind, error: Exception) -> bytes:
        if isinstance(error, UserError) and kind == "reload":
            return encode_reply(dump({"error": str(error)}))
        self._count_defect(kind, error)
        if kind == "hook":
            return NO_REPLY
        return encode_reply(dump({"error": f"{kind} failed; the daemon's log says why"}))

    def _count_defect(self, kind: Kind, error: Exception) -> None:
        self.stats["handler_error"] += 1
        log.error("a request could not be answered", kind=kind, exc_info=error)

    def _counters(self) -> dict[str, JSON]:
        happened: dict[str, JSON] = {kind: times for kind, times in self.stats.items() if times}
        return {"open": self.connected, **happened}
