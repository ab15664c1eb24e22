"""A server that answers whenever it likes, and connections that are lost: each frame is told once.

The server is honest: what it replays is whole, and an acknowledgement says where the journal stood
at some moment since. In which order its frames, its replays and its acknowledgements come, and when
a connection is lost between them, is drawn.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import cast

import trio
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from daemon_room import opened
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.relay.connection import Connection
from kimiaepd.storage.ledger import Ledger
from kimiaepd.web.client import Client
from kimiaepd.web.conversation import Conversation, Seen
from kimiaepd.web.cursors import CURSORS, Cursors
from kimiaepd.web.feed import Feed
from talk_room import EPOCH, SERVER, Line, Rest

STEPS = ("say", "say to all", "take", "acknowledge", "acknowledge late", "lose", "wait")


@define(eq=False)
class Honest:
    """One session's journal, and one client at a time.

    Attributes:
        line: the client's connection.
        journal: how many frames were said.
    """

    line: Line = field(factory=Line)
    journal: int = 0
    _is_subscribed: bool = False
    _taken: int = 0
    _owed: list[tuple[JSON, int]] = field(factory=list)

    def connect(self) -> Line:
        self.line, self._is_subscribed, self._taken, self._owed = Line(), False, 0, []
        return self.line

    def say(self, *, to_all: bool = False) -> None:
        self.journal += 1
        if self._is_subscribed or to_all:
            self._send(self.journal)

    def take(self) -> bool:
        """Take the client's next subscription; whether there was one."""
        asked = self.line.asked
        if self._taken == len(asked):
            return False
        request, self._taken = asked[self._taken], self._taken + 1
        payload = request["payload"]
        assert isinstance(payload, dict)
        names, cursors = payload["session_ids"], payload["cursors"]
        assert isinstance(names, list)
        assert isinstance(cursors, dict)
        if "s1" in names:
            cursor = cursors["s1"]
            assert isinstance(cursor, dict)
            after = cursor["seq"]
            assert isinstance(after, int)
            for seq in range(after + 1, self.journal + 1):
                self._send(seq)
            self._is_subscribed = True
        self._owed.append((request["id"], self.journal))
        return True

    def acknowledge(self, *, as_of_now: bool = False) -> bool:
        """Acknowledge what was taken first; whether there was anything."""
        if not self._owed:
            return False
        request, then = self._owed.pop(0)
        at: JSONObject = {"seq": self.journal if as_of_now else then, "epoch": EPOCH}
        payload: JSONObject = {"accepted": ["s1"], "cursors": {"s1": at}}
        self.line.come({"type": "ack", "id": request, "code": 0, "payload": payload})
        return True

    def does(self, step: str) -> None:
        """One thing that it can do."""
        match step:
            case "say":
                self.say()
            case "say to all":
                self.say(to_all=True)
            case "take":
                self.take()
            case _:
                self.acknowledge(as_of_now=step == "acknowledge late")

    def _send(self, seq: int) -> None:
        kind = "event.session.created" if seq == 1 else f"frame_{seq}"
        payload: JSONObject = {"sessionId": "s1", "agentId": "main"}
        self.line.come(
            {"type": kind, "seq": seq, "session_id": "s1", "epoch": EPOCH, "payload": payload}
        )


async def lived(folder: Path, steps: list[str]) -> tuple[list[JSON], int, int]:
    """What was told of the session, how many gaps there were, and how long the journal is."""
    with opened(folder) as room:
        ledger = Ledger.open(folder / CURSORS)
        feed = Feed(room.book, Cursors(ledger), "companion")
        seen, server, rest = Seen(), Honest(), Rest()

        async def talk(line: Line, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
            with trio.CancelScope() as scope:
                task_status.started(scope)
                connection, client = cast(Connection, line), cast(Client, rest)
                await Conversation(connection, client, feed, SERVER, seen).run()

        async with trio.open_nursery() as nursery:
            scope = await nursery.start(talk, server.connect())
            await trio.sleep(1)
            server.say(to_all=True)  # it begins while we look
            rest.session_is("s1", created_at="2099-01-01T00:00:00.000Z")
            for step in steps:
                if step == "lose":
                    await trio.sleep(0.1)  # what was sent is read
                    scope.cancel()
                    scope = await nursery.start(talk, server.connect())
                elif step == "wait":
                    await trio.sleep(0.1)
                else:
                    server.does(step)
            for _ in range(80):
                await trio.sleep(1)
                while server.take() | server.acknowledge():
                    pass
            nursery.cancel_scope.cancel()
        ledger.close()
        return room.types("s1"), seen.gaps, server.journal


@settings(max_examples=150)
@given(st.lists(st.sampled_from(STEPS), max_size=30))
def test_each_frame_is_told_once_in_order_and_none_is_missed(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        told, gaps, length = trio.run(
            lived, Path(folder), steps, clock=MockClock(autojump_threshold=0)
        )
    first: list[JSON] = ["x.kimi-code.web.event.session.created"]
    assert told == first + [f"x.kimi-code.web.frame_{seq}" for seq in range(2, length + 1)]
    assert gaps == 0
