"""The feed: what becomes of the frames of all servers, whichever connection they came by.

Rules:
- One session has one authority for runs, calls and asks. In companion it is the hooks, and every
  frame is visibility. In primary it is the stream, for as long as some server has the session
  subscribed: `Machine.is_streamed` says so to the hooks. A session of a terminal stays with them,
  and so does one whose server cannot be listened to for long.
- A frame's events are logged at once, as of the moment at which the server said it; the cursor
  moves on after that.
- What was missed is one `x.kimi-code.web.gap` that counts it, and the stream goes on from there.
- A server that is gone ends what the stream began in its sessions, and where it was in the middle
  of a turn, what hooks began too. One that only lost its connection does not: its journal tells the
  rest. What hooks began elsewhere, such as in a terminal that went on with the session, goes on.

What is remembered of a session's earlier frames (`mapping.web_memory`) is content, and lives here
alone: after a restart of the daemon, or beyond `MEMORIES`, it is made again of what the session has
open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import structlog
import trio
from attrs import define, evolve, field

from kimiaepd.lifecycle.record import is_of_stream
from kimiaepd.lifecycle.state import NOW_NS, Hook, State, remember
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

_OUTCOMES = ("turn.ended", "event.approval.resolved")
_ENDS = (*_OUTCOMES, "tool.result", "event.question.answered", "event.question.dismissed")

MEMORIES = 128
"""Sessions in the middle of a call or an ask of which it is remembered; 7 MB each at worst."""

Outcome: TypeAlias = Callable[[str, Mapped], Awaitable[str | None]]
"""The command of ours that a session's frame is the outcome of; it may wait for the answer to our
write."""


@define(eq=False)
class _Hosted:
    """A session that is subscribed somewhere.

    Attributes:
        servers: where, and whether that one can be listened to.
        speaker: the one whose frame came last: it runs the session.
        is_busy: whether the speaker was last heard of in the middle of a turn; None: not known.
    """

    servers: dict[str, bool] = field(factory=dict)
    speaker: str | None = None
    is_busy: bool | None = None

    def note(self, frame: Frame, server: str) -> None:
        """Take in who speaks, and whether a turn runs there."""
        self.speaker = server
        if frame.agent != MAIN:
            return
        if frame.type.startswith("turn."):
            self.is_busy = frame.type != "turn.ended"
        elif frame.type == "event.session.work_changed":
            self.is_busy = frame.flag("main_turn_active")


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
    outcome: Outcome | None = None
    offer: Callable[[Draft], Draft] = lambda draft: draft
    frames: int = 0
    gaps: int = 0
    _hosted: dict[str, _Hosted] = field(factory=dict)
    _memories: dict[str, Memory] = field(factory=dict)

    @property
    def is_primary(self) -> bool:
        """Whether the stream tells of runs, calls and asks itself."""
        return self.mode == "primary"

    # --- who tells of a session ---

    def is_streamed(self, session: str) -> bool:
        """Whether a session's runs, calls and asks are the stream's to tell."""
        hosted = self._hosted.get(session)
        return self.is_primary and hosted is not None and any(hosted.servers.values())

    def host(self, session: str, server: str, *, is_busy: bool = False) -> None:
        """A server tells of this session from now on; `is_busy`: a turn runs in it there."""
        hosted = self._hosted.setdefault(session, _Hosted())
        hosted.servers[server] = True
        if is_busy and hosted.is_busy is None:
            hosted.speaker, hosted.is_busy = server, True
        self._tell_hooks(session)

    def speaker(self, session: str) -> str | None:
        """The server that runs a session: whose frames show it, or the only one that has it."""
        hosted = self._hosted.get(session)
        if hosted is None or hosted.speaker or len(hosted.servers) > 1:
            return hosted.speaker if hosted else None
        return next(iter(hosted.servers), None)

    def hosted_by(self, server: str) -> list[str]:
        """The sessions that a server tells of, or told of by its last connection."""
        return [name for name, hosted in self._hosted.items() if server in hosted.servers]

    def run(self, session: str) -> str | None:
        """The run that is open in a session."""
        found = self.book.with_open(session, trio.current_time())
        return found.state.run.id if found and found.state.run else None

    def away(self, server: str) -> None:
        """There was no connection to a server for long: until there is, hooks tell of its sessions.

        It ends nothing.
        """
        for name, hosted in self._hosted.items():
            if hosted.servers.get(server):
                hosted.servers[server] = False
                self._tell_hooks(name)

    def gone(self, server: str, *, is_over: bool = True) -> None:
        """A server is no more: what was open in its sessions is over, and hooks tell of them.

        But where it is found elsewhere (not `is_over`): then it goes on there.
        """
        for name in list(self._hosted):
            self.left(name, server, is_over=is_over)

    def left(self, session: str, server: str, *, is_over: bool = True) -> None:
        """A server tells of this session no more: what it had open there is over."""
        hosted = self._hosted.get(session)
        if hosted is None or hosted.servers.pop(server, None) is None:
            return
        was_speaker = hosted.speaker == server
        is_busy = was_speaker and hosted.is_busy is True
        is_last = not hosted.servers
        if was_speaker:
            hosted.speaker = hosted.is_busy = None
        if is_over and (was_speaker or (is_last and hosted.speaker is None)):
            self._end(session, whoever_began=is_busy)
        if is_last:
            del self._hosted[session]
            self._memories.pop(session, None)
        self._tell_hooks(session)

    def forget(self) -> None:
        """Nobody watches any more: hooks tell of every session. It ends nothing."""
        names = list(self._hosted)
        self._hosted.clear()
        self._memories.clear()
        for name in names:
            self._tell_hooks(name)

    def end_orphans(self) -> None:
        """End what the stream began in sessions that no server has: theirs died while we did."""
        records = self.book.ledger.items(is_open=True)
        kept = [name for name, record in records if is_of_stream(record)]
        for name in {*kept, *(session.id for session in self.book)}:
            if name not in self._hosted:
                self._end(name, whoever_began=False)

    def _end(self, name: str, *, whoever_began: bool) -> None:
        session = self.book.with_open(name, trio.current_time())
        if session and (whoever_began or session.state.is_of_stream):
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
        known = self.cursors.get(journal)
        if frame.epoch is None and known:
            frame = evolve(frame, epoch=known.epoch)
        # It may wait, so nothing of the session is looked at before.
        command = await self._command(frame)
        self.frames += 1
        session = self.book.get(frame.session, trio.current_time())
        session.seen_ns = self.book.emitter.clock_ns()
        hosted = self._hosted.get(frame.session)
        if hosted:
            hosted.note(frame, server)
        # What it began in primary it also ends, where the mode is another since.
        is_of_stream = session.state.is_of_stream and frame.type in _ENDS
        if hosted and (self.is_primary or is_of_stream):
            self._told(session, frame, command)
        elif draft := web.companion(frame):
            self._show(session, draft, frame.said_ns)
        self.book.keep(session)
        self.pass_over(frame, journal)

    def pass_over(self, frame: Frame, journal: str) -> None:
        """Move the cursor on beyond a frame."""
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

    def idle(self, name: str, run: str) -> None:
        """No turn runs in a session, so that this run, whose end was missed, is over."""
        session = self.book.with_open(name, trio.current_time())
        if session and session.state.run and session.state.run.id == run:
            session.machine.stream_idle(trio.current_time())
            self.book.keep(session)

    async def _command(self, frame: Frame) -> str | None:
        is_one = frame.type in _OUTCOMES and self.is_streamed(frame.session)
        if self.outcome is None or not is_one:
            return None
        return await self.outcome(frame.session, web.primary(frame, Memory()))

    def _told(self, session: Session, frame: Frame, command: str | None) -> None:
        memory = self._memories.get(session.id) or remembered(session.state)
        mapped = web.primary(frame, memory)
        if mapped.memory == Memory():
            self._memories.pop(session.id, None)
        else:
            remember(self._memories, session.id, mapped.memory, MEMORIES)
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
