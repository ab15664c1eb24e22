"""Instructions: what a person says to a session from elsewhere, until the model has it.

Rules:
- One outcome each: delivered, or dropped with the reason. Every event of it has as `cause` the
  command that it came with.
- One that is in a reply on its way (`is_in_hand`) is in no other; whoever sent that reply says
  what became of it. The end of its session does not wait for that.
- The text outlives no process: it is in no log and in no record. What was queued in a daemon that
  is gone is dropped by the next.

How many there may be, and how they reach the model, is `instruct`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable

from kimiaepd.lifecycle.state import (
    Emit,
    Hook,
    Instruction,
    State,
    milliseconds,
    with_fact,
)
from kimiaepd.mapping.event import Draft
from kimiaepd.mapping.own_levels import DELIVERED, DROPPED, QUEUED


def queue(state: State, emit: Emit, hook: Hook, instruction: Instruction) -> None:
    """Keep one for the next prompt."""
    state.instructions.append(instruction)
    emit(Draft(QUEUED), hook, run=_run(state), cause=instruction.command)


def deliver(state: State, emit: Emit, hook: Hook, given: Iterable[Instruction]) -> None:
    """Say that these have arrived; those that were dropped meanwhile had their outcome."""
    for one in [one for one in state.instructions if one in given]:
        state.instructions.remove(one)
        draft = with_fact(Draft(DELIVERED), "queued_ms", milliseconds(one.at, hook.at))
        emit(draft, hook, run=_run(state), cause=one.command)


def drop(state: State, emit: Emit, hook: Hook, reason: str) -> None:
    """Let go of all of them."""
    dropped, state.instructions = state.instructions, []
    for one in dropped:
        draft = with_fact(Draft(DROPPED), "reason", reason)
        emit(draft, hook, run=_run(state), cause=one.command)


def _run(state: State) -> str | None:
    return state.run.id if state.run else None
