"""Directories as the daemon will meet them: there and writable, or still to be made."""

from __future__ import annotations

import os
from pathlib import Path


def existing(directory: Path) -> Path:
    """The directory, or, where it is not there, the nearest one above it that is."""
    return next(at for at in (directory, *directory.parents) if os.path.lexists(at))


def can_write(directory: Path) -> bool:
    """Whether it is a directory and we can make files in it."""
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)  # noqa: PTH112 - `Path.is_dir` raises where a directory on the way is closed
