"""Tool calls: tool.requested once a call, and at most one of completed, failed, denied after it.

Rules:
- A call that our gate refused has its terminal: the failure that the vendor then reports degrades.
- A terminal has `cause` its request and the run of its call. One without a request seen before (an
  unknown tool) has no `cause`.
- A call leaves with its run; a completion that never comes invents nothing. What left is remembered
  for a while (`PAST`), so that a late end finds its request and a second one is known as such.
- Hooks without a call id cannot be paired; they are logged as they come.

Which failures wait for an approval's result is `machine.py`'s business.
"""

from __future__ import annotations

import enum

from kimiaepd.lifecycle.state import (
    OPEN_CALLS,
    PAST,
    Call,
    Emit,
    Hook,
    State,
    milliseconds,
    remember,
    with_fact,
)
from kimiaepd.mapping.digest import digest
from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.hooks import waiting
from kimiaepd.mapping.payloads import Absent, HookPayload


class Standing(enum.Enum):
    """What a hook is to a call that is known already."""

    NEW = "new"
    DUPLICATE = "duplicate"
    SECOND = "second"


def fingerprint(payload: HookPayload) -> str:
    """Equal for the same tool with the same input."""
    given = payload.tool_input
    return f"{payload.tool_name}/{'' if isinstance(given, Absent) else digest(given)}"


def find(state: State, call_id: str | None) -> Call | None:
    """The call of this id: an open one first, else one that ended not long ago."""
    return state.calls.get(call_id or "") or state.past_calls.get(call_id or "")


def standing_of_request(state: State, payload: HookPayload) -> Standing:
    """Whether a PreToolUse begins a call, repeats one, or contradicts one that is open."""
    call = state.calls.get(payload.tool_call_id or "")
    if call is None:
        return Standing.NEW
    return Standing.DUPLICATE if call.print == fingerprint(payload) else Standing.SECOND


def standing_of_end(state: State, payload: HookPayload) -> Standing:
    """Whether a terminal's hook ends its call, repeats its end, or would end it twice."""
    call = find(state, payload.tool_call_id)
    if call is None or call.terminal is None:
        return Standing.NEW
    return Standing.DUPLICATE if call.terminal == payload.event else Standing.SECOND


def request(state: State, emit: Emit, hook: Hook) -> Call:
    """Log tool.requested, and remember the call where it can be paired; it has no id if not."""
    payload = hook.payload
    run = state.run.id if state.run else None
    requested = emit(hook.draft, hook, run=run)
    call = Call(
        payload.tool_call_id or "",
        payload.tool_name or "",
        fingerprint(payload),
        requested,
        run,
        hook.at,
    )
    if call.id and call.name:
        state.past_calls.pop(call.id, None)
        state.past_asks.pop(call.id, None)
        remember(state.calls, call.id, call, OPEN_CALLS)
    return call


def end(state: State, emit: Emit, hook: Hook, cause: str | None = None) -> str:
    """Log the terminal that the hook's draft is; the caller knows that it is the first.

    `cause` is the event that this one decides; the call's request where None.
    """
    payload = hook.payload
    call = find(state, payload.tool_call_id)
    draft = with_fact(hook.draft, "duration_ms", milliseconds(call.at, hook.at) if call else None)
    run = call.run if call else state.run.id if state.run else None
    event = emit(draft, hook, run=run, cause=cause or (call.requested if call else None))
    if payload.tool_call_id is not None:
        close(state, call or Call(payload.tool_call_id, payload.tool_name or "", run=run), payload)
    return event


def deny(state: State, emit: Emit, hook: Hook, cause: str) -> None:
    """Log tool.denied for the call whose approval this hook says was refused."""
    payload = hook.payload
    call = find(state, payload.tool_call_id)
    name = call.name if call else payload.tool_name
    if not name or (call and call.terminal):
        return
    run = call.run if call else state.run.id if state.run else None
    emit(_denied(name, payload.tool_call_id), hook, run=run, cause=cause)
    if payload.tool_call_id is not None:
        close(state, call or Call(payload.tool_call_id, name, run=run), payload)


def refuse(
    state: State, emit: Emit, hook: Hook, call: Call, *, cause: str | None, rule: str | None = None
) -> None:
    """Log tool.denied for a call that our own gate keeps from running.

    `cause` is the answer, or the request where a rule refuses; `rule` is that rule's id.
    """
    if call.terminal:
        return
    denied = _denied(call.name, call.id, by="policy", rule=rule)
    emit(denied, hook, run=call.run, cause=cause)
    if call.id:
        close(state, call, hook.payload)


def _denied(name: str, call_id: str | None, by: str = "runtime", rule: str | None = None) -> Draft:
    members = {
        ("tool", "name"): name,
        ("tool", "call_id"): call_id,
        ("by",): by,
        ("rule",): rule,
    }
    fields = tuple(Field(path, Capture.METADATA, value) for path, value in members.items() if value)
    return Draft("tool.denied", name, fields, "notice")


def degrade(state: State, emit: Emit, hook: Hook) -> str:
    """Log the hook under its fallback name, with the facts that tell which call it was of."""
    call = find(state, hook.payload.tool_call_id)
    run = call.run if call else state.run.id if state.run else None
    return emit(waiting(hook.payload), hook, run=run)


def close(state: State, call: Call, payload: HookPayload) -> None:
    """The call has its terminal."""
    call.terminal = payload.event
    state.calls.pop(call.id, None)
    remember(state.past_calls, call.id, call, PAST)


def run_ended(state: State, run: str | None, *, abandoned: bool) -> None:
    """The run is over: its calls leave with it, without a terminal.

    `run` is None for a turn that had none, and `abandoned` whether nobody will be asked any more
    about the calls that were in it.
    """
    for call in state.calls.values():
        remember(state.past_calls, call.id, call, PAST)
    state.calls.clear()
    for call in state.past_calls.values():
        call.abandoned = call.abandoned or (abandoned and call.run == run)
