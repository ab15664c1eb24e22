"""Paths and patterns for them, by their text alone: what lies where a rule says.

Rules:
- `*`, `?` and `[...]` stay within one part of a path; `**` is a whole part, and any number of them.
  A dot at the start of a part is a character like any other.
- What is relative lies below the session's directory. A path is made plain before it is compared:
  no `.`, no empty part, `..` taken away with the part before it.
- A path that the CLI would read in another way (it begins with `~`, has blanks around it, a control
  character, or is longer than any system allows) is not understood, and neither is a relative one
  where no directory is known.

It touches no file, so it knows no link: where a path really leads is the caller's to find out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

LONGEST = 4_096
"""Characters of a path or a pattern; no supported system opens a longer path."""

_STRANGE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def whole(path: str, directory: str | None) -> tuple[str, ...] | None:
    """The parts of a path from the root on; None where it is not understood."""
    if not path or path != path.strip() or path.startswith("~") or len(path) > LONGEST:
        return None
    if _STRANGE.search(path):
        return None
    if not path.startswith("/"):
        if directory is None or not directory.startswith("/"):
            return None
        path = f"{directory}/{path}"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return tuple(parts)


def climbs(path: str) -> bool:
    """Whether a path goes up: where that leads depends on links, and on who reads it."""
    return ".." in path.split("/")


def complaint(pattern: str) -> str | None:
    """What is wrong with a pattern, in words for people; None where nothing is."""
    if whole(pattern, "/") is None:
        return "must be a path, relative to the session's directory or absolute, without ~"
    if climbs(pattern):
        return "cannot have .. in it"
    if any("**" in part and part != "**" for part in pattern.split("/")):
        return "** must be a whole part of the path, as in src/**/*.py"
    return None


def lies_in(parts: Sequence[str], pattern: str, directory: str | None) -> bool | None:
    """Whether a path lies where a pattern says; None where the pattern's place is not known."""
    if pattern.startswith("/"):
        return _matches(parts, [part for part in pattern.split("/") if part not in ("", ".")])
    below = whole(directory, None) if directory else None
    if below is None:
        return None
    wanted = [part for part in pattern.split("/") if part not in ("", ".")]
    # The directory's own name is text, whatever characters it has.
    return tuple(parts[: len(below)]) == below and _matches(parts[len(below) :], wanted)


def _matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether all parts match; the cost is at most the one length times the other."""
    reached = [True] + [False] * len(parts)
    for want in wanted:
        if want == "**":
            first = reached.index(True) if True in reached else len(reached)
            reached = [at >= first for at in range(len(reached))]
        else:
            reached = [False] + [
                before and fnmatchcase(part, want)
                for before, part in zip(reached, parts, strict=False)
            ]
    return reached[-1]
