"""One connection to a server of `kimi web`, without a network: a test says what comes, and when."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import trio
from attrs import define, field

from daemon_room import Room, opened
from kimiaepd.mapping.capture import Ceilings
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.relay.connection import Connection
from kimiaepd.settings import WebMode
from kimiaepd.storage.ledger import Ledger
from kimiaepd.web.answers import Session
from kimiaepd.web.client import Client
from kimiaepd.web.conversation import Conversation, Seen
from kimiaepd.web.cursors import CURSORS, Cursors
from kimiaepd.web.errors import Refusal, RefusedError, WebError
from kimiaepd.web.feed import Feed

EPOCH = "ep_1"
SERVER = "server"


@define(eq=False)
class Line:
    """A connection that a test is the other end of.

    Attributes:
        said: what we sent, in order.
        is_stuck: a send waits for as long as this is set.
    """

    said: list[JSONObject] = field(factory=list)
    is_stuck: bool = False
    _come: tuple[trio.MemorySendChannel[str], trio.MemoryReceiveChannel[str]] = field(
        factory=lambda: trio.open_memory_channel[str](100_000)
    )

    async def send(self, text: str) -> None:
        self.said.append(json.loads(text))
        while self.is_stuck:  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.1)

    async def receive(self) -> str:
        return await self._come[1].receive()

    def come(self, message: JSONObject) -> None:
        """The server says something."""
        self._come[0].send_nowait(json.dumps(message))

    @property
    def asked(self) -> list[JSONObject]:
        """The subscriptions that went out."""
        return [one for one in self.said if one["type"] == "subscribe"]


@define(eq=False)
class Rest:
    """The REST calls of that server.

    Attributes:
        listed: what a list gives.
        slow: seconds that an answer about one session takes.
        error: what a list raises.
    """

    listed: dict[str, Session] = field(factory=dict)
    slow: float = 0.0
    error: WebError | None = None

    def session_is(self, name: str, **what: JSON) -> None:
        self.listed[name] = Session(name, **what)  # type: ignore[arg-type]  # a test's own

    async def healthz(self) -> None:
        await trio.lowlevel.checkpoint()

    async def sessions(self, most: int = 500) -> tuple[Session, ...]:
        await trio.lowlevel.checkpoint()
        if self.error:
            raise self.error
        return tuple(one for one in self.listed.values() if not one.archived)[:most]

    async def session(self, name: str) -> Session:
        await trio.sleep(self.slow)
        if name not in self.listed:
            raise RefusedError(Refusal.NO_SESSION)
        return self.listed[name]


@define(eq=False)
class TalkRoom:
    """A conversation under way."""

    room: Room
    feed: Feed
    line: Line
    rest: Rest
    talk: Conversation

    def frame(self, kind: str, seq: int, session: str = "s1", **payload: JSON) -> None:
        """A durable frame comes."""
        said: JSONObject = {"agentId": "main", "sessionId": session, **payload}
        self.line.come(
            {"type": kind, "seq": seq, "session_id": session, "epoch": EPOCH, "payload": said}
        )

    def turn(self, seq: int, number: int = 0, session: str = "s1") -> None:
        self.frame("turn.started", seq, session, turnId=number, origin={"kind": "user"})

    def end(self, seq: int, number: int = 0, session: str = "s1") -> None:
        self.frame("turn.ended", seq, session, turnId=number, reason="completed")

    def ack(self, request: JSON, *names: str, seq: int = 0, missing: tuple[str, ...] = ()) -> None:
        """The server says who is subscribed, and where their journals stand."""
        at: JSONObject = {name: {"seq": seq, "epoch": EPOCH} for name in names}
        payload: JSONObject = {
            "accepted": list(names), "not_found": list(missing), "resync_required": [],
            "cursors": at,
        }  # fmt: skip
        self.line.come({"type": "ack", "id": request, "code": 0, "payload": payload})

    async def asked(self, name: str, count: int = 1) -> JSONObject:
        """Wait until a session is asked for, for the so many-th time; gives the subscription."""
        with trio.fail_after(120):
            while True:
                found = [one for one in self.line.asked if name in _names(one)]
                if len(found) >= count:
                    return found[count - 1]
                await trio.sleep(0.1)

    async def asked_any(self) -> list[JSONObject]:
        """The subscriptions that went out, once there is one."""
        with trio.fail_after(60):
            while not self.line.asked:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)
        return self.line.asked

    async def subscribed(self, name: str = "s1", seq: int = 0) -> None:
        """Let a session be subscribed."""
        self.ack((await self.asked(name))["id"], name, seq=seq)
        await self.settled()

    async def settled(self) -> None:
        """Let everything be done that needs no time."""
        await trio.sleep(0.05)

    def after(self, request: JSONObject, name: str = "s1") -> JSON:
        """The place after which a subscription wants a session."""
        payload = request["payload"]
        assert isinstance(payload, dict)
        cursors = payload["cursors"]
        assert isinstance(cursors, dict)
        cursor = cursors.get(name)
        return cursor["seq"] if isinstance(cursor, dict) else None

    def core(self, session: str = "s1") -> list[JSON]:
        return [kind for kind in self.room.types(session) if not str(kind).startswith("x.")]


def _names(request: JSONObject) -> list[JSON]:
    payload = request["payload"]
    assert isinstance(payload, dict)
    names = payload["session_ids"]
    assert isinstance(names, list)
    return names


@asynccontextmanager
async def talking(
    folder: Path, *names: str, mode: WebMode = "primary", rest: Rest | None = None
) -> AsyncIterator[TalkRoom]:
    """A conversation until the block ends, with a server that lists these sessions."""
    with opened(folder, ceilings=Ceilings(Capture.FULL, {})) as room:
        ledger = Ledger.open(folder / CURSORS)
        feed = Feed(room.book, Cursors(ledger), mode)
        room.book.is_streamed = feed.is_streamed
        line, rest = Line(), rest or Rest()
        for name in names:
            rest.session_is(name)
        talk = Conversation(cast(Connection, line), cast(Client, rest), feed, SERVER, Seen())
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk.run)
                yield TalkRoom(room, feed, line, rest, talk)
                nursery.cancel_scope.cancel()
        finally:
            ledger.close()
