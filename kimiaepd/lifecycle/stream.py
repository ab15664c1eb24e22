"""What the stream of `kimi web` says, in the lifecycles that hooks have too: one story.

Rules:
- A run, a call or an ask ends by whoever began it. What the stream says of a hook's is visibility,
  and so is what it says began before `State.hooks_ns`: hooks have told that.
- A run that a hook opened is of the first turn that the stream speaks of in it. The next turn finds
  it open only where the hook of its end was lost: then it is cancelled, as by the next prompt.
- A turn whose beginning no frame says begins with the first thing that it does: the vendor's first
  one in a session that a prompt woke (0.28.0 to 2.1.0). An end alone begins nothing.
- What comes twice, because a process died between the log and the cursor, is dropped.
- What ends and did not begin here is visibility. A call that our own gate refused has its end.
- A server that is gone ends what is open in its sessions, whoever began it: no hook will come.

The frames' meaning is `mapping.web`'s. When a session is the stream's at all, and what a hook in it
means then, stands in `machine.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import evolve, field, frozen

from kimiaepd.lifecycle import asks, calls, runs
from kimiaepd.lifecycle.state import (
    NOW_NS,
    OPEN_ASKS,
    OPEN_CALLS,
    PAST,
    Ask,
    Call,
    Emit,
    Hook,
    State,
    milliseconds,
    remember,
    with_fact,
)
from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.json_value import JSON
from kimiaepd.mapping.payloads import HookPayload
from kimiaepd.mapping.web import Mapped
from kimiaepd.mapping.web_frames import TURN
from kimiaepd.mapping.web_rows import web_type


@frozen
class Said:
    """One frame, mapped.

    Attributes:
        mapped: what it becomes.
        otherwise: what it becomes where it must not be that.
        at: when it arrived (monotonic seconds).
        said_ns: when the server said it (wall clock).
        command: the command of ours that it is the outcome of.
    """

    mapped: Mapped
    otherwise: Draft
    at: float
    said_ns: int = NOW_NS
    command: str | None = None
    draft: Draft = field(init=False)

    @draft.default
    def _first(self) -> Draft:
        return self.mapped.drafts[0] if self.mapped.drafts else self.otherwise

    @property
    def is_of_no_turn(self) -> bool:
        """Whether it is what a server says also where it says nothing of a session's turns."""
        return self.otherwise.type == _META

    def hook(self, draft: Draft) -> Hook:
        """The moment of a draft of it."""
        return Hook(HookPayload(event=draft.type), draft, self.at, self.said_ns)


_META = web_type("session.meta.updated")

TWINS = (
    *("UserPromptSubmit", "Stop", "StopFailure", "Interrupt"),
    *("PreToolUse", "PostToolUse", "PostToolUseFailure"),
    *("PermissionRequest", "PermissionResult"),
)
"""The hooks whose story the stream tells too. What the others say, no frame says as an event."""


def is_the_hooks(state: State, payload: HookPayload) -> bool:
    """Whether one of `TWINS` goes on with what a hook began, in a session that is the stream's."""
    if payload.event in ("Stop", "StopFailure", "Interrupt"):
        return state.run is not None and not state.run.by_stream
    if payload.event == "PermissionResult" and (ask := asks.open_ask(state, payload)):
        return not ask.by_stream
    known = calls.find(state, payload.tool_call_id)
    if payload.event == "PreToolUse" and known and known.id not in state.calls:
        return False  # the id of a call that is over, used again
    return known is not None and not known.by_stream


def take(state: State, emit: Emit, said: Said) -> None:
    """Take one frame into the session."""
    if not said.mapped.drafts:
        return
    _meet(state, said)
    _begin_late(state, emit, said)
    handler = _HANDLERS.get(said.draft.type)
    if handler is None:
        emit(said.draft, said.hook(said.draft), run=_run(state, said))
    elif not handler(state, emit, said):
        emit(said.otherwise, said.hook(said.otherwise), run=_run(state, said))


def gone(state: State, emit: Emit, at: float) -> None:
    """End what is open, because the server that ran it is gone."""
    over = Draft("run.cancelled", None, (Field(("by",), Capture.METADATA, "shutdown"),), "notice")
    hook = Hook(HookPayload(event="SessionEnd"), over, at, NOW_NS)
    if state.run is None:
        asks.dismiss(state, emit, hook, list(state.asks.values()))
        calls.run_ended(state, None, abandoned=True)
    else:
        _close(state, emit, hook, list(state.asks.values()))


