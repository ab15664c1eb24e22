"""What `kimiaepd tail` shows: an event a line, as it comes.

Rules:
- A connection that was lost is said once, and once more when it is back; nothing in between.
- The day is said where it changes, the first time where it is not today.
- A line of `--json` is the event, with nothing in it that a terminal would obey.

Where events come from is `relay_consumer.py`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta

from attrs import define, field, frozen
from rich.text import Text

from kimiaepd.errors import UsageError
from kimiaepd.mapping.event import CATEGORIES
from kimiaepd.mapping.json_value import JSON, JSONObject, dump
from kimiaepd.views import words
from kimiaepd.views.paper import line
from kimiaepd.views.relay_consumer import Change, Item
from kimiaepd.views.relay_seen import moment_of

_KIND_WIDTH = 22
"""Columns of most types' names; a longer one takes more."""

_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_OBEYED = re.compile("[\x7f-\x9f]")
"""What JSON lets stand in a string and a terminal may obey."""

_STYLES = {
    "warning": "yellow",
    "error": "red",
    "critical": "bold red",
    "debug": "dim",
}
_CATEGORY_STYLES = {
    "attention": "bold yellow",
    "control": "magenta",
    "error": "red",
    "run": "cyan",
    "session": "blue",
}
_BAD = ("run.failed", "tool.failed", "tool.denied")


@frozen
class Wanted:
    """Which events are shown, of those that came.

    Attributes:
        sessions: the beginnings of their names; none: all.
    """

    sessions: tuple[str, ...] = ()

    def takes(self, event: JSONObject) -> bool:
        """Whether an event is shown."""
        session = event.get("session")
        return not self.sessions or (
            isinstance(session, str) and any(words.is_meant(session, one) for one in self.sessions)
        )


def filter_of(kinds: tuple[str, ...], severity: str | None, agents: tuple[str, ...]) -> JSONObject:
    """What a relay is asked for (attr-match).

    Args:
        kinds: types, `tool.*` for all of a kind, or a category's name alone.
        severity: the lowest.
        agents: whose events.
    """
    asked: JSONObject = {}
    types: list[JSON] = [f"{kind}.*" if kind in CATEGORIES else kind for kind in kinds]
    if types and "*" not in types:
        asked["type"] = types
    if severity is not None:
        asked["severity"] = {"gte": severity}
    if agents:
        asked["agent"] = list(agents)
    return asked


def since_of(text: str, now: datetime) -> datetime:
    """The moment that a person means: `10m` ago, or a date and a time, local where no zone is said.

    Raises:
        UsageError: it is none.
    """
    try:
        if ago := _AGO.fullmatch(text):
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--since: {words.harmless(text)!r} is no moment; say 10m, 2h, 1d or 2026-11-30T12:00"
        ) from None


def as_json(event: JSONObject) -> str:
    """The event as one line of JSON."""
    text = dump(event).decode("utf-8")
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_line(event: JSONObject) -> Text:
    """The event as people read it: when, whose, what, and what it says."""
    session, kind = event.get("session"), event.get("type")
    whose = words.short(session) if isinstance(session, str) else "-"
    what = words.harmless(kind) if isinstance(kind, str) else "?"
    return line(
        (words.clock(event.get("time")), "dim"),
        (f"  {whose:<{words.SHORT}}  ", "green"),
        (f"{what:<{_KIND_WIDTH}}", _style(event, what)),
        (f"  {words.summary(event)}", ""),
    )


def _style(event: JSONObject, kind: str) -> str:
    severity = event.get("severity")
    found = _STYLES.get(severity) if isinstance(severity, str) else None
    if kind in _BAD:
        return "red"
    return found or _CATEGORY_STYLES.get(kind.partition(".")[0], "")


@define
class Tail:
    """The lines of one `kimiaepd tail`.

    Attributes:
        wanted: which events are shown.
        out: takes a line about an event.
        err: takes a line about the connection.
        in_json: whether lines are JSON.
        greeting: what is said once there is a connection; may be empty.
        day: the day of the last line.
    """

    wanted: Wanted
    out: Callable[[Text | str], None]
    err: Callable[[str], None]
    in_json: bool
    greeting: str = ""
    day: date = field(factory=lambda: datetime.now().astimezone().date())

    def take(self, item: Item) -> None:
        """Show an event, or say a change of the connection."""
        if isinstance(item, Change):
            self._say(item)
        elif self.wanted.takes(item):
            if self.in_json:
                self.out(as_json(item))
            else:
                self._turn_the_page(item)
                self.out(as_line(item))

    def _turn_the_page(self, event: JSONObject) -> None:
        moment = moment_of(event.get("time"))
        if moment is not None and (day := words.local(moment).date()) != self.day:
            self.day = day
            self.out(line((f"{day:%A}, {day.isoformat()}", "dim")))

    def _say(self, change: Change) -> None:
        match change.kind:
            case "connected" if self.greeting:
                self.err(self.greeting)
            case "lost":
                self.err(f"connection lost: {words.harmless(change.why)}")
            case "back":
                self.err("connection back")
            case "missing":
                self.err(f"some events of session {words.short(change.why)} are not held any more")
