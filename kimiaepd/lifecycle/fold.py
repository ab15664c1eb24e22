"""Fold: what a session's own log says beyond its record, and before what its record still holds.

Rules:
- It needs nothing but types, runs, ids and causes, which every capture level keeps; with `data` it
  also knows which call is which. So after the loss of every record a run still closes as itself and
  no terminal comes twice.
- An ask that is answered by `control` alone, and that expires, is our gate's, and was held by a
  process that is gone.
- What a run is of that the stream named is the stream's, and known by its own id.
- An ask found here is known by its call's id, or by its own where its call has another: the
  approval's id is in no event.
- `fold` is for events that are newer than the record: what is open. `refill` is for older ones: the
  calls that have ended, of which the record, which is written after every hook, keeps the last few.
  Without `data` no ended call can be told from another, and only the record's few are known.
- Lines are the daemon's own; what cannot be read was counted by whoever read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kimiaepd.lifecycle import calls, subagents, waits
from kimiaepd.lifecycle.holds import REFUSING
from kimiaepd.lifecycle.record import PAST_KEPT
from kimiaepd.lifecycle.state import (
    OPEN_ASKS,
    OPEN_CALLS,
    PAST,
    Ask,
    Call,
    Hold,
    Instruction,
    PastAsk,
    Run,
    State,
    remember,
    short,
)
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.moment import moment_ns
from kimiaepd.mapping.own_levels import DELIVERED, DROPPED, QUEUED
from kimiaepd.mapping.payloads import HookPayload
from kimiaepd.mapping.web_frames import TURN

TAIL = 2048
"""Events that `refill` wants at most: eight for each of the calls that are remembered."""

_END_HOOKS = {
    "tool.completed": "PostToolUse",
    "tool.failed": "PostToolUseFailure",
    "tool.denied": "PermissionResult",
}


def fold(state: State, event: JSONObject) -> None:
    """Take one event of the session's log into its state."""
    handler = _HANDLERS.get(_word(event.get("type")))
    if handler:
        state.waits = [wait for wait in state.waits if wait.logged != event.get("cause")]
        handler(state, event)


def refill(state: State, events: Iterable[JSONObject]) -> None:
    """Remember again the calls that ended before those that the record holds.

    No event is read where the record had room for all of them.

    Args:
        state: as `from_record` gave it; `fold` takes in what is newer afterwards.
        events: the last `TAIL` events of the log that are not newer than the record, oldest first;
            fewer will do. Older ones are not needed.
    """
    if len(state.past_calls) < PAST_KEPT:
        return
    tail = State()
    for event in events:
        fold(tail, event)
    known = state.calls.keys() | state.past_calls.keys()
    older = {
        call.id: call
        for call in tail.past_calls.values()
        if call.id not in known and call.id != call.requested
    }
    past = [*older.items(), *state.past_calls.items()]
    state.past_calls = dict(past[-PAST:])


def _word(value: JSON) -> str:
    return value if isinstance(value, str) else ""


def _session_ended(state: State, _: JSONObject) -> None:
    state.ended = True


def _run_started(state: State, event: JSONObject) -> None:
    run = _word(event.get("run"))
    state.run = Run(run, _word(event.get("id")), by_stream=TURN in run)


def _run_ended(state: State, event: JSONObject) -> None:
    run = _word(event.get("run"))
    if TURN in run:
        state.last_turn = run
    if state.run is None or state.run.id == run:  # its start may be older than the first event
        state.run = None
        by_a_person = _member(event, "by") == "user"
        calls.run_ended(state, run, abandoned=by_a_person)
        subagents.run_ended(state.subagents)


def _tool_requested(state: State, event: JSONObject) -> None:
    call_id, name = _tool(event)
    key = call_id or _word(event.get("id"))
    print_ = f"{name}/{_word(_member(event, 'args_digest'))}"
    run = _word(event.get("run"))
    call = Call(key, name, print_, _word(event.get("id")), run or None, by_stream=TURN in run)
    state.past_calls.pop(key, None)
    remember(state.calls, key, call, OPEN_CALLS)


