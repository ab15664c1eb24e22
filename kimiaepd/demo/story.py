"""What is played: the acts of `session.jsonl`, one a line, and what each must show.

Rules:
- An act is a hook as Kimi sends it, or something that a person does. One with a `title` begins a
  step; those after it belong to that.
- What an act `sees` and `writes` are patterns: an object matches one that has its members, and
  whatever else; anything else matches its like.

Pure but for reading the file of the package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import resources
from typing import Literal

from attrs import field, frozen

from kimiaepd.mapping.json_value import JSON, JSONObject

Fate = Literal["passed", "denied"]

SESSION = "session_demo"
"""The session that is played."""


@frozen(kw_only=True)
class Act:
    """One thing that happens.

    Attributes:
        title: what the step shows that begins here; empty where a step goes on.
        pause: seconds before it.
        hook: the payload, where it is a hook.
        instruct: an instruction, where a person gives one.
        sees: events that must come of it, in any order.
        writes: what the hook must write to stdout; none: not one byte; `{}`: whatever it likes.
        answer: what the demo's person answers where the call is held, if nobody else does.
        yours: whether `--wait` leaves the answer to the user.
        only_if: happens only where the last held call had this fate.
        hides: a secret that no line of the log may have.
        shows: whether the event is shown as the line of the log that it is.
    """

    title: str = ""
    pause: float = 0.2
    hook: JSONObject | None = None
    instruct: str | None = None
    sees: tuple[JSONObject, ...] = field(default=(), converter=tuple)
    writes: JSONObject | None = None
    answer: JSONObject | None = None
    yours: bool = False
    only_if: Fate | None = None
    hides: str | None = None
    shows: bool = False


def load() -> tuple[Act, ...]:
    """The acts of the session that comes with the program."""
    text = resources.files(__package__).joinpath("session.jsonl").read_text(encoding="utf-8")
    return tuple(Act(**json.loads(line)) for line in text.splitlines())


def matches(pattern: JSON, value: JSON) -> bool:
    """Whether a value has what a pattern asks for."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(
            name in value and matches(part, value[name]) for name, part in pattern.items()
        )
    return pattern == value


def missing(patterns: Iterable[JSONObject], events: Iterable[JSONObject]) -> list[JSONObject]:
    """The patterns that no event has."""
    came = list(events)
    return [one for one in patterns if not any(matches(one, event) for event in came)]
