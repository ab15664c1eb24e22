"""An ask as people read it: a row of a list, the whole of it, and an object for programs.

Rules:
- Nobody is asked blind: the whole prompt is shown, line by line, and what was cut is said.
- What came from outside is harmless first (`words.py`); a line's end in the middle of a row is
  seen, because what stands in two lines is not what stands in one.

Pure. Widths are cut where it is printed.
"""

from __future__ import annotations

from datetime import datetime

from rich.text import Text

from kimiaepd.log_lines import LONGEST_VALUE
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.views import words
from kimiaepd.views.asks import LONGEST_PROMPT, Ask
from kimiaepd.views.paper import line

END_OF_LINE = " \u23ce "

_SOON = 10.0
"""Seconds before its deadline that an ask is shown in red."""

_LEFT_WIDTH = 8


def prompt_lines(ask: Ask) -> list[str]:
    """All that is asked, harmless, as many lines as it has."""
    found = [whole(one) for one in ask.prompt.splitlines()] or [""]
    if len(ask.prompt) == LONGEST_PROMPT:
        found.append("[there is more, which is not shown]")
    if ask.given and ask.given not in ask.prompt:
        found.append(ask.given)
    return found


def matter(ask: Ask) -> str:
    """What is asked, in one line."""
    return END_OF_LINE.join(one for one in prompt_lines(ask) if one.strip()) or words.harmless(
        ask.tool or ask.kind
    )


def left(ask: Ask, now: datetime) -> str:
    """How long somebody still waits for the answer."""
    seconds = ask.left(now)
    if not ask.is_answerable:
        return "look"
    if seconds is None:
        return ""
    if seconds <= 0:
        return "over"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} m {rest:02d} s" if minutes else f"{rest} s"


def style(ask: Ask, now: datetime) -> str:
    """How its time is shown."""
    seconds = ask.left(now)
    if not ask.is_answerable or seconds is None:
        return "dim"
    return "bold red" if seconds < _SOON else "bold yellow"


def offered(ask: Ask) -> str:
    """What can be said of it."""
    return ", ".join(words.harmless(option.id) for option in ask.options)


def row(ask: Ask, now: datetime) -> Text:
    """An ask in one line, with its id: what `kimiaepd answer` is told."""
    can = f"  [{offered(ask)}]" if ask.is_answerable else ""
    return line(
        (f"{words.harmless(ask.id)}  ", "dim"),
        (f"{words.short(ask.session):<{words.SHORT}}  ", "green"),
        (f"{left(ask, now):>{_LEFT_WIDTH}}  ", style(ask, now)),
        (matter(ask) + can, ""),
    )


def facts(ask: Ask, now: datetime) -> JSONObject:
    """An ask for programs."""
    seconds = ask.left(now)
    found: JSONObject = {
        "ask": ask.id,
        "session": ask.session,
        "run": ask.run,
        "tool": ask.tool,
        "call": ask.call,
        "kind": ask.kind,
        "prompt": ask.prompt,
        "given": ask.given or None,
        "options": [{"id": one.id, "label": one.label} for one in ask.options],
        "answerable": ask.is_answerable,
        "requested_at": ask.requested_at.isoformat() if ask.requested_at else None,
        "expires_at": ask.expires_at.isoformat() if ask.expires_at else None,
        "left_s": None if seconds is None else round(max(0.0, seconds), 1),
    }
    return {name: fact for name, fact in found.items() if fact is not None}


def whole(text: str) -> str:
    """The text harmless, and not cut: a piece at a time."""
    pieces = range(0, len(text), LONGEST_VALUE)
    return "".join(words.harmless(text[at : at + LONGEST_VALUE]) for at in pieces)
