"""A session's story, folded from its events: runs, calls, asks, and what else people should know.

Rules:
- `Story.take` takes any JSON object, in any order, and never raises: a member that is absent or of
  another type says nothing. What was never begun and ends is there all the same.
- Nothing is guessed: a call without an end has none, an outcome is what an event says.
- Texts stand here as they came, cut at `LONGEST`; whoever prints them makes them harmless.

Worst case in memory: a few hundred bytes for each run, call, ask and note of the session, and the
texts. Pure: no clock, no file. What it looks like is `timeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from attrs import define, field

from kimiaepd.mapping.event import AGENT
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.own_levels import DELIVERED, DROPPED, GAP, QUEUED, STOOD_DOWN, WEB_GAP
from kimiaepd.storage.log_reader import position_of
from kimiaepd.views.relay_seen import moment_of
from kimiaepd.views.story_parts import (
    Ask,
    AskOutcome,
    Call,
    CallOutcome,
    Note,
    Row,
    Run,
    RunOutcome,
)
from kimiaepd.views.words import call_input, said

LONGEST = 300
"""Characters of a text that are kept."""

STALE = timedelta(seconds=125)
"""Two heartbeats missed and some grace, as the daemon has it; only of who ever sent one."""

FORGOTTEN = timedelta(days=1)
"""Of who never sent one: so long the daemon remembers a session by default."""

_MOST_MS = 1e15
"""A duration beyond this is no number of ours."""

HEARTBEAT = f"x.{AGENT}.session.session_heartbeat"

State: TypeAlias = Literal["running", "awaiting approval", "idle", "stale", "ended"]


@define(eq=False)
class Story:
    """One session.

    Attributes:
        session: its name.
        agent, model, client: who it is, where that was said.
        began, seen: when the first and the last event came.
        events: how many.
        passed_over: objects that are no events.
        is_ended: whether it said its end, and nothing since.
        beats: whether it ever sent a heartbeat, so that silence means something.
        runs, calls, asks: by their ids; a call's id comes again only where the vendor repeats it.
        rows: all of it, and the notes, in the order of its coming.
    """

    session: str
    agent: str = ""
    model: str = ""
    client: str = ""
    began: datetime | None = None
    seen: datetime | None = None
    events: int = 0
    passed_over: int = 0
    is_ended: bool = False
    beats: bool = False
    runs: dict[str, Run] = field(factory=dict)
    calls: dict[str, Call] = field(factory=dict)
    asks: dict[str, Ask] = field(factory=dict)
    rows: list[Row] = field(factory=list)
    _epoch: int | None = field(default=None, init=False)

    def take(self, event: JSONObject) -> None:
        """Fold in the next event."""
        kind = event.get("type")
        if not isinstance(kind, str):
            self.passed_over += 1
            return
        self.events += 1
        at = moment_of(event.get("time"))
        if at is not None:
            self.began = at if self.began is None else min(self.began, at)
            self.seen = at if self.seen is None else max(self.seen, at)
        self.agent = self.agent or _text(event.get("agent"))
        self._note_new_epoch(event, at)
        if handler := _HANDLERS.get(kind):
            handler(self, event, at)

    def state(self, now: datetime) -> State:
        """How the session is."""
        if self.is_ended:
            return "ended"
        if self._is_stale(now):
            return "stale"
        if any(ask.waits(now) for ask in self.asks.values()):
            return "awaiting approval"
        return "running" if self.open_run else "idle"

    def _is_stale(self, now: datetime) -> bool:
        return self.seen is None or now - self.seen > (STALE if self.beats else FORGOTTEN)

    @property
    def open_run(self) -> Run | None:
        """The run that goes on."""
        return next((run for run in reversed(self.runs.values()) if run.outcome == "open"), None)

    def goes_on(self, what: Run | Call | Ask, now: datetime) -> bool:
        """Whether something without an end may still get one."""
        if what.outcome != "open" or self.is_ended or self._is_stale(now):
            return False
        if isinstance(what, Ask):
            return what.waits(now)
        run = self.runs.get(what.run or "") if isinstance(what, Call) else None
        return run is None or run.outcome == "open"

    @property
    def calls_made(self) -> int:
        """How many calls there were, also of one id."""
        return sum(isinstance(row, Call) for row in self.rows)

    # --- what events mean ------------------------------------------------------------------------

    def _note_new_epoch(self, event: JSONObject, at: datetime | None) -> None:
        place = position_of(event)
        if place is None:
            return
        if self._epoch is not None and place[0] > self._epoch:
            self.rows.append(Note(at, "daemon", "the daemon was started anew"))
        self._epoch = place[0] if self._epoch is None else max(self._epoch, place[0])

    def on_session_started(self, event: JSONObject, at: datetime | None) -> None:
        """It began, or goes on."""
        data = event.get("data")
        self.is_ended = False
        self.model = _text(said(data, "gen_ai.request.model")) or self.model
        self.client = _text(said(data, "client.name")) or self.client
        trigger = _text(said(data, "trigger"))
        self.rows.append(Note(at, "session", f"session started{_aside(trigger)}"))

    def on_session_ended(self, event: JSONObject, at: datetime | None) -> None:
        """It is over, for now."""
        self.is_ended = True
        reason = _text(said(event.get("data"), "reason"))
        self.rows.append(Note(at, "session", f"session ended{_aside(reason)}"))

    def on_heartbeat(self, event: JSONObject, at: datetime | None) -> None:
        """It lives."""
        self.beats = True

    def on_run_started(self, event: JSONObject, at: datetime | None) -> None:
        """A prompt was taken."""
        self.is_ended = False
        run = self._run(event)
        if run is not None and run.began is None:
            run.began = at
            run.trigger = _text(said(event.get("data"), "trigger"))
            run.prompt = _text(said(event.get("data"), "prompt"))

    def on_run_ended(self, event: JSONObject, at: datetime | None) -> None:
        """A prompt's work is over."""
        run = self._run(event)
        if run is None or run.outcome != "open":
            return
        run.outcome = _RUN_ENDS[_text(event.get("type"))]
        data = event.get("data")
        run.ended, run.ms = at, _ms(data, "duration_ms", run.began, at)
        run.why = _first(data, "error.message", "error.type", "reason", "by")

    def _run(self, event: JSONObject) -> Run | None:
        name = event.get("run")
        if not isinstance(name, str):
            return None
        if name not in self.runs:
            self.runs[name] = Run(name)
            self.rows.append(self.runs[name])
        return self.runs[name]

    def on_call(self, event: JSONObject, at: datetime | None) -> None:
        """A tool is called."""
        self.is_ended = False
        data = event.get("data")
        call = self._new_call(event, _text(said(data, "tool.call_id")) or _text(event.get("id")))
        call.began, call.what = at, call_input(data)

    def on_call_ended(self, event: JSONObject, at: datetime | None) -> None:
        """A tool call is over."""
        data = event.get("data")
        key = _text(said(data, "tool.call_id")) or _text(event.get("cause"))
        call = self.calls.get(key)
        if call is None:
            call = self._new_call(event, key or _text(event.get("id")))
        if call.outcome != "open":
            return
        call.outcome = _CALL_ENDS[_text(event.get("type"))]
        call.ended, call.ms = at, _ms(data, "duration_ms", call.began, at)
        call.why = _first(data, "error.message", "error.type", "rule", "by")

    def _new_call(self, event: JSONObject, key: str) -> Call:
        tool = _text(said(event.get("data"), "tool.name")) or _text(event.get("subject"))
        run = event.get("run")
        call = Call(key, tool, run if isinstance(run, str) else None)
        self.calls[key] = call
        self.rows.append(call)
        return call

    def on_asked(self, event: JSONObject, at: datetime | None) -> None:
        """Somebody is asked."""
        name, data, run = event.get("id"), event.get("data"), event.get("run")
        if not isinstance(name, str) or name in self.asks:
            return
        via = said(data, "respond_via")
        ask = Ask(
            id=name,
            tool=_text(event.get("subject")),
            run=run if isinstance(run, str) else None,
            kind=_text(said(data, "kind")),
            prompt=_text(said(data, "prompt")),
            is_ours=isinstance(via, list) and "control" in via,
            began=at,
            expires=moment_of(said(data, "expires_at")),
        )
        self.asks[name] = ask
        self.rows.append(ask)

    def on_answered(self, event: JSONObject, at: datetime | None) -> None:
        """Somebody answered; that it counted says what follows."""
        ask = self.asks.get(_text(event.get("subject")))
        if ask is not None and not ask.option:
            data = event.get("data")
            ask.option, ask.text = (
                _text(said(data, "answer.option")),
                _text(said(data, "answer.text")),
            )
            ask.via, ask.by = _text(said(data, "via")), _text(said(data, "by"))

    def on_ask_ended(self, event: JSONObject, at: datetime | None) -> None:
        """An ask is over."""
        ask = self.asks.get(_text(event.get("subject")))
        if ask is None or ask.outcome != "open":
            return
        data = event.get("data")
        if event.get("type") == "attention.timeout":
            ask.outcome, ask.ms = "timed out", _ms(data, "after_ms", ask.began, at)
        else:
            resolution = _text(said(data, "resolution"))
            ask.outcome = _ASK_ENDS.get(resolution, "dismissed")
            ask.ms = _ms(data, "latency_ms", ask.began, at)
        ask.ended = at

    def on_other(self, event: JSONObject, at: datetime | None) -> None:
        """Something that people should know, and that stands for itself."""
        kind, text, member = _NOTES[_text(event.get("type"))]
        value, run = said(event.get("data"), member) if member else None, event.get("run")
        is_count = isinstance(value, int) and not isinstance(value, bool)
        self.rows.append(
            Note(
                at,
                kind,
                text if is_count else f"{text}{_aside(_text(value))}",
                value if isinstance(value, int) and is_count else None,
                run if isinstance(run, str) else None,
            )
        )


