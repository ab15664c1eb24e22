"""Directories as the daemon will meet them: there and ours alone, or still to be made.

What is in one, and what it means, is `daemon.py`'s and `storage.py`'s business.
"""

from __future__ import annotations

import os
from pathlib import Path

from kimiaepd.doctor.check import Check, finding, ok
from kimiaepd.doctor.told import told
from kimiaepd.errors import ConfigError
from kimiaepd.storage.private_directory import check_private


def existing(directory: Path) -> Path:
    """The directory, or, where it is not there, the nearest one above it that is."""
    return next(at for at in (directory, *directory.parents) if os.path.lexists(at))


def can_write(directory: Path) -> bool:
    """Whether it is a directory and we can make files in it."""
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)  # noqa: PTH112 - `Path.is_dir` raises where a directory on the way is closed


def first_look(name: str, directory: Path, setting: str, *, shown: str) -> Check | None:
    """What is to be said of a directory before anything in it is; None: it is there, and private.

    Args:
        name: the check's.
        directory: without links.
        setting: which one names it.
        shown: how it is called for people.
    """
    if (parent := existing(directory)) != directory:
        if not can_write(parent):
            return finding(
                name,
                f"{shown} is not there and cannot be made: {parent} cannot be written to",
                f"make {parent} a directory of your own, or set {setting} to another place",
            )
        return ok(name, f"{shown} is not there yet; the daemon makes it")
    try:
        check_private(directory)
    except ConfigError as error:
        return told(name, error, remedy=f"set {setting} to a directory of your own")
    return None
