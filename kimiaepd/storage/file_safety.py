"""Files that are ours alone, and writes that are whole or absent.

Rules:
- A file is 0600 whatever the umask says (rule I26).
- Every open has `O_NOFOLLOW` and `O_CLOEXEC`, and what was opened must be a regular file of ours.
- A file that is replaced is written beside, synced where that matters, and renamed.

It does not know what is in the files. Their directories: `private_directory.py`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
from pathlib import Path

_FILE_MODE = 0o600


def open_private(path: str | Path, flags: int) -> int:
    """Open a regular file of ours, and see to it that its mode is 0600.

    Raises:
        OSError: as `os.open` does; also where it is a link, no regular file, or another user's.
    """
    # Without O_NONBLOCK a FIFO with the right name would hang us; a regular file does not mind it.
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, _FILE_MODE)
    try:
        _own(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _own(descriptor: int, path: str | Path) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "belongs to another user", str(path))
    if stat.S_IMODE(found.st_mode) != _FILE_MODE:
        os.fchmod(descriptor, _FILE_MODE)


def lock_file(path: Path) -> int:
    """Take the lock on `path` for as long as the descriptor lives, and write our pid into it.

    Raises:
        BlockingIOError: another process holds it; `read_pid` may say which.
        OSError: it cannot be opened or locked.
    """
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The pid is for people; on a full disk the lock is as good without it.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, b"%d\n" % os.getpid())
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_pid(path: Path) -> int | None:
    """The pid that the holder of a lock wrote into its file, or None where it says nothing."""
    try:
        return int(path.read_bytes()[:20])
    except (OSError, ValueError):
        return None


def lives(pid: int) -> bool:
    """Whether a process has this pid, whoever owns it."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def sync_data(descriptor: int) -> None:
    """Put a file's bytes on the disk itself.

    Raises:
        OSError: they may not be there, and a second try would not say so: never ask again.
    """
    if sys.platform == "darwin":
        # There fsync stops at the drive's cache, and fdatasync does not exist.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def sync_directory(path: Path) -> None:
    """Put a directory's entries on the disk: what was created, renamed or removed in it.

    Raises:
        OSError: they may not be there. A file system that syncs no directories is no error.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes, *, synced: bool = True) -> None:
    """Replace a file: a reader, or we after a crash, find the old content or the new one.

    Args:
        path: the file.
        content: all of it.
        synced: wait for the disk. Else it costs no wait, and after a power cut the file may be the
            old one, the new one, a part of it, or empty.

    Raises:
        OSError: the file is as it was; where it was to be synced, it may also be the new one
            already, in a directory that is not.
    """
    beside = path.with_name(path.name + ".tmp")
    descriptor = open_private(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if synced:
            sync_data(descriptor)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    beside.rename(path)
    if synced:
        sync_directory(path.parent)
