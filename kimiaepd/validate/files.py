"""Logs as files: in which order to read them, and their lines.

A log is one file or several: `journal.py` closes a file that grew too large and goes on in another.
What the names say is `log_names.py`'s business; a file that is named otherwise is a log of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path

from kimiaepd.errors import UsageError
from kimiaepd.storage.log_names import parse_name
from kimiaepd.validate.finding import Finding
from kimiaepd.validate.log import LogChecker


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, each with its newline; one line at a time is in memory.

    Raises:
        UsageError: the file cannot be read; raised where the reading fails, not at the call.
    """
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def check_file(path: Path) -> list[Finding]:
    """Everything that is wrong with a log of one file.

    Raises:
        UsageError: the file cannot be read.
    """
    return list(LogChecker().check_lines(read_lines(path)))


def in_order(paths: Iterable[Path]) -> list[Path]:
    """The files of each log in the order in which they were written.

    A shell sorts `s1.jsonl`, which is still written to, before `s1@1719….jsonl`, which was closed
    first. The logs themselves stay in the order in which they are named.
    """
    place: dict[Path, int] = {}
    keyed = []
    for index, path in enumerate(paths):
        name = parse_name(path.name)
        log = path if name is None else path.with_name(name.stem)
        closed = math.inf if name is None or name.stamp is None else name.stamp
        keyed.append(((place.setdefault(log, index), closed), path))
    return [path for _, path in sorted(keyed, key=itemgetter(0))]
