"""Sessions: each one's identity, its place in its own order, its lifecycles; and the book of them.

Rules:
- A session is in memory from its first hook until it has been quiet for `idle_seconds`, or until
  more than `MOST` are; then its record and its log bring it back with its next hook.
- Bringing back: the record from the ledger, and what the log knows beyond it; where the log cannot
  be read, the record has to do. What waited in a daemon that died is decided as if its time were
  up. A start brings back what was open and not quiet for long.
- A session is live (its log stays) while it is in memory and has not ended, or as long by its
  record; something open in it keeps it live for `OPEN_SECONDS` of silence, because a kimi that was
  killed never says that its session is over.
- `(epoch, seq)` is never used twice: the next one is above both the ledger's and the log's last.

What a hook means in a session is `lifecycle`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import structlog
from attrs import define, field

from kimiaepd.emitter import Emitter, Stream, new_ulid, source_of
from kimiaepd.lifecycle.fold import TAIL, fold, refill
from kimiaepd.lifecycle.machine import Machine
from kimiaepd.lifecycle.record import from_record, to_record
from kimiaepd.lifecycle.state import State
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.storage.journal import Journal, JournalError, Position
from kimiaepd.storage.ledger import Ledger, LedgerError
from kimiaepd.storage.log_reader import as_object, position_from, position_of

log: structlog.stdlib.BoundLogger = structlog.get_logger()

MOST = 2000
"""Sessions in memory at most; an ordinary one is a few kB, the worst 1.5 MB."""

HEARTBEAT_SECONDS = 60.0
OPEN_SECONDS = 7 * 86_400.0
"""A session that was silent for a week is over, whatever was open in it."""

STALE_SECONDS = 2 * HEARTBEAT_SECONDS + 5.0
"""Two missed heartbeats and some grace (0.42.0 and later send one a minute)."""

_SIGNS_OF_LIFE = ("SessionStart", "UserPromptSubmit", "SessionHeartbeat")


@define(eq=False)
class Session:
    """One session in memory.

    Attributes:
        id: the vendor's id of it, "unknown" where a hook has none.
        stream: where it stands in its order.
        machine: its lifecycles.
        seen_at: when its last hook came (monotonic seconds).
        seen_ns: the same by the wall clock, for the time after a restart.
        beats: whether it has ever sent a heartbeat, so that silence means something.
        is_over: whether its last SessionEnd is the last that it said; it may be resumed.
    """

    id: str
    stream: Stream
    machine: Machine
    seen_at: float
    seen_ns: int = 0
    beats: bool = False
    is_over: bool = False

    @property
    def state(self) -> State:
        """What is open in it."""
        return self.machine.state

    def is_stale(self, now: float) -> bool:
        """Whether it has missed two heartbeats while it should still send them."""
        quiet = now - self.seen_at > STALE_SECONDS
        return self.beats and quiet and not self.is_over

    def heard(self, event: str, wall_ns: int) -> None:
        """Note what a hook says of the session's life, whatever else it means."""
        self.seen_ns = wall_ns
        self.beats = self.beats or event == "SessionHeartbeat"
        if event == "SessionEnd":
            self.is_over = True
        elif event in _SIGNS_OF_LIFE:
            self.is_over = False

    def record(self) -> JSONObject:
        """What outlives the process: where it stands, and what is open."""
        return {
            "at": [self.stream.epoch, self.stream.next_seq - 1],
            "open": self.state.is_open,
            "seen_s": self.seen_ns // 10**9,
            "beats": self.beats,
            "over": self.is_over,
            "lost": self.stream.lost,
            "state": to_record(self.state),
        }


