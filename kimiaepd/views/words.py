"""An event in a few words, for people: names, moments, durations, and what it says.

Rules:
- What stands in an event came from outside: nothing of it reaches a terminal that the terminal
  would obey, or that would show other text than there is (`harmless`).
- A member that is absent, because of the capture level, is left out; nothing is made up.
- Nothing here raises, whatever JSON an event is.

Pure. Colours and widths are `paper.py`'s business.
"""

from __future__ import annotations

from datetime import datetime, tzinfo

from kimiaepd.log_lines import tame
from kimiaepd.mapping.event import AGENT
from kimiaepd.mapping.json_value import JSON, JSONObject, dump, without_surrogates
from kimiaepd.mapping.own_levels import DROPPED, GAP, STOOD_DOWN, WEB_GAP
from kimiaepd.views.relay_seen import moment_of

SHORT = 8
"""Letters of a session's name that people are shown: enough to tell a day's sessions apart."""

_PREFIX = "session_"
_INPUT = ("command", "path", "file_path", "url", "pattern", "query", "description")
"""What of a call's input says most about it."""

VIA = {"control": "from elsewhere", "oob": "at the terminal"}
"""How an answer came."""

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000

_TELLS: dict[str, tuple[str, ...]] = {
    "session.started": ("trigger", "gen_ai.request.model", "client.name"),
    "session.ended": ("reason", "detail"),
    "session.compacted": ("trigger",),
    "run.started": ("trigger", "prompt"),
    "run.finished": ("duration_ms", "summary"),
    "run.failed": ("reason", "error.type", "error.message", "duration_ms"),
    "run.cancelled": ("by", "duration_ms"),
    "tool.completed": ("tool.name", "status", "duration_ms"),
    "tool.failed": ("tool.name", "error.type", "error.message", "duration_ms"),
    "tool.denied": ("tool.name", "by", "rule"),
    "attention.requested": ("prompt",),
    "attention.answered": ("answer.option", "answer.text", "via"),
    "attention.resolved": ("resolution", "latency_ms"),
    "attention.timeout": ("after_ms",),
    "progress.status": ("message",),
    "error.raised": ("code", "error.type", "error.message"),
    "control.attention.respond": ("answer.option", "answer.text"),
    "control.cancel": ("scope", "reason"),
    "control.rejected": ("reason", "detail"),
    f"x.{AGENT}.control.instruct": ("text",),
    GAP: ("count",),
    WEB_GAP: ("count", "reason"),
    STOOD_DOWN: ("timeouts",),
    DROPPED: ("reason",),
}
"""What of each type's data people are told, in this order."""


def harmless(text: str) -> str:
    """The text fit for a terminal: one line, no control characters, nothing that deceives.

    What turns text around, or takes no room, could make a command look like another one; none of
    that is printable, as Python has it.
    """
    tamed = tame(without_surrogates(text))
    if tamed.isprintable():
        return tamed
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in tamed)


def short(session: str) -> str:
    """A session's name as people are shown it; what they type may be as short."""
    return harmless(session.removeprefix(_PREFIX)[:SHORT])


def is_meant(session: str, typed: str) -> bool:
    """Whether a session is one that a person may mean by the beginning of its name."""
    return session.startswith(typed) or session.removeprefix(_PREFIX).startswith(typed)


def duration(ms: float) -> str:
    """A duration in milliseconds as people say it: `812 ms`, `4.2 s`, `3 m 05 s`, `2 h 10 m`."""
    if ms < _SECOND:
        return f"{max(0, round(ms))} ms"
    if ms < _MINUTE:
        return f"{ms / _SECOND:.1f} s"
    if ms < _HOUR:
        minutes, rest = divmod(round(ms / _SECOND), 60)
        return f"{minutes} m {rest:02d} s"
    if ms < 2 * _DAY:
        hours, rest = divmod(round(ms / _MINUTE), 60)
        return f"{hours} h {rest:02d} m"
    return f"{ms / _DAY:.0f} days"


def clock(event_time: JSON, zone: tzinfo | None = None) -> str:
    """The time of day of an event; `--:--:--` where it says none."""
    moment = moment_of(event_time)
    return "--:--:--" if moment is None else f"{local(moment, zone):%H:%M:%S}"


def local(moment: datetime, zone: tzinfo | None = None) -> datetime:
    """A moment in a zone, this machine's by default; unchanged where the zone has no such year."""
    try:
        return moment.astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return moment


def said(data: JSON, path: str) -> JSON:
    """A member of a payload by its dotted path; a name may have dots of its own."""
    if not isinstance(data, dict):
        return None
    if path in data:
        return data[path]
    first, _, rest = path.partition(".")
    return said(data.get(first), rest) if rest else None


def summary(event: JSONObject) -> str:
    """What an event says, in one harmless line; empty where its type says it all."""
    kind, data = event.get("type"), event.get("data")
    if kind == "tool.requested":
        return _joined([_word(said(data, "tool.name")), call_input(data)])
    tells = _TELLS.get(kind) if isinstance(kind, str) else None
    if tells is None:
        subject = event.get("subject")
        return _joined([_word(subject) if isinstance(subject, str) else "", _pairs(data)])
    return _joined([_told(path, said(data, path)) for path in tells])


def call_input(data: JSON) -> str:
    """What a call is given, as far as the capture level lets it be seen."""
    given = said(data, "args_redacted") or said(data, "args")
    if not isinstance(given, dict):
        return ""
    for name in _INPUT:
        if isinstance(value := given.get(name), str) and value:
            return harmless(value)
    return harmless(_dumped(given)) if given else ""


def _told(path: str, value: JSON) -> str:
    if path == "via" and isinstance(value, str) and value in VIA:
        return VIA[value]
    if path.endswith("_ms") and isinstance(value, int | float) and not isinstance(value, bool):
        return duration(value)
    return _word(value)


def _word(value: JSON) -> str:
    match value:
        case None:
            return ""
        case str():
            return harmless(value)
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:g}" if isinstance(value, float) else str(value)
        case _:
            return harmless(_dumped(value))


def _pairs(data: JSON) -> str:
    """The plain members of a payload that nobody described, as `name value`."""
    found = data if isinstance(data, dict) else {}
    pairs = [
        f"{harmless(name.removesuffix('_ms'))} {_told(name, value)}"
        for name, value in found.items()
        if isinstance(value, str | int | float) and not name.endswith("digest")
    ]
    return ", ".join(pairs)


def _dumped(value: JSON) -> str:
    try:
        return dump(value).decode("utf-8")
    except (RecursionError, ValueError):  # nested too deep, or no number that JSON has
        return "..."


def _joined(parts: list[str]) -> str:
    return harmless("  ".join(part for part in parts if part))