def idle(state: State, emit: Emit, at: float) -> None:
    """End the stream's run, whose end is in a gap: no turn runs in the session any more."""
    if state.run and state.run.by_stream:
        over = Draft("run.cancelled", severity="notice")
        _close(state, emit, Hook(HookPayload(), over, at, NOW_NS), _of(state, state.run.id))


# --- runs ------------------------------------------------------------------------------------


def _run(state: State, said: Said) -> str | None:
    """The run of a frame: the open one, or where it is late that of its turn."""
    named = said.mapped.run
    if named and named == state.last_turn:
        return named
    return state.run.id if state.run else None


def _meet(state: State, said: Said) -> None:
    """Know the turn of a run that a hook opened; an end may be that of the turn before."""
    run, named = state.run, said.mapped.run
    is_old = named == state.last_turn or said.draft.type in _RUN_ENDS
    if run and named and not (run.by_stream or run.turn or is_old):
        run.turn = named


def _begin_late(state: State, emit: Emit, said: Said) -> None:
    """Begin the run of a turn that is in the middle; a turn before the last one stays over."""
    run, open_run = said.mapped.run, state.run
    if run is None or said.draft.type not in _DEEDS or said.said_ns <= state.hooks_ns:
        return
    known = [state.last_turn, *((open_run.id, open_run.turn) if open_run else ())]
    if run not in known and not any(_is_after(turn, run) for turn in known if turn):
        _begin(state, emit, said.hook(Draft("run.started")), run)


def _is_after(turn: str, other: str) -> bool:
    """Whether a turn is a later one of the same journal."""
    (journal, _, number), (others, _, before) = turn.rpartition(TURN), other.rpartition(TURN)
    return journal == others and number.isdecimal() and int(number) > int(before)


def _run_started(state: State, emit: Emit, said: Said) -> bool:
    run = said.mapped.run or ""
    open_run = state.run
    if run == state.last_turn or (open_run and open_run.id == run):
        return True
    if (open_run and open_run.turn == run) or said.said_ns <= state.hooks_ns:
        return False
    _begin(state, emit, said.hook(said.draft), run)
    return True


def _begin(state: State, emit: Emit, hook: Hook, run: str) -> None:
    if state.run and state.run.by_stream:
        state.last_turn = state.run.id
    runs.drain(state, emit, hook)
    runs.open_run(state, emit, hook, run)
    if state.run:
        state.run.by_stream = True


def _run_ended(state: State, emit: Emit, said: Said) -> bool:
    run = said.mapped.run
    if state.run is None or state.run.id != run:
        return run is not None and run == state.last_turn
    draft, command = said.draft, said.command
    if draft.type != "run.cancelled":
        command = None  # it had ended before we aborted it
    elif command:
        by_us = Field(("by",), Capture.METADATA, "control")
        draft = evolve(draft, fields=(*draft.fields, by_us))
    _close(state, emit, said.hook(draft), _of(state, run), cause=command)
    return True


def _close(
    state: State, emit: Emit, hook: Hook, dismissing: list[Ask], cause: str | None = None
) -> None:
    if state.run and state.run.by_stream:
        state.last_turn = state.run.id
    runs.close(state, emit, hook, dismissing=dismissing, cause=cause)


def _of(state: State, run: str) -> list[Ask]:
    """The asks that end with a run: those in it, and those of which nobody knows whose they are."""
    return [ask for ask in state.asks.values() if ask.run in (run, None) and ask.by_stream]


# --- calls -----------------------------------------------------------------------------------


def _call_requested(state: State, emit: Emit, said: Said) -> bool:
    call_id, run = said.mapped.call, _run(state, said)
    known = calls.find(state, call_id)
    if known and known.id in state.calls:
        return known.by_stream
    is_told = known is not None and known.run == run and bool(known.terminal)
    if is_told or said.said_ns <= state.hooks_ns:
        return False
    requested = emit(said.draft, said.hook(said.draft), run=run)
    if call_id:
        name = said.draft.subject or ""
        call = Call(call_id, name, "", requested, run, said.at, by_stream=True)
        state.past_calls.pop(call_id, None)
        remember(state.calls, call_id, call, OPEN_CALLS)
    return True


