"""The record of a session: what of its state must outlive the process, without content.

Rules:
- Ids, names, digests, flags and the daemon's own moments of the wall clock; nothing that a person
  or a model wrote. It is the same at every capture level, so the open run closes as itself even
  where the log holds no data at all.
- A record may be older than the log by the hook that was being handled when the daemon died;
  `fold.py` adds what the log knows beyond it, and the ended calls that it is too small for.
- What waited is kept as the little that its decision needs; the moment of a hook in seconds of a
  monotonic clock means nothing in another process and is dropped.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias

import cattrs
from attrs import evolve, field, fields_dict, frozen

from kimiaepd.lifecycle.state import (
    Ask,
    Call,
    Hold,
    Hook,
    Instruction,
    PastAsk,
    Run,
    Stage,
    State,
    Subagents,
    Wait,
    WaitKind,
)
from kimiaepd.mapping.hooks import map_hook
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.payloads import HookPayload, ToolError

PAST_KEPT = 8
"""Calls and asks that ended, kept so that a late second end is known as such. `fold.refill` has the
calls before them from the log, where it holds data; a record is written after every hook."""

_Past: TypeAlias = tuple[str, str, str | None, str | None, bool, str | None, bool]
"""An ended call: id, name, requested, run, decided, terminal, abandoned. A record is written after
every hook, and these are most of it: so they stand in it without their members' names."""

_PastAsk: TypeAlias = tuple[str, str, str, int]
"""An ask that is over: key, decision, print, asked_ns."""

_Hold: TypeAlias = tuple[str, str, str | None, str | None, str | None, bool, str]
"""A call that is held: requested, tool, call_id, run, answered, is_resolved, option."""

_CONVERTER = cattrs.Converter(omit_if_default=True)


@frozen
class _KeptWait:
    kind: WaitKind
    logged: str
    event: str
    started_ns: int = 0
    tool_name: str | None = None
    tool_call_id: str | None = None
    error_code: str | None = None
    reason: str | None = None

    def wait(self) -> Wait:
        payload = HookPayload(
            event=self.event,
            tool_name=self.tool_name,
            tool_call_id=self.tool_call_id,
            error=ToolError(code=self.error_code),
            reason=self.reason,
        )
        hook = Hook(payload, map_hook(payload), at=0.0, started_ns=self.started_ns)
        return Wait(self.kind, hook, until=0.0, logged=self.logged)


@frozen
class _Kept:
    ended: bool = False
    asked_ever: bool = False
    run: Run | None = None
    calls: list[Call] = field(factory=list)
    past_calls: list[_Past] = field(factory=list)
    asks: list[Ask] = field(factory=list)
    past_asks: list[_PastAsk] = field(factory=list)
    holds: list[_Hold] = field(factory=list)
    instructions: list[str] = field(factory=list)
    delegating: dict[str, Stage] = field(factory=dict)
    background: int = 0
    waits: list[_KeptWait] = field(factory=list)
    hooks_ns: int = 0
    last_turn: str = ""


def to_record(state: State) -> JSONObject:
    """The state as a JSON object."""
    record: JSONObject = {
        "ended": state.ended,
        "asked_ever": state.asked_ever,
        "run": _members(state.run) if state.run else None,
        "calls": [_members(call) for call in state.calls.values()],
        "past_calls": [_past(call) for call in list(state.past_calls.values())[-PAST_KEPT:]],
        "asks": [_members(ask) for ask in state.asks.values()],
        "past_asks": [
            [key, past.decision, past.print, past.asked_ns]
            for key, past in list(state.past_asks.items())[-PAST_KEPT:]
        ],
        "holds": [_hold(hold) for hold in state.holds.values()],
        "instructions": [one.command for one in state.instructions],
        "delegating": {call: stage.value for call, stage in state.subagents.delegating.items()},
        "background": state.subagents.background,
        "waits": [_wait(wait) for wait in state.waits if wait.logged],
        "hooks_ns": state.hooks_ns,
        "last_turn": state.last_turn,
    }
    return {key: value for key, value in record.items() if value}


def from_record(record: JSONObject) -> State:
    """The state that a record holds; members that are missing or of another shape are as new."""
    kept = _Kept()
    for name in record.keys() & fields_dict(_Kept).keys():
        with suppress(cattrs.BaseValidationError):
            one = _CONVERTER.structure({name: record[name]}, _Kept)
            kept = evolve(kept, **{name: getattr(one, name)})
    return State(
        ended=kept.ended,
        asked_ever=kept.asked_ever,
        run=kept.run,
        calls={call.id: call for call in kept.calls},
        past_calls={past[0]: _call(past) for past in kept.past_calls},
        asks={ask.key: ask for ask in kept.asks},
        past_asks={past[0]: PastAsk(*past[1:]) for past in kept.past_asks},
        holds={kept_hold[0]: _held(kept_hold) for kept_hold in kept.holds},
        instructions=[Instruction(command) for command in kept.instructions],
        subagents=Subagents(kept.delegating, [], kept.background),
        waits=[wait.wait() for wait in kept.waits],
        hooks_ns=kept.hooks_ns,
        last_turn=kept.last_turn,
    )


def is_of_stream(record: JSONObject) -> bool:
    """Whether something is open that the stream of `kimi web` began, by a session's record."""
    state = record.get("state")
    if not record.get("open") or not isinstance(state, dict):
        return False
    return from_record(state).is_of_stream


def _members(thing: Run | Call | Ask) -> JSON:
    members: JSONObject = _CONVERTER.unstructure(thing)
    members.pop("at", None)
    return members


def _past(call: Call) -> JSON:
    past: _Past = (
        *(call.id, call.name, call.requested, call.run),
        *(call.decided, call.terminal, call.abandoned),
    )
    return list(past)


def _call(past: _Past) -> Call:
    call_id, name, requested, run, decided, terminal, abandoned = past
    return Call(
        call_id,
        name,
        requested=requested,
        run=run,
        decided=decided,
        terminal=terminal,
        abandoned=abandoned,
    )


def _hold(hold: Hold) -> JSON:
    kept: _Hold = (
        *(hold.requested, hold.tool, hold.call_id, hold.run),
        *(hold.answered, hold.is_resolved, hold.option),
    )
    return list(kept)


def _held(kept: _Hold) -> Hold:
    requested, tool, call_id, run, answered, is_resolved, option = kept
    return Hold(
        requested, tool, call_id, run, answered=answered, is_resolved=is_resolved, option=option
    )


def _wait(wait: Wait) -> JSON:
    payload = wait.hook.payload
    members: JSONObject = {
        "kind": wait.kind.value,
        "logged": wait.logged,
        "started_ns": wait.hook.started_ns,
        "event": payload.event,
        "tool_name": payload.tool_name,
        "tool_call_id": payload.tool_call_id,
        "error_code": payload.error.kind,
        "reason": payload.reason,
    }
    return {key: value for key, value in members.items() if value is not None}
