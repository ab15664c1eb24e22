"""Memory: what of one session's earlier frames the meaning of a later one depends on.

A `tool.result` names no tool, an answer names no field, and the end of a refused call does not say
that it was refused. So the calls that run, the asks that are open and the calls that were refused
are remembered, from frame to frame.

Rules:
- It is a value: every method gives a new one. A caller who keeps it beside the cursor, and takes
  the new one only once the frame's events are logged, may see any frame again.
- It is bounded: `OPEN_CALLS`, `OPEN_ASKS` and `OPEN_CALLS` entries, the oldest forgotten first, ids
  and names of `LONGEST` characters, and of a form what `web_forms.py` keeps of one. At its worst a
  session is under 7 MB (32 forms, 1.3 million characters of four bytes); a few kB as a rule.
- Calls are known by agent and id, because an id is the model's and an agent's own.

The questions of an open form are content: it is not to be written to a disk. It knows nothing of
runs, and not whether an event was logged: the lifecycles are the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from attrs import evolve, frozen

from kimiaepd.mapping.web_forms import FormField
from kimiaepd.mapping.web_frames import MAIN, short

OPEN_CALLS = 256
OPEN_ASKS = 32

_T = TypeVar("_T")


@frozen
class Ask:
    """An approval or a question that waits for somebody.

    Attributes:
        call_id: the call that waits for it.
        agent: whose call it is; None where the vendor does not say (before 0.42.0).
        fields: what a question asks.
    """

    call_id: str | None = None
    agent: str | None = None
    fields: tuple[FormField, ...] = ()


@frozen
class Refusal:
    """What is remembered of an approval that was refused: its id, and whose call it was."""

    ask: str
    agent: str | None


@frozen
class Memory:
    """What of one session is remembered.

    Attributes:
        calls: the tool's name of each open call, by agent and call id.
        asks: the open asks, by the vendor's own id.
        refused: the refused calls that have not come to their end, by call id.
    """

    calls: Mapping[tuple[str, str], str] = {}
    asks: Mapping[str, Ask] = {}
    refused: Mapping[str, Refusal] = {}

    # --- calls ---

    def with_call(self, agent: str, call_id: str, tool: str) -> Memory:
        """With a call that has begun; also how a caller gives back what its own state knows."""
        key = (short(agent), short(call_id))
        return evolve(self, calls=_added(self.calls, key, short(tool), OPEN_CALLS))

    def call(self, agent: str, call_id: str) -> str | None:
        """The tool of an open call."""
        return self.calls.get((short(agent), short(call_id)))

    def refusal(self, agent: str, call_id: str) -> Refusal | None:
        """The refusal of a call, where its approval was refused."""
        refusal = self.refused.get(short(call_id))
        return refusal if refusal and refusal.agent in (None, short(agent)) else None

    def without_call(self, agent: str, call_id: str) -> Memory:
        """Without a call that has ended, and its refusal."""
        refused = self.refused
        if self.refusal(agent, call_id):
            refused = _without(refused, short(call_id))
        return evolve(
            self, calls=_without(self.calls, (short(agent), short(call_id))), refused=refused
        )

    def in_a_new_turn(self, agent: str) -> Memory:
        """As an agent's next turn begins: what was refused in its last one has no end to come."""
        refused = {
            call_id: refusal
            for call_id, refusal in self.refused.items()
            if (refusal.agent or MAIN) != short(agent)
        }
        return evolve(self, refused=refused) if len(refused) < len(self.refused) else self

    # --- asks ---

    def with_ask(self, ask_id: str, ask: Ask) -> Memory:
        """With an ask that is open; its call, asked for anew, was not refused."""
        ask = evolve(
            ask, call_id=ask.call_id and short(ask.call_id), agent=ask.agent and short(ask.agent)
        )
        return evolve(
            self,
            asks=_added(self.asks, short(ask_id), ask, OPEN_ASKS),
            refused=_without(self.refused, ask.call_id or ""),
        )

    def ask(self, ask_id: str) -> Ask | None:
        """An open ask."""
        return self.asks.get(short(ask_id))

    def without_ask(self, ask_id: str, *, is_refused: bool = False) -> Memory:
        """Without an ask that is over; where it was refused, its call is remembered as refused."""
        ask = self.ask(ask_id)
        if ask is None:
            return self
        refused = self.refused
        if is_refused and ask.call_id:
            refusal = Refusal(short(ask_id), ask.agent)
            refused = _added(refused, ask.call_id, refusal, OPEN_CALLS)
        return evolve(self, asks=_without(self.asks, short(ask_id)), refused=refused)


_K = TypeVar("_K")


def _added(things: Mapping[_K, _T], key: _K, thing: _T, most: int) -> Mapping[_K, _T]:
    """With one more, as the youngest; the oldest make room."""
    kept = dict(_without(things, key))
    while len(kept) >= most:
        del kept[next(iter(kept))]
    return {**kept, key: thing}


def _without(things: Mapping[_K, _T], key: _K) -> Mapping[_K, _T]:
    return {k: v for k, v in things.items() if k != key} if key in things else things
