"""Holds: the gate's own asks. One request, and exactly one outcome.

Rules:
- A hold is concluded once: answered, timed out, or dismissed. What was accepted as its answer is
  its outcome, whatever else happens before that is logged.
- Every later event has as `subject` the id of the attention.requested, and the run of its call.
- Answered is attention.answered (`cause` the command), attention.resolved (`cause` the answer), and
  where the answer refuses, tool.denied by policy (`cause` the answer). Timed out is
  attention.timeout; dismissed is attention.resolved alone.
- Nothing is denied but by an answer that refuses, or by a rule.

The vendor's asks are `asks.py`'s. Who holds, how long, and what an answer means is the gate's.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from kimiaepd.lifecycle import calls
from kimiaepd.lifecycle.state import Call, Emit, Hold, Hook, State, milliseconds, with_fact
from kimiaepd.mapping.event import Capture, Draft, Field

Outcome: TypeAlias = Literal["answered", "timeout", "dismissed"]

REFUSING = frozenset({"deny", "cancel"})
"""The options that keep a call from running."""


def begin(state: State, emit: Emit, hook: Hook, call: Call) -> Hold:
    """Log the attention.requested that the hook's draft is, and keep the hold open."""
    requested = emit(hook.draft, hook, run=call.run, cause=call.requested)
    hold = Hold(requested, call.name, call.id or None, call.run, hook.at)
    state.holds[requested] = hold
    return hold


def conclude(
    state: State,
    emit: Emit,
    hook: Hook,
    hold: Hold,
    otherwise: Literal["timeout", "dismissed"],
) -> Outcome | None:
    """Log how a hold ended; None where it had ended before.

    Args:
        state: the session's.
        emit: logs an event of it.
        hook: says when.
        hold: the one that ends.
        otherwise: how it ends where no answer was accepted.
    """
    if state.holds.pop(hold.requested, None) is None:
        return None
    if hold.answer or hold.answered:
        _answered(state, emit, hook, hold)
        outcome: Outcome = "answered"
    else:
        outcome = otherwise
        _unanswered(emit, hook, hold, otherwise)
    done, hold.on_over = hold.on_over, _nothing
    done()
    return outcome


def _nothing() -> None:
    pass


def _answered(state: State, emit: Emit, hook: Hook, hold: Hold) -> None:
    """Log the answer and what follows from it, as far as it is not in the log already."""
    answered, option = hold.answered, hold.option
    if hold.answer and answered is None:
        option = hold.answer.option
        answered = emit(_answer(hold, option, hold.answer.text), hook, run=hold.run,
                        cause=hold.answer.cause)  # fmt: skip
    if not hold.is_resolved:
        _resolve(emit, hook, hold, "answered", cause=answered)
    if option in REFUSING:
        call = calls.find(state, hold.call_id)
        call = call or Call(hold.call_id or "", hold.tool, run=hold.run)
        calls.refuse(state, emit, hook, call, cause=answered)


def _answer(hold: Hold, option: str, text: str | None) -> Draft:
    fields = [Field(("answer", "option"), Capture.METADATA, option)]
    if text:
        fields.append(Field(("answer", "text"), Capture.REDACTED, text))
    fields.append(Field(("via",), Capture.METADATA, "control"))
    return Draft("attention.answered", hold.requested, tuple(fields))


def _unanswered(emit: Emit, hook: Hook, hold: Hold, how: str) -> None:
    if how == "timeout":
        timeout = Draft("attention.timeout", hold.requested)
        timeout = with_fact(timeout, "after_ms", milliseconds(hold.at, hook.at))
        emit(timeout, hook, run=hold.run, cause=hold.requested)
    else:
        _resolve(emit, hook, hold, "dismissed", cause=hold.requested)


def _resolve(emit: Emit, hook: Hook, hold: Hold, resolution: str, *, cause: str | None) -> None:
    resolved = Draft("attention.resolved", hold.requested)
    resolved = with_fact(resolved, "resolution", resolution)
    resolved = with_fact(resolved, "latency_ms", milliseconds(hold.at, hook.at))
    emit(resolved, hook, run=hold.run, cause=cause)
