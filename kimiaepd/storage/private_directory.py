"""Directories that are ours alone: made so, and checked before anything in them is trusted.

A directory is private when it is ours, is no symbolic link, and nobody else may write to it. A
sticky bit is not enough: it keeps others from removing our files, not from being there first.
The umask is never touched: it belongs to the whole process.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from pathlib import Path

from kimiaepd.errors import ConfigError

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def create_private(directory: Path) -> None:
    """Make sure of a directory that is ours alone; what is missing is made, with mode 0700.

    The modes are right whatever the umask is: it can only take bits away, and those are put back.

    Raises:
        ConfigError: it cannot be made, or is there and is not private.
    """
    missing = []
    for folder in (directory, *directory.parents):
        if os.path.lexists(folder):
            break
        missing.append(folder)
    for folder in reversed(missing):
        try:
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                folder.chmod(0o700)
        except OSError as error:
            raise ConfigError(f"cannot make {folder}: {error.strerror}") from error
    check_private(directory)


def create_closed(directory: Path) -> None:
    """Make sure of a private directory that nobody else can read either.

    Here a symbolic link is followed: people keep their logs on another disk. What it leads to must
    be private, and is closed to readers (mode 0700).

    Raises:
        ConfigError: as `create_private` does.
    """
    try:
        directory = directory.resolve()
        create_private(directory)
        directory.chmod(0o700)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"cannot use {directory}: {error}") from error


def check_private(directory: Path) -> None:
    """Make sure that nobody else can put a file in the place of ours. A sticky bit is not enough.

    Raises:
        ConfigError: it is missing, no directory, a symbolic link, not ours, or others can write.
    """
    try:
        found = directory.lstat()
    except OSError as error:
        raise ConfigError(f"cannot use {directory}: {error.strerror}") from error
    if stat.S_ISLNK(found.st_mode):
        raise ConfigError(f"{directory} is a symbolic link; give the directory that it leads to")
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{directory} is not a directory; move it away or give another")
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"{directory} belongs to uid {found.st_uid}, and this is uid {os.geteuid()}; "
            "give a directory of your own"
        )
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise ConfigError(
            f"{directory} can be written by others (mode {stat.S_IMODE(found.st_mode):04o}); "
            f"run: chmod 700 {shlex.quote(str(directory))}"
        )
