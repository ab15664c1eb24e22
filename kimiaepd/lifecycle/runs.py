"""Runs: one a prompt, and at most one terminal each, for good.

Rules:
- A prompt that is no steer opens a run. Stop, StopFailure or Interrupt closes it, with `cause` its
  run.started; what is still open at the next prompt or at the end of the session drains as
  run.cancelled.
- Before a run's terminal the asks that end with it are dismissed; after it, its calls are gone.
- A turn that background work starts has no run. Its end is only a degraded Stop, StopFailure or
  Interrupt, but what was open in it ends just so.
- The vendor's `turn_id` is never a run's id.

Who may close a run, and when, `machine.py` decides.
"""

from __future__ import annotations

from attrs import evolve

from kimiaepd.lifecycle import asks, calls, subagents
from kimiaepd.lifecycle.state import (
    Ask,
    Emit,
    Hook,
    Run,
    State,
    milliseconds,
    with_fact,
)
from kimiaepd.mapping.event import Draft

_CANCELLED = Draft("run.cancelled", severity="notice")
_ABANDONING = ("Interrupt", "SessionEnd")


def open_run(state: State, emit: Emit, hook: Hook, run_id: str, cause: str | None = None) -> None:
    """Log run.started for a prompt; no run is open. `cause` is the event that it decides."""
    started = emit(hook.draft, hook, run=run_id, cause=cause)
    state.run = Run(run_id, started, hook.at)


def close(
    state: State, emit: Emit, hook: Hook, *, dismissing: list[Ask], cause: str | None = None
) -> None:
    """Log the terminal that the hook's draft is; degraded where no run is open.

    `dismissing` are the asks that end with the run; `cause` is the event that this one decides, the
    run's start where None.
    """
    run = state.run
    asks.dismiss(state, emit, hook, dismissing)
    if run is None:
        calls.degrade(state, emit, hook)
    else:
        draft = with_fact(hook.draft, "duration_ms", milliseconds(run.at, hook.at))
        emit(draft, hook, run=run.id, cause=cause or run.started)
    _turn_is_over(state, hook)


def drain(state: State, emit: Emit, hook: Hook) -> None:
    """Cancel the run that is still open, if one is, because the hook begins or ends more."""
    if state.run is None:
        _turn_is_over(state, hook)
    else:
        cancelled = evolve(hook, draft=_CANCELLED)
        close(state, emit, cancelled, dismissing=asks.of_main_agent(state))


def _turn_is_over(state: State, hook: Hook) -> None:
    run = state.run.id if state.run else None
    if state.run and state.run.turn:
        state.last_turn = state.run.turn
    state.run = None
    calls.run_ended(state, run, abandoned=hook.payload.event in _ABANDONING)
    subagents.run_ended(state.subagents)
