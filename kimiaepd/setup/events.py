"""Which hook events which release of Kimi Code knows: the one place that says so.

One entry with an event that the release does not know drops every hook of every tool, silently. So
an event is written only for a release that is known to have it.

Sources: the releases 0.28.0, 0.42.0 and 2.1.0, each run with every event registered. Releases
before 0.28.0 were never tried, and nothing is said about them.
"""

from __future__ import annotations

import re
from functools import lru_cache

from attrs import frozen

_SEMANTIC = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")


@frozen(order=True)
class Version:
    """A release of Kimi Code; a pre-release comes before its release, whatever its name is."""

    major: int
    minor: int
    patch: int
    released: bool = True

    @classmethod
    def parse(cls, text: str) -> Version | None:
        """Read `2.1.0` or `2.2.0-beta.1`; None for anything else, also around a version."""
        match = _SEMANTIC.fullmatch(text)
        if not match:
            return None
        major, minor, patch, suffix = match.groups()
        return cls(int(major), int(minor), int(patch), suffix is None)

    def __str__(self) -> str:
        suffix = "" if self.released else " (pre-release)"
        return f"{self.major}.{self.minor}.{self.patch}{suffix}"


OLDEST_TRIED = Version(0, 28, 0)
NEWEST_TRIED = Version(2, 1, 0)

_FIRST = OLDEST_TRIED
_TURNS = Version(0, 42, 0)

SINCE: dict[str, Version] = {
    "SessionStart": _FIRST,
    "SessionEnd": _FIRST,
    "SessionHeartbeat": _TURNS,
    "UserPromptSubmit": _FIRST,
    "UserPromptQueued": _TURNS,
    "TurnStarted": _TURNS,
    "PreToolUse": _FIRST,
    "PermissionRequest": _FIRST,
    "PermissionResult": _FIRST,
    "PostToolUse": _FIRST,
    "PostToolUseFailure": _FIRST,
    "SubagentStart": _FIRST,
    "SubagentStop": _FIRST,
    "TaskStarted": _TURNS,
    "PreCompact": _FIRST,
    "PostCompact": _FIRST,
    "Notification": _FIRST,
    "Stop": _FIRST,
    "StopFailure": _FIRST,
    "Interrupt": _FIRST,
}
"""Every event, in the order of a session's life, and the first release that was seen to have it."""


@lru_cache  # asked again for every hook of the file
def known_to(version: Version | None) -> tuple[str, ...]:
    """The events that may be registered for a release.

    Args:
        version: the installed release; None where nobody could say, and then only the events that
            every tried release has are safe.
    """
    release = version or OLDEST_TRIED
    return tuple(event for event, since in SINCE.items() if since <= release)


def certainly_unknown(event: str, version: Version | None) -> bool:
    """Whether a release is known *not* to have an event; False where that is only unheard of.

    A release newer than the newest tried one, or one that nobody could name, may have more.
    """
    if version is None or version > NEWEST_TRIED:
        return False
    return event not in known_to(version)
