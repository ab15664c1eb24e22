"""What the tests of the log share: events as lines, journals to write them to, and who is open."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import settings

from kimiaepd.storage.journal import Journal, LogPolicy, Position

STAMP = 1_764_524_000_123_456_789
ROOMY = LogPolicy(min_free_bytes=0)

on_disk = settings(deadline=None)
"""For properties of files: how long a disk takes says nothing about the code."""


def event(seq: int, *, epoch: int = 1, session: str = "s", pad: int = 0) -> bytes:
    """One line with as much of an event as the log knows."""
    members = {"session": session, "seq": seq, "epoch": epoch, "pad": "é" * pad}
    return json.dumps(members, ensure_ascii=False).encode() + b"\n"


def fill(journal: Journal, session: str, count: int, *, first: int = 0) -> list[bytes]:
    """Append so many events; what was written."""
    written = [event(seq, session=session) for seq in range(first, first + count)]
    for line in written:
        journal.append(session, line, droppable=False)
    return written


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def never(session: str) -> bool:
    return False


def unseen(session: str, position: Position | None) -> None:
    pass
