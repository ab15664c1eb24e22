"""One edit of a file that another program also writes: read, plan, back up, compare, rename.

Rules:
- Nobody's write is lost: the file is compared right before the rename, and where it changed the
  edit is planned again on what stands there now. After five such races it gives up and says so.
  What remains are the microseconds between the comparison and the rename. POSIX has no rename that
  compares, so every program that replaces a file has them, the CLI too.
- The file is replaced whole, and keeps its mode and its owner; a symbolic link to it stays a link.
  A hard link is parted, as the CLI's own save parts it: the other name keeps the old bytes. Access
  lists and extended attributes are not carried over.
- A copy of what stood there is kept beside it, as private as the file, the newest five of ours. It
  holds whatever secrets the file holds.
- A plan that changes nothing writes nothing, no copy either. An edit that fails leaves the old file
  and nothing of its own. One that is killed leaves a private file, which a later edit removes.

It does not know what the file means: the plan is a function from bytes to bytes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from attrs import frozen

from kimiaepd.errors import ConfigError

ATTEMPTS = 5
BACKUPS_KEPT = 5

LEFT_SECONDS = 3600.0
"""How old a half-made file must be to be a killed edit's: no edit takes an hour."""

_MARK = "kimiaepd"


@frozen
class Edited:
    """What an edit did.

    Attributes:
        old: the bytes that stood there; None where there was no file.
        new: the bytes that stand there now.
        backup: the copy of the old ones; None where nothing changed or nothing was there.
    """

    old: bytes | None
    new: bytes
    backup: Path | None = None

    @property
    def changed(self) -> bool:
        """Whether the file was written."""
        return self.new != (self.old or b"")


def peek(path: Path) -> bytes | None:
    """The bytes of a file; None where there is none.

    Raises:
        ConfigError: it cannot be read, or is no file.
    """
    with _explained(path, "cannot be read", "make it a file that you can read"):
        state = _State.of(path)
        return state.data if state else None


def edit(path: Path, plan: Callable[[bytes], bytes], now: dt.datetime) -> Edited:
    """Change a file by a plan.

    Args:
        path: the file; a link is followed, and a file that is missing is created, private.
        plan: the new bytes for the old ones; may be called again with others. What it raises
            passes through, and nothing was written.
        now: the time for the name of the backup, in UTC.

    Raises:
        ConfigError: it cannot be read or written, or it keeps changing.
    """
    with _explained(path):
        for _ in range(ATTEMPTS):
            target = _target(path)
            before = _State.of(target)
            old = before.data if before else None
            new = plan(old or b"")
            if new == (old or b""):
                return Edited(old, new)
            _refuse_a_link_to_nowhere(path, target)
            with _staged(target, new, before) as staged:
                backup = _back_up(path, before.data, now) if before else None
                try:
                    is_done = _swap(staged, target, before, path)
                except OSError:
                    _remove(backup)
                    raise
                if is_done:
                    for too_old in (*backups(path)[:-BACKUPS_KEPT], *_left_behind(target, now)):
                        _remove(too_old)
                    return Edited(old, new, backup)
                _remove(backup)
    raise ConfigError(
        f"{path}: another program keeps writing it; close Kimi's settings, then run this again"
    )


def backups(path: Path) -> list[Path]:
    """Our copies beside a file, the oldest first; none where the directory cannot be read."""
    ours = re.compile(re.escape(f"{path.name}.{_MARK}-") + r"\d{8}T\d{6}\.\d{6}Z\.bak")
    try:
        # Their names sort as their times do.
        return sorted(file for file in path.parent.iterdir() if ours.fullmatch(file.name))
    except OSError:
        return []


def _left_behind(target: Path, now: dt.datetime) -> list[Path]:
    """What edits that were killed left half made."""
    ours = re.compile(re.escape(f".{target.name}.{_MARK}-") + r"[a-z0-9_]{8}")
    oldest = now.timestamp() - LEFT_SECONDS
    try:
        half = [file for file in target.parent.iterdir() if ours.fullmatch(file.name)]
        return [file for file in half if file.lstat().st_mtime < oldest]
    except OSError:  # another edit removes them
        return []


@frozen
class _State:
    """A file at one moment."""

    data: bytes
    mode: int
    owner: tuple[int, int]

    @classmethod
    def of(cls, path: Path) -> _State | None:
        try:
            # Without O_NONBLOCK a pipe in the file's place would hold us here for good.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{path}: is no regular file; move it away")
            with os.fdopen(handle, "rb", closefd=False) as file:
                data = file.read()
        finally:
            os.close(handle)
        return cls(data, stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid))


@contextlib.contextmanager
def _explained(
    path: Path, what: str = "cannot be edited", remedy: str = "nothing was changed"
) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: {what}: {error.strerror or error}; {remedy}") from None


def _target(path: Path) -> Path:
    """The file that a name leads to."""
    return Path(os.path.realpath(path))


def _refuse_a_link_to_nowhere(path: Path, target: Path) -> None:
    if path.is_symlink() and not target.parent.exists():
        command = f"mkdir -p {shlex.quote(str(target.parent))}"
        raise ConfigError(
            f"{path}: leads to {target}, and {target.parent} is not there; make it: {command}"
        )


@contextlib.contextmanager
def _staged(target: Path, data: bytes, before: _State | None) -> Iterator[Path]:
    """The new file under another name in the same directory, complete and on disk."""
    if before and not before.mode & stat.S_IWUSR:
        command = f"chmod u+w {shlex.quote(str(target))}"
        raise ConfigError(f"{target}: is read-only; allow writing with: {command}")
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.{_MARK}-")
    staged = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            if before:
                made = os.fstat(file.fileno())
                if (made.st_uid, made.st_gid) != before.owner:
                    os.fchown(file.fileno(), *before.owner)
                os.fchmod(file.fileno(), before.mode)
            _write(file, data)
        yield staged
    finally:
        _remove(staged)


def _swap(staged: Path, target: Path, before: _State | None, path: Path) -> bool:
    """Rename the new file over the old one; False where the old one is no longer what it was."""
    if _target(path) != target:
        return False
    if before is None:
        try:
            os.link(staged, target)  # unlike a rename, this never replaces anything
        except FileExistsError:
            return False
    elif _State.of(target) != before:
        return False
    else:
        staged.replace(target)
    # It is done. What is open is only which of the two files, both whole, outlasts a power cut.
    with contextlib.suppress(OSError):
        directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    return True


def _back_up(path: Path, data: bytes, now: dt.datetime) -> Path:
    backup = path.with_name(f"{path.name}.{_MARK}-{now:%Y%m%dT%H%M%S.%f}Z.bak")
    handle = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, data)
    except OSError:
        _remove(backup)
        raise
    return backup


def _write(file: BinaryIO, data: bytes) -> None:
    """Write it all, and have it on disk."""
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _remove(file: Path | None) -> None:
    """Remove a file of ours, if there is one; one too many is no reason to fail."""
    if file:
        with contextlib.suppress(OSError):
            file.unlink()
