"""The emitter: the only place that stamps an Event.

Rules:
- It alone gives ids, time, source, `(epoch, seq)`, run, cause and capture, and gates a draft to its
  category's ceiling. It does not know who called it, and not who reads the log.
- `time` is the moment at which the hook's shim started, never later than now (AEP-0001 section 5).
- `seq` moves on only when the line is in the log: a loss leaves no hole and is counted, and once
  the log can be written again one `x.kimi-code.log.gap` says how many were lost.
- An emit never raises and never waits: a full disk must not change what a hook means.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote

import structlog
from attrs import define, field
from ulid import ULID

from kimiaepd.health import Health
from kimiaepd.lifecycle.state import Hook
from kimiaepd.mapping.capture import Ceilings, gate
from kimiaepd.mapping.event import AGENT, Capture, Draft, Event, Field
from kimiaepd.mapping.json_value import without_surrogates
from kimiaepd.mapping.own_levels import GAP
from kimiaepd.mapping.redaction import Redactor
from kimiaepd.storage.journal import Journal, JournalError, Position

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_NEVER_SHED = (
    *("attention.", "session.", "run.", "tool.denied", "error.", "control."),
    f"x.{AGENT}.log.",
    f"x.{AGENT}.instruction.",
)
_LIGHT = (None, "debug", "info")


def new_ulid() -> str:
    """A fresh ULID: unique, and sorted by the time of its making."""
    return str(ULID())


def source_of(host: str, session: str | None = None) -> str:
    """The `source` URI of this machine's agent, or of one session of it (AEP-0001 section 5.1)."""
    agent = f"aep://{quote(host, safe='')}/agent/{AGENT}"
    return agent if session is None else f"{agent}/session/{quote(session, safe='')}"


@define
class Stream:
    """Where one session stands in its own order.

    Attributes:
        session: its id, as every event of it carries it.
        source: its `source` URI.
        epoch: this start of the daemon.
        next_seq: the sequence number of its next event.
        lost: events that could not be written and that no gap tells of yet.
    """

    session: str
    source: str
    epoch: int
    next_seq: int = 0
    lost: int = 0


@define
class Counts:
    """What became of drafts, for `status`."""

    logged: int = 0
    lost: int = 0


@define
class Emitter:
    """Stamps drafts and hands the lines to the journal.

    Attributes:
        journal: where lines go.
        ceilings: what may ride, by category.
        redactor: the pipeline for what rides as redacted.
        clock_ns: the wall clock, in nanoseconds.
        new_id: makes event ids.
        logged: told of every line in the log: its session, its place, its bytes; it must not raise
            and not wait.
        health: is told when the log takes no events, and when it does again.
    """

    journal: Journal
    ceilings: Ceilings
    redactor: Redactor
    clock_ns: Callable[[], int] = time.time_ns
    new_id: Callable[[], str] = new_ulid
    logged: Callable[[str, Position, bytes], None] = lambda *_: None
    health: Health = field(factory=Health)
    counts: Counts = field(factory=Counts)

    def emit(
        self,
        stream: Stream,
        draft: Draft,
        hook: Hook,
        *,
        run: str | None = None,
        cause: str | None = None,
    ) -> str:
        """Stamp and log one draft; gives back the event's id, also where it was lost."""
        event, _ = self._emit(stream, draft, hook.started_ns, run=run, cause=cause)
        return event.id

    def say(
        self, stream: Stream, draft: Draft, *, run: str | None = None, cause: str | None = None
    ) -> tuple[bytes, bool]:
        """Stamp and log one draft that no hook stands behind; its line, and whether it is logged.

        One that is not has its place all the same, and nothing else gets it: its line may go out.
        """
        event, is_logged = self._emit(stream, draft, self.clock_ns(), run=run, cause=cause)
        if not is_logged:
            stream.next_seq += 1
        return event.to_line(), is_logged

    def aside(
        self,
        draft: Draft,
        source: str,
        *,
        session: str | None = None,
        at: Position | None = None,
        cause: str | None = None,
    ) -> bytes:
        """Stamp one draft that goes into no log; gives back its line.

        Args:
            draft: what it says.
            source: whose word it is.
            session: the session that it is about, and then `at` its place there (AEP-0001 5.2).
            at: epoch and seq.
            cause: the event that led to it.
        """
        epoch, seq = at or (None, None)
        ceiling = self.ceilings.of(draft.type)
        return Event(
            id=self.new_id(),
            type=draft.type,
            subject=draft.subject,
            time=timestamp(self.clock_ns()),
            source=source,
            session=session,
            seq=seq,
            epoch=epoch,
            cause=cause,
            severity=draft.severity,
            capture=ceiling,
            data=gate(draft, ceiling, self.redactor),
        ).to_line()

    def _emit(
        self, stream: Stream, draft: Draft, started_ns: int, *, run: str | None, cause: str | None
    ) -> tuple[Event, bool]:
        missing = stream.lost + self.journal.take_gap(stream.session)
        if missing:
            self._say_gap(stream, missing)
        event = self._stamp(stream, draft, started_ns, run=run, cause=cause)
        is_logged = self._write(stream, event)
        if not is_logged:
            self.counts.lost += 1
        return event, is_logged

    def _stamp(
        self, stream: Stream, draft: Draft, started_ns: int, *, run: str | None, cause: str | None
    ) -> Event:
        ceiling = self.ceilings.of(draft.type)
        return Event(
            id=self.new_id(),
            type=draft.type,
            subject=draft.subject,
            time=timestamp(min(started_ns, self.clock_ns())),
            source=stream.source,
            session=stream.session,
            run=run,
            seq=stream.next_seq,
            epoch=stream.epoch,
            cause=cause,
            severity=draft.severity,
            capture=ceiling,
            data=gate(draft, ceiling, self.redactor),
        )

    def _write(self, stream: Stream, event: Event) -> bool:
        droppable = event.severity in _LIGHT and not event.type.startswith(_NEVER_SHED)
        line = event.to_line()
        try:
            written = self.journal.append(stream.session, line, droppable=droppable)
        except JournalError as error:
            self.health.degraded("log", f"events cannot be written ({error.code})")
            stream.lost += 1
            if stream.lost == 1:
                log.warning("events lost", session=stream.session, first=event.type, why=error.code)
            return False
        if not written:
            self.health.degraded("disk", "nearly full, so events of little weight are dropped")
            return False
        self.health.recovered("log")
        if droppable:
            self.health.recovered("disk")
        stream.next_seq += 1
        self.counts.logged += 1
        self.logged(stream.session, (stream.epoch, event.seq or 0), line)
        if event.type == "session.ended":
            self.journal.hasten()  # nothing may come after it that would sync it (rule I23)
        return True

    def _say_gap(self, stream: Stream, missing: int) -> None:
        """One event for all that could not be written: it goes first, once writing works again."""
        count = Field(("count",), Capture.METADATA, missing)
        draft = Draft(GAP, None, (count,), "warning")
        stream.lost = 0
        if not self._write(
            stream, self._stamp(stream, draft, self.clock_ns(), run=None, cause=None)
        ):
            stream.lost = missing


def timestamp(ns: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(max(0, ns) / 1e9, UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def clean_host(host: str) -> str:
    """A host name fit for a URI: without what cannot be UTF-8, and never empty."""
    return without_surrogates(host) or "localhost"