def _call_ended(state: State, emit: Emit, said: Said) -> bool:
    call, draft = calls.find(state, said.mapped.call), said.draft
    if call is None or not call.by_stream:
        return False
    if call.terminal:
        return call.terminal == draft.type
    cause = call.requested
    if draft.type == "tool.denied":
        refused = state.past_asks.get(said.mapped.ask or "")
        cause = (refused and refused.answered) or cause
    else:
        draft = with_fact(draft, "duration_ms", milliseconds(call.at, said.at))
    hook = said.hook(draft)
    emit(draft, hook, run=call.run, cause=cause)
    calls.close(state, call, hook.payload)
    return True


# --- asks ------------------------------------------------------------------------------------


def _asked(state: State, emit: Emit, said: Said) -> bool:
    key, call_id, run = said.mapped.ask or "", said.mapped.call, _run(state, said)
    if known := state.asks.get(key):
        return known.by_stream
    others = (ask.call_id for ask in state.asks.values() if not ask.by_stream)
    if (call_id and call_id in others) or said.said_ns <= state.hooks_ns:
        return False
    hook = said.hook(said.draft)
    if len(state.asks) >= OPEN_ASKS:
        asks.dismiss(state, emit, hook, [next(iter(state.asks.values()))])
    call = state.calls.get(call_id or "")
    requested = emit(said.draft, hook, run=run, cause=call.requested if call else None)
    state.past_asks.pop(key, None)
    state.asks[key] = Ask(
        key,
        requested,
        call_id,
        run,
        said.mapped.agent,
        at=said.at,
        asked_ns=said.said_ns,
        by_stream=True,
        is_offered=_member(said.draft, "respond_via") == ["control"],
    )
    return True


def _ask_over(state: State, emit: Emit, said: Said) -> bool:
    ask = state.asks.get(said.mapped.ask or "")
    if ask is None or not ask.by_stream:
        return False
    draft = said.draft
    if said.command and draft.type == "attention.answered":
        draft = _with_member(draft, "via", "control")
    if ask.is_offered and said.mapped.is_for_session:
        draft = _for_session(draft)
    answered = asks.answer(state, emit, said.hook(draft), ask, said.command)
    past = state.past_asks[ask.key]
    if draft.type == "attention.answered":
        remember(state.past_asks, ask.key, evolve(past, answered=answered), PAST)
    return True


def _for_session(draft: Draft) -> Draft:
    """An approval's answer by the option that was offered, where it is for the session."""
    option = ("answer", "option")
    fields = tuple(
        evolve(one, value=FOR_SESSION) if (one.path, one.value) == (option, "approved") else one
        for one in draft.fields
    )
    return evolve(draft, fields=fields)


def _member(draft: Draft, name: str) -> JSON:
    return next((one.value for one in draft.fields if one.path == (name,)), None)


def _with_member(draft: Draft, name: str, value: JSON) -> Draft:
    fields = [one for one in draft.fields if one.path != (name,)]
    return evolve(draft, fields=(*fields, Field((name,), Capture.METADATA, value)))


FOR_SESSION = "approved_session"
"""The option that approves for the session; the vendor has a word beside "approved" for it."""

_DEEDS = (
    *("tool.requested", "attention.requested"),
    *(web_type(f"turn.step.{what}") for what in ("started", "completed")),
)
"""What only a turn that runs does, by the first draft's type."""

_RUN_ENDS = ("run.finished", "run.failed", "run.cancelled")
_CALL_ENDS = ("tool.completed", "tool.failed", "tool.denied")

_Handler: TypeAlias = Callable[[State, Emit, Said], bool]

_HANDLERS: dict[str, _Handler] = {
    "run.started": _run_started,
    **dict.fromkeys(_RUN_ENDS, _run_ended),
    "tool.requested": _call_requested,
    **dict.fromkeys(_CALL_ENDS, _call_ended),
    "attention.requested": _asked,
    "attention.answered": _ask_over,
    "attention.resolved": _ask_over,
}
"""Who takes a frame, by its first draft's type; False of one where it is visibility."""