@define
class SessionBook:
    """All sessions in memory, and the way to bring back those that are not.

    Attributes:
        is_streamed: whether the stream of `kimi web` tells of a session's runs, calls and asks.
    """

    emitter: Emitter
    journal: Journal
    ledger: Ledger
    host: str
    epoch: int
    idle_seconds: float
    is_streamed: Callable[[str], bool] = lambda _: False
    _sessions: dict[str, Session] = field(factory=dict)
    _dozing: dict[str, int] = field(factory=dict)
    """Sessions that nothing was open in at the start, and that may go on: when they were heard."""
    _spent: dict[str, int] = field(factory=dict)
    """The next seq of sessions that are not in memory, where one was spent in this epoch."""
    _duplicates_before: int = 0

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: str, now: float, *, is_heard: bool = True) -> Session:
        """The session of this id, brought back or begun.

        Args:
            session_id: the vendor's id of it.
            now: monotonic seconds.
            is_heard: it counts as seen now; not so where nobody but us speaks of it.
        """
        self._dozing.pop(session_id, None)
        session = self._sessions.get(session_id)
        if session and not is_heard:
            return session
        session = self._sessions.pop(session_id, None) or self._bring_back(session_id, now)
        self._sessions[session_id] = session  # last in, so the first is the one seen longest ago
        session.seen_at = now
        while len(self._sessions) > MOST:
            self._let_go(next(iter(self)), now)
        return session

    def awake(self, session_id: str) -> Session | None:
        """The session of this id, where it is in memory."""
        return self._sessions.get(session_id)

    def with_open(self, session_id: str, now: float) -> Session | None:
        """The session of this id, where something is open in it; also if it has left memory.

        It does not count as seen.
        """
        session = self._sessions.get(session_id)
        if session is None and (self.ledger.get(session_id) or {}).get("open"):
            session = self.get(session_id, now, is_heard=False)
        return session if session and session.state.is_open else None

    def keep(self, session: Session) -> None:
        """Write the session's record: after each hook that was taken in."""
        if session.stream.next_seq or session.stream.lost:
            self._put(session.id, session.record())

    def bring_back(self, now: float) -> None:
        """After a start: what was open, so that what waited is decided and a status shows it."""
        for session_id, record in sorted(self.ledger.items(), key=lambda item: _seen_s(item[1])):
            quiet = self._quiet_seconds(record)
            waits = not _state_of(record).keys().isdisjoint(("waits", "holds", "instructions"))
            if waits or (record.get("open") and quiet <= self.idle_seconds):
                self.get(session_id, now).seen_at = now - quiet
            elif not record.get("over") and quiet <= self.idle_seconds:
                self._dozing[session_id] = _seen_s(record)

    def spend(self, session_id: str) -> Position:
        """A place in a session's order for an event that is not logged; nothing else gets it.

        The session need not be known: should it ever begin, it begins after what was spent.
        """
        session = self._sessions.get(session_id)
        if session:
            session.stream.next_seq += 1
            return self.epoch, session.stream.next_seq - 1
        record = self.ledger.get(session_id) or {}
        seq = max(self._spent.pop(session_id, 0), self._next_seq(position_from(record.get("at"))))
        self._spent[session_id] = seq + 1
        if len(self._spent) > MOST:
            del self._spent[next(iter(self._spent))]
        return self.epoch, seq

    def _next_seq(self, last: Position | None) -> int:
        return last[1] + 1 if last and last[0] == self.epoch else 0

    def is_known(self, session_id: str) -> bool:
        """Whether a hook of this session ever came, as far as anybody here remembers."""
        return (
            session_id in self._sessions
            or self.ledger.get(session_id) is not None
            or self.journal.last_position(session_id) is not None
        )

    def going_on(self) -> list[str]:
        """The sessions that have not ended and were not quiet for long, the newest first.

        At most `MOST` of them.

        After a start that is also one between two runs, which nothing brings back to memory yet.
        """
        now_s = self.emitter.clock_ns() / 1e9
        dozing = [one for one, seen in self._dozing.items() if now_s - seen <= self.idle_seconds]
        awake = [session.id for session in self if not session.is_over]
        return [*dozing, *awake][: -MOST - 1 : -1]

    def last_heard_ns(self) -> int | None:
        """When the last hook of all came, by what the ledger kept; None before the first."""
        newest = last_hook_s(record for _, record in self.ledger.items())
        return newest * 10**9 if newest else None

    def let_go_idle(self, now: float) -> None:
        """Let sessions leave memory that have been quiet for long."""
        for session in list(self):
            if now - session.seen_at <= self.idle_seconds:
                return
            self._let_go(session, now)

    def _let_go(self, session: Session, now: float) -> None:
        if session.state.is_unsettled:
            session.machine.settle(now, "session-idle")
        self.keep(session)
        self._duplicates_before += session.machine.duplicates
        del self._sessions[session.id]

    @property
    def duplicates(self) -> int:
        """Hooks that came twice and were dropped, since the start."""
        return self._duplicates_before + sum(session.machine.duplicates for session in self)

    def is_live(self, session_id: str) -> bool:
        """Whether a session may go on, and its log is to stay."""
        session = self._sessions.get(session_id)
        record = session.record() if session else self.ledger.get(session_id)
        if not record:
            return False
        quiet = self._quiet_seconds(record)
        if record.get("open"):
            return quiet <= OPEN_SECONDS
        return not record.get("over") and quiet <= self.idle_seconds

    def _quiet_seconds(self, record: JSONObject) -> float:
        return max(0.0, self.emitter.clock_ns() / 1e9 - _seen_s(record))

    def bury(self, session_id: str, last: Position | None) -> None:
        """Keep the tombstone of a session whose log is removed: whether it ended, where it was."""
        record = dict(self.ledger.get(session_id) or {})
        if last:
            record["at"] = list(last)
        self._put(session_id, record)

    def _put(self, session_id: str, record: JSONObject) -> None:
        """A record that is lost costs what only it has: what waits, and what pairs calls."""
        try:
            self.ledger.put(session_id, record)
        except LedgerError as error:
            log.warning("record not kept", session=session_id, why=error.code)

    def _bring_back(self, session_id: str, now: float) -> Session:
        record = self.ledger.get(session_id) or {}
        known = position_from(record.get("at"))
        logged = self.journal.last_position(session_id)
        state = from_record(_state_of(record))
        if logged:
            self._take_in_log(state, session_id, known)
        stream = Stream(session_id, source_of(self.host, session_id), self.epoch)
        last = max(filter(None, (known, logged)), default=None)
        stream.next_seq = max(self._next_seq(last), self._spent.pop(session_id, 0))
        machine = Machine(state, partial(self.emitter.emit, stream), new_ulid)
        machine.is_streamed = self.is_streamed(session_id)
        stream.lost = _number(record.get("lost"))
        session = Session(
            session_id,
            stream,
            machine,
            now,
            seen_ns=_number(record.get("seen_s")) * 10**9,
            beats=record.get("beats") is True,
            is_over=record.get("over") is True,
        )
        if state.is_unsettled:
            machine.settle()
            self.keep(session)
        return session

    def _take_in_log(self, state: State, session_id: str, known: Position | None) -> None:
        """What the log knows beyond the record, and the ended calls that a record leaves out.

        The last events do for both; only where the record is lost, or far behind, all are read.
        """
        try:
            tail = self.journal.tail(session_id, TAIL)
            older = [event for event in tail if known and not _is_beyond(event, known)]
            if known and (older or len(tail) < TAIL):
                refill(state, older)
                newer: Iterable[JSONObject] = tail[len(older) :]
            else:
                newer = filter(None, map(as_object, self.journal.read(session_id)))
            for event in newer:
                if _is_beyond(event, known):
                    fold(state, event)
        except JournalError as error:
            log.warning("log not read; the record has to do", session=session_id, why=error.code)


def last_hook_s(records: Iterable[JSONObject]) -> int | None:
    """When the last hook of all came (whole seconds since 1970), by the sessions' records."""
    return max(map(_seen_s, records), default=0) or None


def _is_beyond(event: JSONObject, known: Position | None) -> bool:
    at = position_of(event)
    return at is not None and (known is None or at > known)


def _state_of(record: JSONObject) -> JSONObject:
    state = record.get("state")
    return state if isinstance(state, dict) else {}


def _seen_s(record: JSONObject) -> int:
    return _number(record.get("seen_s"))


def _number(value: JSON) -> int:
    return value if isinstance(value, int) else 0
