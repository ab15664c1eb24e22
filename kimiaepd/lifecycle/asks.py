"""Asks: the vendor's own approvals, observed. One request, at most one answer, one resolution.

Rules:
- An ask is known by the approval's id, else by its call's. Every later event of it has as `subject`
  the id of its attention.requested, and the run of its request.
- The request's `cause` is its tool.requested. A result is attention.answered (`cause` the request),
  then attention.resolved (`cause` the answer); a cancelled one is resolved as dismissed alone.
- What is never answered is dismissed when what it belongs to ends, or when it is the oldest of too
  many.

The gate's own asks are not here: they end by rules of their own.
"""

from __future__ import annotations

from attrs import evolve

from kimiaepd.lifecycle.calls import find, fingerprint
from kimiaepd.lifecycle.state import (
    OPEN_ASKS,
    PAST,
    Ask,
    Emit,
    Hook,
    PastAsk,
    State,
    milliseconds,
    remember,
    with_fact,
)
from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.payloads import HookPayload

MAIN_AGENT = "main"
REPEATED_NS = 10_000_000_000
"""Ten seconds: two installs start their shims at once, a busy machine not quite."""


def key_of(payload: HookPayload) -> str:
    """What an ask is known by; empty where the vendor gave no id at all."""
    return payload.id or payload.tool_call_id or ""


def open_ask(state: State, payload: HookPayload) -> Ask | None:
    """The open ask that a hook speaks of.

    By its key; else by its call, for an ask that was found again in a log and lost its approval id.
    """
    found = state.asks.get(key_of(payload))
    if found is None and payload.tool_call_id:
        found = state.asks.get(payload.tool_call_id)
    return found


def request(state: State, emit: Emit, hook: Hook) -> Ask:
    """Log attention.requested and keep the ask open."""
    payload = hook.payload
    if len(state.asks) >= OPEN_ASKS:
        dismiss(state, emit, hook, [next(iter(state.asks.values()))])
    call = find(state, payload.tool_call_id)
    run = call.run if call else state.run.id if state.run else None
    requested = emit(hook.draft, hook, run=run, cause=call.requested if call else None)
    ask = Ask(
        key=key_of(payload) or requested,
        requested=requested,
        call_id=payload.tool_call_id,
        run=run,
        agent_id=payload.agent_id,
        print=fingerprint(payload),
        at=hook.at,
        asked_ns=hook.started_ns,
    )
    state.asks[ask.key] = ask
    state.past_asks.pop(ask.key, None)
    if call:
        call.decided = False  # it may have been, by an earlier ask of the same call
    return ask


def is_repeated(state: State, hook: Hook) -> bool:
    """Whether a request is one more of an ask that is over: for the same, in the same call.

    Where the call is not open either, ids may be used again: it is the same ask only where the two
    shims started within `REPEATED_NS`.
    """
    payload = hook.payload
    past = state.past_asks.get(key_of(payload))
    if past is None or past.print != fingerprint(payload):
        return False
    near = abs(hook.started_ns - past.asked_ns) <= REPEATED_NS
    return near or (payload.tool_call_id or "") in state.calls


def answer(state: State, emit: Emit, hook: Hook, ask: Ask, cause: str | None) -> str:
    """Log the result that the hook's draft is, and the resolution; gives back the answer's id."""
    draft = evolve(hook.draft, subject=ask.requested)
    first = cause or ask.requested
    if draft.type == "attention.resolved":
        draft = with_fact(draft, "latency_ms", milliseconds(ask.at, hook.at))
        event = emit(draft, hook, run=ask.run, cause=first)
    else:
        event = emit(draft, hook, run=ask.run, cause=first)
        _resolve(emit, hook, ask, "answered", cause=event)
    _close(state, ask, hook.payload.decision or "")
    return event


def dismiss(state: State, emit: Emit, hook: Hook, asks: list[Ask]) -> None:
    """Resolve asks that nobody answered, because the hook ends what they belong to."""
    for ask in asks:
        _resolve(emit, hook, ask, "dismissed", cause=ask.requested)
        _close(state, ask, "")


def of_main_agent(state: State) -> list[Ask]:
    """The open asks of the main agent, as far as the vendor lets that be told."""
    alone = state.subagents.background == 0
    return [
        ask
        for ask in state.asks.values()
        if ask.agent_id == MAIN_AGENT or (ask.agent_id is None and alone)
    ]


def others_of_call(state: State, payload: HookPayload) -> list[Ask]:
    """The open asks of the hook's call, but for the one that the hook is of."""
    call_id, key = payload.tool_call_id, key_of(payload)
    return [ask for ask in state.asks.values() if call_id == ask.call_id and ask.key != key]


def of_run(state: State, run: str | None) -> list[Ask]:
    """The open asks of one run; of none, where `run` is None."""
    return [ask for ask in state.asks.values() if ask.run == run]


def finish(state: State, emit: Emit, hook: Hook, ask: Ask, answered: str) -> None:
    """Resolve an ask whose answer is in the log already, unless its resolution is, too."""
    if not ask.is_resolved:
        _resolve(emit, hook, ask, "answered", cause=answered)
    _close(state, ask, ask.decision)


def _resolve(emit: Emit, hook: Hook, ask: Ask, resolution: str, *, cause: str) -> None:
    draft = Draft(
        "attention.resolved",
        ask.requested,
        (Field(("resolution",), Capture.METADATA, resolution),),
    )
    draft = with_fact(draft, "latency_ms", milliseconds(ask.at, hook.at))
    emit(draft, hook, run=ask.run, cause=cause)


def _close(state: State, ask: Ask, decision: str) -> None:
    state.asks.pop(ask.key, None)
    remember(state.past_asks, ask.key, PastAsk(decision, ask.print, ask.asked_ns), PAST)
