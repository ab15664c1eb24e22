"""Positions and ids: what makes replay and resume possible.

- Within one (source, session), every (epoch, seq) is above all that came before (AEP-0001 section
  7, rule 2). Gaps are legal; a lower epoch or a repeated position is not.
- One (source, id) names one event (AEP-0001 section 5.1, attribute 2). The same bytes again are a
  redelivery, which is legal and says nothing new.

Events without `seq` have no position: agent.* events, commands, attention.routed.
"""

from __future__ import annotations

import enum
from typing import TypeAlias, cast

from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.validate.finding import Fault, shown
from kimiaepd.validate.reading import Stream, stream_of

Position: TypeAlias = tuple[float, float]
"""(epoch, seq), which order a session's events lexicographically."""


class Seen(enum.Enum):
    """How an event's id stands to those before it."""

    NEW = enum.auto()
    REDELIVERED = enum.auto()
    COLLIDES = enum.auto()


class Identities:
    """Which ids were used, and for which bytes; one for each log.

    It keeps two 64-bit hashes for each event, about 120 bytes in all. Among a
    million ids two share a hash once in some forty million logs.
    """

    def __init__(self) -> None:
        self._lines: dict[int, int] = {}

    def see(self, event: JSONObject, line: bytes) -> Seen:
        """Note an event and the line that carries it."""
        identity, content = hash((event["source"], event["id"])), hash(line.rstrip())
        known = self._lines.get(identity)
        if known is None:
            self._lines[identity] = content
            return Seen.NEW
        return Seen.REDELIVERED if known == content else Seen.COLLIDES


class Positions:
    """The highest position of each session; one entry a session."""

    def __init__(self) -> None:
        self._last: dict[Stream, Position] = {}

    def check(self, event: JSONObject) -> list[Fault]:
        """Hold an event's position against the session's highest so far."""
        stream = stream_of(event)
        if stream is None or "seq" not in event:
            return []
        position = cast("Position", (event.get("epoch", 0), event["seq"]))
        last = self._last.get(stream)
        if last is None or position > last:
            self._last[stream] = position
            return []
        return [Fault("AEP-0001 §7.2", _regression(position, last, stream[1]))]


def _regression(position: Position, last: Position, session: str) -> str:
    if position[0] < last[0]:
        return f"epoch {position[0]} after {last[0]} in session {shown(session)}"
    return f"seq {position[1]} after {last[1]} in epoch {last[0]} of session {shown(session)}"
