"""The feed: what becomes of the frames of all servers, whichever connection they came by.

Rules:
- One session has one authority for runs, calls and asks. In companion it is the hooks, and every
  frame is visibility. In primary it is the stream, for as long as some server has the session
  subscribed: `Machine.is_streamed` says so to the hooks. A session of a terminal stays with them.
- A frame's events are logged at once, as of the moment at which the server said it; the cursor
  moves on after that.
- What was missed is one `x.kimi-code.web.gap` that counts it, and the stream goes on from there.
- A server that is gone ends what was open in the sessions that it spoke for. One that only lost its
  connection does not: its journal tells the rest.

What is remembered of a session's earlier frames (`mapping.web_memory`) is content, and lives here
alone: after a restart of the daemon it is made again of what the session has open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import structlog
import trio
from attrs import define, evolve, field

from kimiaepd.lifecycle.state import NOW_NS, Hook, State
from kimiaepd.lifecycle.stream import Said
from kimiaepd.mapping import web
from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.mapping.own_levels import WEB_GAP
from kimiaepd.mapping.payloads import HookPayload
from kimiaepd.mapping.web import Mapped
from kimiaepd.mapping.web_frames import MAIN, Frame
from kimiaepd.mapping.web_memory import Ask, Memory
from kimiaepd.sessions import Session, SessionBook
from kimiaepd.settings import WebMode
from kimiaepd.web.cursors import Cursor, Cursors

log: structlog.stdlib.BoundLogger = structlog.get_logger()

LATE_SECONDS = 1.0
"""From here on a frame is one that is replayed, and not one that took its time."""

Outcome: TypeAlias = Callable[[Session, Mapped], Awaitable[str | None]]
"""The command of ours that a frame is the outcome of; it may wait for the answer to our write."""


async def _nobody_s(_: Session, __: Mapped) -> str | None:
    return None


@define(eq=False)
class _Hosted:
    """A session that is subscribed somewhere.

    Attributes:
        servers: where.
        speaker: the one whose frame came last: it runs the session.
        memory: what its next frame is mapped with; None until one came.
    """

    servers: set[str] = field(factory=set)
    speaker: str | None = None
    memory: Memory | None = None


@define(eq=False)
class Feed:
    """All sessions of one home, as its servers tell of them.

    Attributes:
        book: the sessions.
        cursors: how far each was read.
        mode: "companion" or "primary".
        outcome: see `Outcome`.
        offer: makes of an approval's request one that can be answered, where it can.
        frames: how many were taken in.
        gaps: how often something was missed.
    """

    book: SessionBook
    cursors: Cursors
    mode: WebMode
    outcome: Outcome = _nobody_s
    offer: Callable[[Draft], Draft] = lambda draft: draft
    frames: int = 0
    gaps: int = 0
    _hosted: dict[str, _Hosted] = field(factory=dict)

    @property
    def is_primary(self) -> bool:
        """Whether the stream tells of runs, calls and asks itself."""
        return self.mode == "primary"

    # --- who tells of a session ---

    def is_streamed(self, session: str) -> bool:
        """Whether a session's runs, calls and asks are the stream's to tell."""
        return self.is_primary and session in self._hosted

    def host(self, session: str, server: str) -> None:
        """A server tells of this session from now on."""
        self._hosted.setdefault(session, _Hosted()).servers.add(server)
        self._tell_hooks(session)

    def speaker(self, session: str) -> str | None:
        """The server that runs a session, as far as its frames show."""
        hosted = self._hosted.get(session)
        return hosted.speaker if hosted else None

    def hosted_by(self, server: str) -> int:
        """How many sessions a server tells of."""
        return sum(server in one.servers for one in self._hosted.values())

    def gone(self, server: str) -> None:
        """A server is no more: what was open in its sessions is over, and hooks tell of them."""
        for name, hosted in list(self._hosted.items()):
            if server not in hosted.servers:
                continue
            hosted.servers.discard(server)
            if hosted.speaker == server:
                hosted.speaker = None
                self._end(name)
            if not hosted.servers:
                del self._hosted[name]
                self._tell_hooks(name)

    def end_orphans(self) -> None:
        """End what the stream began in sessions that no server has: theirs died while we did."""
        for session in list(self.book):
            begun = (session.state.run, *session.state.calls.values(), *session.state.asks.values())
            if session.id not in self._hosted and any(one and one.by_stream for one in begun):
                self._end(session.id)

    def _end(self, name: str) -> None:
        session = self.book.awake(name)
        if session and session.state.is_open:
            session.machine.server_gone(trio.current_time())
            self.book.keep(session)

    def _tell_hooks(self, name: str) -> None:
        if session := self.book.awake(name):
            session.machine.is_streamed = self.is_streamed(name)

    # --- frames ---

    async def take(self, frame: Frame, journal: str, server: str) -> None:
        """Take one durable frame in, which is new.

        Args:
            frame: what it says.
            journal: the session that its envelope names: whose cursor it moves.
            server: who said it.
        """
        self.frames += 1
        known = self.cursors.get(journal)
        if frame.epoch is None and known:
            frame = evolve(frame, epoch=known.epoch)
        session = self.book.get(frame.session, trio.current_time())
        session.seen_ns = self.book.emitter.clock_ns()
        hosted = self._hosted.get(frame.session)
        if hosted:
            hosted.speaker = server
        if self.is_primary and hosted:
            await self._told(session, frame, hosted)
        elif draft := web.companion(frame):
            self._show(session, draft, frame.said_ns)
        self.book.keep(session)
        if frame.seq is not None:
            self.cursors.put(journal, Cursor(frame.seq, frame.epoch))

    def gap(self, name: str, missed: int, reason: str) -> None:
        """Frames of a session were missed: say how many, and why."""
        self.gaps += 1
        log.warning("frames of kimi web were missed", session=name, count=missed, why=reason)
        facts: JSONObject = {"count": max(0, missed), "reason": reason}
        fields = tuple(Field((key,), Capture.METADATA, value) for key, value in facts.items())
        session = self.book.get(name, trio.current_time())
        self._show(session, Draft(WEB_GAP, None, fields, "warning"), None)
        self.book.keep(session)

    def idle(self, name: str) -> None:
        """No turn runs in a session, so that one whose end was missed is over."""
        session = self.book.get(name, trio.current_time(), is_heard=False)
        session.machine.stream_idle(trio.current_time())
        self.book.keep(session)

    async def _told(self, session: Session, frame: Frame, hosted: _Hosted) -> None:
        memory = hosted.memory or remembered(session.state)
        mapped = web.primary(frame, memory)
        command = await self.outcome(session, mapped)
        hosted.memory = mapped.memory
        drafts = tuple(self._offered(draft) for draft in mapped.drafts)
        said = Said(
            evolve(mapped, drafts=drafts),
            web.visibility(frame),
            self._moment(frame),
            NOW_NS if frame.said_ns is None else frame.said_ns,
            command,
        )
        session.machine.frame(said)

    def _moment(self, frame: Frame) -> float:
        """When it was said, by the monotonic clock: how long a turn took that is told later."""
        now = trio.current_time()
        if frame.said_ns is None:
            return now
        late = (self.book.emitter.clock_ns() - frame.said_ns) / 1e9
        return now - late if late >= LATE_SECONDS else now

    def _offered(self, draft: Draft) -> Draft:
        return self.offer(draft) if draft.type == "attention.requested" else draft

    def _show(self, session: Session, draft: Draft, said_ns: int | None) -> None:
        when = NOW_NS if said_ns is None else said_ns
        hook = Hook(HookPayload(), draft, trio.current_time(), when)
        run = session.state.run
        self.book.emitter.emit(session.stream, draft, hook, run=run.id if run else None)


def remembered(state: State) -> Memory:
    """What a session's next frame is mapped with, as far as the session itself remembers.

    The questions of a form are lost: an answer to one is then free text. So is what was refused:
    the end of such a call is then a failure.
    """
    memory = Memory()
    for call in state.calls.values():
        memory = memory.with_call(MAIN, call.id, call.name)
    for ask in state.asks.values():
        if ask.by_stream:
            memory = memory.with_ask(ask.key, Ask(ask.call_id, ask.agent_id))
    return memory
