"""A gate on real ground: the observer's room of `daemon_room`, shims that can go, and commands.

The relay is the only thing made up: `GateRoom.command` is what it would pass on, and `acks` what it
would get back. Everything is in virtual time, but the wall clock, which a test moves by itself.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from aep_sdk.projection import project_state
from attrs import define, field
from trio.testing import wait_all_tasks_blocked

from daemon_room import DEFAULT, Room, opened
from judge import judge
from kimiaepd.commands import Command, Commands
from kimiaepd.gate.gate import RESPOND, Gate
from kimiaepd.hook_socket.conversation import Reply
from kimiaepd.hook_socket.peer import Peer
from kimiaepd.instruct import INSTRUCT, Instructions
from kimiaepd.mapping.capture import Ceilings
from kimiaepd.mapping.event import Draft
from kimiaepd.mapping.json_value import JSON, JSONObject, dump, parse
from kimiaepd.settings import GateSettings

HELD = GateSettings(enabled=True)


@define(eq=False)
class Shim:
    """One hook's program: what it was told, and whether it is still there.

    Attributes:
        is_deaf: it goes before it has read an instruction; nothing then arrives.
    """

    is_deaf: bool = False
    replies: list[bytes] = field(factory=list)
    _left: trio.Event = field(factory=trio.Event)

    @property
    def waits(self) -> bool:
        """Whether it has no reply yet."""
        return not self.replies

    @property
    def reply(self) -> bytes:
        """What it was told."""
        (said,) = self.replies
        return said

    def leave(self) -> None:
        """The vendor kills it."""
        self._left.set()

    async def receive_some(self) -> bytes:
        """The end of its connection, once it left."""
        await self._left.wait()
        return b""


@define(eq=False)
class GateRoom:
    """One life of a daemon's inside, with a gate and instructions."""

    room: Room
    gate: Gate
    nursery: trio.Nursery
    instructions: Instructions = field(init=False)
    commands: Commands = field(init=False)
    acks: list[JSONObject] = field(factory=list)
    again: list[bytes] = field(factory=list)
    told: list[JSONObject] = field(factory=list)
    reachable: bool = True
    wall_ahead_ns: int = 0
    _numbers: Iterator[int] = field(factory=itertools.count)

    def __attrs_post_init__(self) -> None:
        self.gate.is_reachable = lambda: self.reachable
        self.gate.notify = self.told.append
        self.room.observer.gate = self.gate
        self.instructions = Instructions(self.room.book)
        self.room.observer.instructions = self.instructions
        self.room.book.emitter.clock_ns = lambda: time.time_ns() + self.wall_ahead_ns
        self.commands = Commands(
            is_known=self.room.book.is_known,
            acknowledge=self._acknowledge,
            decline=self._acknowledge,
            again=self.again.append,
            is_authenticated=lambda: True,
            came=self.gate.somebody_came,
            clock=lambda: float("inf"),
        )
        self.commands.register(RESPOND, self.gate.respond)
        self.commands.register(INSTRUCT, self.instructions.take)

    async def call(
        self,
        call_id: str | None = "c1",
        command: str = "ls",
        *,
        session: str = "s",
        tool: str = "Bash",
        started_ns: int | None = None,
    ) -> Shim:
        """A tool call whose hook waits for its reply, as far as it does at once."""
        given: JSONObject = {"command": command}
        payload: JSONObject = {"tool_name": tool, "tool_input": given, "cwd": "/w"}
        if call_id is not None:
            payload["tool_call_id"] = call_id
        return await self.start("PreToolUse", payload, session=session, started_ns=started_ns)

    async def start(
        self,
        event: str,
        payload: JSONObject,
        *,
        session: str = "s",
        started_ns: int | None = None,
        is_deaf: bool = False,
    ) -> Shim:
        """Any hook, in a task of its own."""
        shim = Shim(is_deaf)
        whole: JSONObject = {"hook_event_name": event, "session_id": session, **payload}
        self.nursery.start_soon(self._run, shim, dump(whole), started_ns or time.time_ns())
        await wait_all_tasks_blocked()
        return shim

    async def _run(self, shim: Shim, body: bytes, started_ns: int) -> None:
        said = await self.room.observer.hook(body, started_ns, Peer(shim))
        if isinstance(said, Reply):
            shim.replies.append(said.body)
            said.over(not shim.is_deaf)
        else:
            shim.replies.append(said)

    async def answer(
        self, ask: str, answer: JSON, *, session: str = "s", command: str | None = None
    ) -> JSONObject:
        """Send an answer; its acknowledgement, once everything that comes of it has come."""
        self.command(ask, {"answer": answer}, session=session, command=command)
        ack = self.acks[-1]
        await wait_all_tasks_blocked()
        return ack

    def command(
        self, ask: str, data: JSONObject, *, session: str = "s", command: str | None = None
    ) -> None:
        """What a relay passes on."""
        self.commands.take(
            {
                "id": command or f"command-{next(self._numbers)}",
                "source": "aep://phone/agent/thumb",
                "type": RESPOND,
                "session": session,
                "subject": ask,
                "data": data,
            }
        )

    def instruct(self, text: str, *, session: str = "s", command: str) -> JSONObject:
        """Send an instruction; its acknowledgement."""
        self.commands.take(
            {
                "id": command,
                "source": "aep://phone/agent/thumb",
                "type": INSTRUCT,
                "session": session,
                "data": {"text": text},
            }
        )
        return self.acks[-1]

    def open_ask(self, session: str = "s") -> str:
        """The id of the ask that is held, at any capture level."""
        (requested,) = self.room.book.get(session, trio.current_time()).state.holds
        return requested

    def asks(self, session: str = "s") -> list[JSONObject]:
        """The gate's requests in a session's log."""
        return [
            event
            for event in self.room.events(session)
            if event["type"] == "attention.requested" and "expires_at" in str(event["data"])
        ]

    def ask(self, session: str = "s") -> str:
        """The id of the last one."""
        return str(self.asks(session)[-1]["id"])

    def _acknowledge(self, command: Command, draft: Draft) -> bytes:
        book = self.room.book
        if not book.is_known(command.session):
            line = dump({"type": draft.type, "cause": command.id})
        else:
            session = book.get(command.session, trio.current_time(), is_heard=False)
            said, _ = book.emitter.say(session.stream, draft, cause=command.id)
            book.keep(session)
            line = said.rstrip(b"\n")
        ack = parse(line)
        assert isinstance(ack, dict)
        self.acks.append(ack)
        return line


@asynccontextmanager
async def gated(
    folder: Path,
    terms: GateSettings = HELD,
    *,
    ceilings: Ceilings = DEFAULT,
    epoch: int = 1,
    idle_seconds: float = 86_400.0,
) -> AsyncIterator[GateRoom]:
    """A room with a gate; what is held at the end of the block is cancelled."""
    with opened(folder, ceilings=ceilings, epoch=epoch, idle_seconds=idle_seconds) as room:
        gate = Gate(room.book, terms, is_reachable=lambda: True)
        async with trio.open_nursery() as nursery:
            yield GateRoom(room, gate, nursery)
            nursery.cancel_scope.cancel()


def is_settled(room: GateRoom, session: str = "s") -> None:
    """Nothing is held, no ask is open, and every judge accepts the log."""
    events = room.room.events(session)
    judge(events)
    projected = project_state(events)
    assert projected["violations"] == []
    assert [one["pending"] for one in projected["sessions"]] == [[]]
    assert room.gate.status()["held"] == 0
