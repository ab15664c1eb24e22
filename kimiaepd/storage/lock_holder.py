"""Which process holds a lock: looked up, and never touched.

The lock itself is not tried: whoever holds it for a moment, shared or not, makes a daemon fail that
starts in that moment. Linux lists every lock and its holder in /proc/locks. Elsewhere the pid that
stands in the file is believed where a process has it: a daemon that stops takes it out, so it is
wrong only after a kill, and only where another process has got the same number since.
"""

from __future__ import annotations

import stat
from pathlib import Path

from kimiaepd.storage.file_safety import lives, read_pid

LOCKS = Path("/proc/locks")
"""Linux's list: one line a lock, `1: FLOCK ADVISORY WRITE 4242 fe:00:2326628 0 EOF`."""

_KIND, _PID, _INODE = 1, 4, 5
_KINDS = ("FLOCK", "POSIX")  # a file system of another machine turns the first into the second


def lock_holder(path: Path, *, locks: Path = LOCKS) -> int | None:
    """The pid of the process that holds the lock on a file; None where nobody is known to.

    Args:
        path: the lock's file; it need not be there, and is not changed.
        locks: where the system lists its locks.
    """
    try:
        found = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):  # a read of anything else could hang
        return None
    written = read_pid(path)
    try:
        listed = _listed(locks.read_text(encoding="ascii", errors="replace"), found.st_ino)
    except OSError:
        return written if written and lives(written) else None
    if written in listed:
        return written
    # A holder in another container is listed as 0: the file may know it by its right number.
    return next((pid for pid in listed if pid > 0), written if listed else None)


def _listed(locks: str, inode: int) -> list[int]:
    """The pids that hold a lock on the inode.

    Its device is not compared: some file systems show another one to `stat` than to the list.
    """
    pids = []
    for line in locks.splitlines():
        words = line.split()
        if len(words) > _INODE and words[_KIND] in _KINDS and words[_PID].isdigit():
            _, _, listed = words[_INODE].rpartition(":")
            if listed == str(inode):
                pids.append(int(words[_PID]))
    return pids