def _tool_ended(state: State, event: JSONObject) -> None:
    call_id, name = _tool(event)
    call = calls.find(state, call_id) or _caused_by(state, event)
    call = call or Call(call_id, name, run=_word(event.get("run")) or None)
    for ask in [ask for ask in state.asks.values() if ask.is_resolved and ask.call_id == call.id]:
        _over(state, ask)
    for hold in [hold for hold in state.holds.values() if hold.is_resolved]:
        if event.get("cause") == hold.answered:
            del state.holds[hold.requested]
    if failure := waits.failure_of(state, call.id):
        state.waits.remove(failure)  # it waited by the record, and is decided
    if call.id:
        calls.close(state, call, HookPayload(event=_END_HOOKS[_word(event.get("type"))]))


def _caused_by(state: State, event: JSONObject) -> Call | None:
    cause = event.get("cause")
    return next((call for call in state.calls.values() if call.requested == cause), None)


def _member(event: JSONObject, name: str) -> JSON:
    data = event.get("data")
    return data.get(name) if isinstance(data, dict) else None


def _tool(event: JSONObject) -> tuple[str, str]:
    tool = _member(event, "tool")
    if not isinstance(tool, dict):
        return "", short(_word(event.get("subject")))
    return short(_word(tool.get("call_id"))), short(_word(tool.get("name")))


def _asked(state: State, event: JSONObject) -> None:
    call = _caused_by(state, event)
    requested = _word(event.get("id"))
    if _member(event, "respond_via") == ["control"] and _member(event, "expires_at"):
        tool, run = short(_word(event.get("subject"))), _word(event.get("run")) or None
        state.holds[requested] = Hold(requested, tool, call.id if call else None, run)
        return
    by_stream = TURN in _word(event.get("run"))
    key = call.id if call and call.id not in state.asks else requested
    if by_stream:
        key = short(_word(event.get("subject")))
    state.asked_ever = True
    ask = Ask(
        key,
        requested,
        call_id=call.id if call else None,
        run=_word(event.get("run")) or None,
        print=call.print if call else "",
        asked_ns=_moment_ns(event),
        by_stream=by_stream,
        is_offered=by_stream and _member(event, "respond_via") == ["control"],
    )
    remember(state.asks, key, ask, OPEN_ASKS)


def _answered(state: State, event: JSONObject) -> None:
    answer = _member(event, "answer")
    option = _word(answer.get("option")) if isinstance(answer, dict) else ""
    for ask in _asks_of(state, event):
        ask.answered = _word(event.get("id"))
        ask.answered_ns = _moment_ns(event)
        ask.decision = option
    if hold := state.holds.get(_word(event.get("subject"))):
        hold.answered, hold.option = _word(event.get("id")), option


def _ask_ended(state: State, event: JSONObject) -> None:
    hold = state.holds.get(_word(event.get("subject")))
    if hold and hold.option in REFUSING:
        hold.is_resolved = True  # and its call is denied next
    elif hold:
        del state.holds[hold.requested]
    for ask in _asks_of(state, event):
        if ask.decision == "rejected" and ask.call_id in state.calls:
            ask.is_resolved = True  # and its call is denied next
        else:
            _over(state, ask)


def _over(state: State, ask: Ask) -> None:
    del state.asks[ask.key]
    past = PastAsk(ask.decision, ask.print, ask.asked_ns)
    remember(state.past_asks, ask.key, past, PAST)


def _asks_of(state: State, event: JSONObject) -> list[Ask]:
    return [ask for ask in state.asks.values() if ask.requested == event.get("subject")]


def _instruction_queued(state: State, event: JSONObject) -> None:
    state.instructions.append(Instruction(_word(event.get("cause"))))


def _instruction_ended(state: State, event: JSONObject) -> None:
    command = event.get("cause")
    ended = next((one for one in state.instructions if one.command == command), None)
    if ended:
        state.instructions.remove(ended)


def _moment_ns(event: JSONObject) -> int:
    return moment_ns(event.get("time")) or 0


_HANDLERS: dict[str, Callable[[State, JSONObject], None]] = {
    "session.ended": _session_ended,
    "run.started": _run_started,
    "run.finished": _run_ended,
    "run.failed": _run_ended,
    "run.cancelled": _run_ended,
    "tool.requested": _tool_requested,
    "tool.completed": _tool_ended,
    "tool.failed": _tool_ended,
    "tool.denied": _tool_ended,
    "attention.requested": _asked,
    "attention.answered": _answered,
    "attention.resolved": _ask_ended,
    "attention.timeout": _ask_ended,
    QUEUED: _instruction_queued,
    DELIVERED: _instruction_ended,
    DROPPED: _instruction_ended,
}
