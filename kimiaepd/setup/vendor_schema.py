"""The vendor's schema of one `[[hooks]]` entry, for every entry in the file, whoever wrote it.

The CLI is strict to the point of danger: one entry that breaks the schema drops every hook of every
tool, with exit status 0 and, in the terminal UI, without a word. So no edit is written beside an
entry that would silence it, and `doctor` can name one.

Source: observed with `kimi doctor` on 0.28.0 and 2.1.0: exactly `event`, `matcher?`, `command`,
`timeout?`; an unknown key or event, an empty command, a timeout of 0, 601 or 2.5 each drop all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kimiaepd.setup.events import Version, certainly_unknown, known_to

KEYS = ("event", "matcher", "command", "timeout")
LONGEST_TIMEOUT = 600


def fault(entry: Mapping[str, object], version: Version | None) -> str | None:
    """What makes the release drop every hook because of this entry; None where nothing does.

    Args:
        entry: the table as it parsed.
        version: the installed release, None if unknown. An event that an unknown or newer release
            may have is no fault (`doubt` names it).
    """
    return next(_faults(entry, version), None)


def doubt(entry: Mapping[str, object], version: Version | None) -> str | None:
    """What may make the release drop every hook, as far as anybody here knows."""
    event = entry.get("event")
    if isinstance(event, str) and event not in known_to(version):
        release = f"kimi {version}" if version else "the installed kimi"
        return f"it is not known whether {release} has an event {event!r}"
    return None


def too_great(value: object) -> bool:
    """Whether a value holds a whole number that JavaScript cannot: the CLI refuses the file."""
    if isinstance(value, dict):
        return any(map(too_great, value.values()))
    if isinstance(value, list):
        return any(map(too_great, value))
    return isinstance(value, int) and abs(value) >= 2**53


def _faults(entry: Mapping[str, object], version: Version | None) -> Iterator[str]:
    for key in entry:
        if key not in KEYS:
            yield f"a hook has no key {key!r}"
    event = entry.get("event")
    if not isinstance(event, str):
        yield "it has no event"
    elif certainly_unknown(event, version):
        yield f"kimi {version} knows no event {event!r}"
    command = entry.get("command")
    if command is None or command == "":
        yield "it has no command"
    elif not isinstance(command, str):
        yield "its command is not a string"
    if not isinstance(entry.get("matcher", ""), str):
        yield "its matcher is not a string"
    if not _is_timeout(entry.get("timeout", 1)):
        yield f"its timeout is not a whole number from 1 to {LONGEST_TIMEOUT}"


def _is_timeout(value: object) -> bool:
    # JavaScript has one kind of number, so 5.0 passes where 2.5 does not.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 1 <= value <= LONGEST_TIMEOUT and value == int(value)
