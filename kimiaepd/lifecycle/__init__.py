"""Lifecycles: what a session's hooks mean together, in any order of arrival.

Hooks are processes that the vendor starts; they overtake one another, come twice, or not at all,
and a subagent's Stop looks like its parent's. These rooms turn them into runs, tool calls and asks
that each open once and close once.

    state.py      what is open in a session, and how much of it is kept at most
    subagents.py  whose Stop is it
    calls.py      tool calls: one request, at most one terminal
    asks.py       the vendor's own approvals: one request, one answer, one resolution
    holds.py      the gate's own asks: one request, one outcome
    runs.py       one run a prompt, one terminal a run
    waits.py      the hooks that wait, in order of arrival
    machine.py    the hooks in their order: what waits for what, and what a boundary settles
    record.py     what of a state outlives its process, without content
    fold.py       what a session's own log says beyond its record

Rules that hold for all of them: they read no clock and no file; time comes in with each hook, and
events go out through `Emit`. Who knows whom: `machine.py` all but the last two; `runs.py` asks,
calls and subagents; `asks.py` and `holds.py` calls; `waits.py` asks; `fold.py` calls, holds,
subagents, waits and what `record.py` keeps; and all of them `state.py`, which knows none.
"""

from __future__ import annotations
