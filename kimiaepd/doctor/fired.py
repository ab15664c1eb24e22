"""When a real kimi last ran a hook of ours: the one truth that no look at files can give.

A running daemon says it, also of hooks before its start; where none answers, its ledger does. A
probe is no hook, and is in neither.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from attrs import frozen

from kimiaepd.doctor.check import Check, ok, warning
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.sessions import last_hook_s
from kimiaepd.storage.ledger import peek

NAME = "last hook"

_NEW_SESSION = "start a new kimi session, or /reload in one that runs"


@frozen
class Seen:
    """What is known.

    Attributes:
        check: for the report.
        when: the time, in UTC; None where no hook is known of.
    """

    check: Check
    when: dt.datetime | None = None


def examine(
    state_dir: Path, status: JSONObject | None, now: dt.datetime, *, configured: bool
) -> Seen:
    """Find out when the last hook came.

    Args:
        state_dir: where the ledger is.
        status: what the daemon answered; None where none did.
        now: the time, in UTC.
        configured: whether one could have come; if not, that none did is no news.
    """
    try:
        when = _of_status(status) if status else _of_ledger(state_dir / "ledger.jsonl")
    except OSError as error:
        why = error.strerror or error
        return Seen(ok(NAME, f"not known: the ledger in {state_dir} cannot be read ({why})"))
    if when:
        ago = _ago((now - when).total_seconds())
        return Seen(ok(NAME, f"{when.isoformat(sep=' ', timespec='seconds')}, {ago}"), when)
    none = "no hook of a real kimi has come yet"
    return Seen(warning(NAME, none, _NEW_SESSION) if configured else ok(NAME, none))


def _of_status(status: JSONObject) -> dt.datetime | None:
    ms = status.get("last_hook_ms")
    return _time(ms / 1000) if isinstance(ms, int) else None


def _of_ledger(path: Path) -> dt.datetime | None:
    try:
        seconds = last_hook_s(record for _, record in peek(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _time(seconds) if seconds else None


def _time(seconds: float) -> dt.datetime | None:
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC)
    except (OverflowError, ValueError, OSError):  # a number that is no time of any calendar
        return None


def _ago(seconds: float) -> str:
    for name, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name} ago"
    return f"{max(seconds, 0):.0f} seconds ago"
