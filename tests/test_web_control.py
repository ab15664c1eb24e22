"""The two writes: what is told of them, whatever becomes of the session, the server, and us."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import trio
from attrs import define, field
from trio.testing import MockClock

from bridge_room import FULL
from daemon_room import Room, opened
from kimiaepd.commands import Command, Decision
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.web_frames import read_frame
from kimiaepd.storage.ledger import Ledger
from kimiaepd.web.answers import LiveSession
from kimiaepd.web.client import Client, Verdict
from kimiaepd.web.control import WRITE_SECONDS, WebControl
from kimiaepd.web.cursors import CURSORS, Cursors
from kimiaepd.web.errors import NoAnswerError
from kimiaepd.web.feed import Feed

DAY = 86_400


@define(eq=False)
class Server:
    """A server's two writes; `does` is what becomes of one."""

    does: Callable[[], object] = lambda: None
    seconds: float = 0.0
    took: list[str] = field(factory=list)

    async def respond(self, _: LiveSession, approval: str, __: Verdict) -> None:
        await self._take(approval)

    async def abort(self, session: LiveSession) -> bool:
        await self._take(session)
        return True

    async def _take(self, what: str) -> None:
        self.took.append(what)
        await trio.sleep(self.seconds)
        self.does()


@define(eq=False)
class Desk:
    """A feed that somebody can answer through."""

    room: Room
    feed: Feed
    control: WebControl
    server: Server

    async def say(self, kind: str, seq: int, **payload: JSON) -> None:
        raw: JSONObject = {
            "type": kind, "seq": seq, "session_id": "s1", "epoch": "ep_1",
            "payload": {"agentId": "main", **payload},
        }  # fmt: skip
        self.feed.host("s1", "server")
        await self.feed.take(read_frame(raw), "s1", "server")

    async def asked(self) -> str:
        """An approval waits; the id of its request."""
        await self.say("turn.started", 1, turnId=0, origin={"kind": "user"})
        await self.say(
            "event.approval.requested", 2, turn_id=0, approval_id="a1", tool_call_id="c1",
            tool_name="Bash", action="Running", agent_id="main",
        )  # fmt: skip
        return str(self.only("attention.requested")["id"])

    def respond(self, ask: str, command: str = "cmd1") -> Decision | None:
        kind = "control.attention.respond"
        said: JSONObject = {"answer": {"option": "approved"}}
        return _go_on(self.control.respond(Command(command, "desk", kind, "s1", ask, said)))

    def cancel(self) -> Decision | None:
        return _go_on(
            self.control.cancel(Command("cmd1", "desk", "control.cancel", "s1", None, {}))
        )

    def only(self, kind: str) -> JSONObject:
        (event,) = (event for event in self.room.events("s1") if event["type"] == kind)
        return event


def _go_on(decision: Decision | None) -> Decision | None:
    if decision and decision.then:
        decision.then()
    return decision


@asynccontextmanager
async def desk(folder: Path) -> AsyncIterator[Desk]:
    with opened(folder, ceilings=FULL) as room:
        ledger = Ledger.open(folder / CURSORS)
        feed = Feed(room.book, Cursors(ledger), "primary")
        room.book.is_streamed = feed.is_streamed
        control = WebControl(room.book, lambda: True)
        feed.offer, feed.outcome = control.offer, control.outcome
        server = Server()
        try:
            async with trio.open_nursery() as nursery:
                control.use(nursery, lambda _: cast(Client, server))
                yield Desk(room, feed, control, server)
                nursery.cancel_scope.cancel()
        finally:
            ledger.close()


async def test_what_was_asked_on_friday_is_answered_on_monday(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with desk(tmp_path) as room:
        ask = await room.asked()
        await trio.sleep(2.5 * DAY)
        room.room.book.let_go_idle(trio.current_time())
        taken = room.respond(ask)
        assert taken
        assert taken.reason is None
        await room.say("event.approval.resolved", 3, approval_id="a1", decision="approved")
        assert room.only("attention.answered")["cause"] == "cmd1"


async def test_a_run_that_was_silent_for_long_is_cancelled(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with desk(tmp_path) as room:
        await room.asked()
        await trio.sleep(2.5 * DAY)
        room.room.book.let_go_idle(trio.current_time())
        taken = room.cancel()
        assert taken
        assert taken.reason is None
        await room.say("turn.ended", 3, turnId=0, reason="cancelled")
        assert room.only("run.cancelled")["cause"] == "cmd1"


async def test_a_session_that_leaves_memory_while_a_write_is_under_way_goes_on_in_its_order(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    def lost() -> None:
        raise NoAnswerError("it hung up")

    async with desk(tmp_path) as room:
        ask = await room.asked()
        room.server.seconds, room.server.does = WRITE_SECONDS / 2, lost
        room.respond(ask)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiting, room)
            await trio.sleep(1)
            room.room.book.let_go_idle(trio.current_time() + 2 * DAY)
            await room.room.hook("Notification", {"notification_type": "x"}, session="s1")
        places = [event["seq"] for event in room.room.events("s1")]
        assert places == list(range(len(places)))
        assert room.only("error.raised")["cause"] == "cmd1"


async def waiting(room: Desk) -> None:
    """The outcome comes before the write has its answer."""
    await room.say("event.approval.resolved", 3, approval_id="a1", decision="approved")


async def test_a_write_that_fails_by_a_defect_of_ours_is_said_and_ends_nothing_else(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    async with desk(tmp_path) as room:
        ask = await room.asked()
        room.server.does = broken
        room.respond(ask)
        await trio.sleep(1)
        error = room.only("error.raised")
        assert (error["cause"], error["data"]) == ("cmd1", {"code": "web-failed", "fatal": False})
        room.server.does = lambda: None
        assert room.respond(ask, "cmd2") is not None
        await trio.sleep(1)
        assert room.server.took == ["a1", "a1"]
