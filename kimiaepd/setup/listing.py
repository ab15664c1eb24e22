"""What is registered, by whom: each hook of the file as plain values, and as a line of a table.

It reads no file and mends nothing; what it says of the disk comes from `standing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kimiaepd.paths import Paths
from kimiaepd.setup.config_text import ConfigText, Hook
from kimiaepd.setup.events import Version
from kimiaepd.setup.hook_program import program
from kimiaepd.setup.standing import causes
from kimiaepd.setup.vendor_schema import fault

OURS = "kimiaepd"
OTHER = "other"

_EVENT_COLUMNS = 20
_PROGRAM_COLUMNS = 42
"""What an event and a program may take of a terminal with 80 columns."""


def listing(
    text: ConfigText, paths: Paths, version: Version | None = None
) -> list[dict[str, object]]:
    """Each hook of the file, for a table or JSON.

    What the file says of it (`event`, `command`, ...), and besides: `line`; `by`, "kimiaepd" or
    "other"; `program`, what it runs, where that can be told; `socket`, where ours leads;
    `fault`, why it does nothing, or turns off all.

    Args:
        text: the vendor's config.
        paths: the instance that our hooks shall reach.
        version: the release that reads the file; None where nobody was asked, and then only what
            every release minds is a fault.
    """
    return [
        {
            **hook.values,  # first: a stray key of somebody else's must not pass for one of these
            "line": hook.line,
            "by": OURS if hook.ours else OTHER,
            "program": _program(hook),
            **({"socket": hook.ours.socket} if hook.ours else {}),
            "fault": fault(hook.values, version) or _idle(hook, paths),
        }
        for hook in text.hooks
    ]


def row(hook: Mapping[str, object]) -> str:
    """One hook of a listing as a line of at most 80 columns: line, by whom, event, program."""
    event = _short(hook.get("event", "?"), _EVENT_COLUMNS - 1)
    runs = hook.get("program") or hook.get("command", "?")
    by_us = hook["by"] == OURS
    line = f"{hook['line']:>6}  {hook['by']:<10}{event:<{_EVENT_COLUMNS}}"
    return line.rstrip() if by_us else line + _short(runs, _PROGRAM_COLUMNS)


def sockets(hooks: list[dict[str, object]]) -> list[str]:
    """Where our hooks lead to, each place once."""
    return list(dict.fromkeys(str(hook["socket"]) for hook in hooks if hook["by"] == OURS))


def _program(hook: Hook) -> str | None:
    command = hook.values.get("command")
    if hook.ours:
        return hook.ours.shim
    return program(command) if isinstance(command, str) else None


def _idle(hook: Hook, paths: Paths) -> str | None:
    found = causes(hook.ours, paths) if hook.ours else []
    return f"it does nothing: {', '.join(found)}" if found else None


def _short(value: object, columns: int) -> str:
    """A value of somebody else's on one line, the end of a long one, which says most of a path."""
    text = str(value)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= columns else f"...{text[3 - columns :]}"
