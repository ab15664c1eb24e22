"""The level of every member that this project's own mapping writes, by type and path.

It is read off the tables of `hooks.py` and `web_rows.py`, so that it cannot say anything else than
what is sent. It is for those who hold an event and not its draft: the checker, and a relay that
lowers events.

The standard's schemas name most of these members. They do not name what a subagent was asked and
answered, which is free text, nor anything of the `x.kimi-code.*` types.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from kimiaepd.mapping import hooks, web_rows
from kimiaepd.mapping.event import AGENT, Capture

Path: TypeAlias = tuple[str, ...]

GAP = f"x.{AGENT}.log.gap"
"""Events that could not be written. It comes of no hook, as what follows here."""

WEB_GAP = f"x.{AGENT}.web.gap"
"""Frames of a session's stream that were not seen."""

STOOD_DOWN = f"x.{AGENT}.gate.stood_down"
"""A session's gate holds nothing any more, because nobody answers."""

QUEUED = f"x.{AGENT}.instruction.queued"
DELIVERED = f"x.{AGENT}.instruction.delivered"
DROPPED = f"x.{AGENT}.instruction.dropped"
"""What becomes of an instruction."""


@functools.cache
def own_levels() -> Mapping[str, Mapping[Path, Capture]]:
    """The level of each member, by the event's type and the member's path."""
    levels: dict[str, dict[Path, Capture]] = {
        GAP: {("count",): Capture.METADATA},
        WEB_GAP: {("count",): Capture.METADATA, ("reason",): Capture.METADATA},
        STOOD_DOWN: {("timeouts",): Capture.METADATA},
        QUEUED: {},
        DELIVERED: {("queued_ms",): Capture.METADATA},
        DROPPED: {("reason",): Capture.METADATA},
        web_rows.WORK_CHANGED: {(name,): Capture.METADATA for name in web_rows.WORK_FACTS},
    }
    for name, members in _written():
        levels.setdefault(name, {}).update({member.path: member.level for member in members})
    return levels


def _written() -> Iterator[tuple[str, tuple[hooks.Member, ...]]]:
    rows = (
        *hooks.HOOKS.values(),
        *hooks.DECISIONS.values(),
        hooks.STEERED,
        *web_rows.ROWS.values(),
    )
    for row in rows:
        yield row.type, row.data
    for facts in (hooks.FACTS, hooks.WAITING_FACTS):
        for event, members in facts.items():
            yield hooks.fallback_type(event), members