_RUN_ENDS: dict[str, RunOutcome] = {
    "run.finished": "finished",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
}
_CALL_ENDS: dict[str, CallOutcome] = {
    "tool.completed": "completed",
    "tool.failed": "failed",
    "tool.denied": "denied",
}
_ASK_ENDS: dict[str, AskOutcome] = {"answered": "answered", "auto": "auto"}

_NOTES = {
    GAP: ("gap", "events that could not be written", "count"),
    WEB_GAP: ("gap", "frames that were not seen", "count"),
    "error.raised": ("error", "something went wrong", "code"),
    "session.compacted": ("session", "the context was compacted", "trigger"),
    STOOD_DOWN: ("gate", "nobody answers, so no call is held any more", ""),
    QUEUED: ("instruction", "an instruction waits for the next prompt", ""),
    DELIVERED: ("instruction", "an instruction was delivered", ""),
    DROPPED: ("instruction", "an instruction was dropped", "reason"),
    "delegation.subagent.started": ("subagent", "a subagent started", ""),
    "delegation.subagent.stopped": ("subagent", "a subagent stopped", ""),
}
"""What else is told: its kind, its words, and the member of the data that says more."""

_HANDLERS: dict[str, Callable[[Story, JSONObject, datetime | None], None]] = {
    "session.started": Story.on_session_started,
    "session.ended": Story.on_session_ended,
    HEARTBEAT: Story.on_heartbeat,
    "run.started": Story.on_run_started,
    **dict.fromkeys(_RUN_ENDS, Story.on_run_ended),
    "tool.requested": Story.on_call,
    **dict.fromkeys(_CALL_ENDS, Story.on_call_ended),
    "attention.requested": Story.on_asked,
    "attention.answered": Story.on_answered,
    "attention.resolved": Story.on_ask_ended,
    "attention.timeout": Story.on_ask_ended,
    **dict.fromkeys(_NOTES, Story.on_other),
}


def _text(value: JSON) -> str:
    return value[:LONGEST] if isinstance(value, str) else ""


def _first(data: JSON, *paths: str) -> str:
    return next((text for path in paths if (text := _text(said(data, path)))), "")


def _aside(text: str) -> str:
    return f" ({text})" if text else ""


def _ms(data: JSON, name: str, began: datetime | None, ended: datetime | None) -> float | None:
    """What an event says of a duration; else the time between two events."""
    value = said(data, name)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST_MS:
        return value
    if began is None or ended is None or ended < began:
        return None
    return (ended - began) / timedelta(milliseconds=1)
