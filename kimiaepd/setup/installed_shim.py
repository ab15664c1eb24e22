"""The installed copy of `shim.py`: a stable place of its own, outside any environment that moves.

Rules:
- It comes before the hooks that name it and goes after them, whole or not at all: a hook that runs
  meanwhile finds the old copy, the new one, or none, and the guard answers for none.
- A copy that is up to date is not touched.

It knows nothing of what the shim does.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from kimiaepd import __file__ as package_file
from kimiaepd.errors import ConfigError


def source() -> bytes:
    """The shim of this version of the program.

    Raises:
        ConfigError: the package is damaged.
    """
    file = Path(package_file).with_name("shim.py")
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read: {error.strerror}; install kimiaepd again"
        ) from None


def is_current(place: Path, program: bytes) -> bool:
    """Whether the shim is there, as it shall be."""
    try:
        return place.is_file() and place.read_bytes() == program
    except OSError:
        return False


def install(place: Path, program: bytes) -> bool:
    """Put the shim in its place; whether anything had to be done.

    Raises:
        ConfigError: the place cannot be written.
    """
    if is_current(place, program):
        return False
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(place, program)
    except OSError as error:
        raise ConfigError(
            f"{place}: the hook program cannot be installed: {error.strerror};"
            " make its directory writable"
        ) from None
    return True


def remove(place: Path) -> bool:
    """Take the shim away, and its directory where nothing else is in it; whether it was there.

    Raises:
        ConfigError: it cannot be removed.
    """
    try:
        place.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigError(f"{place}: cannot be removed: {error.strerror}; remove it") from None
    with contextlib.suppress(OSError):  # it holds something else, and stays
        place.parent.rmdir()
    return True


def _replace(place: Path, program: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=".shim-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(program)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
