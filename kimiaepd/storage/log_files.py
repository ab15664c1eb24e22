"""The files of the log: one line in, whole lines out, and the torn tail put right.

Rules:
- A line is one `os.write` (I20). One that was cut short is taken back and written again, never
  continued.
- A line without its newline is no line (I21): at open it is moved aside.
- No line here is looked into (`log_reader.py`).

How files are called is `log_names.py`, which one is written to `open_logs.py`, and which one is
removed `retention.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kimiaepd.storage.file_safety import open_private, sync_data
from kimiaepd.storage.log_names import parse_name, torn_name

MAX_LINE = 128 << 20
"""The longest line in bytes, its newline included: what one line can cost a reader's memory."""

_BLOCK = 64 << 10
_LAST_BLOCK = 4 << 10
"""What is read of a file whose last line is asked for; few lines are longer."""


class TornWriteError(OSError):
    """A line was cut short and could not be taken back: the file has a torn tail."""


# --- writing -----------------------------------------------------------------------------------


def write_line(descriptor: int, line: bytes) -> None:
    """Write one line at the end of a file that is open for appending.

    Raises:
        TornWriteError: a part of it is there and could not be taken away.
        OSError: nothing of it is there.
    """
    for _ in range(2):
        written = os.write(descriptor, line)
        if written == len(line):
            return
        try:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        except OSError as error:
            raise TornWriteError(error.errno, error.strerror) from error
    raise OSError(errno.ENOSPC, "there is room for a part of the line only")


# --- the tail ----------------------------------------------------------------------------------


def repair_tail(path: Path, *, keep: bool = True) -> bool:
    """Cut a file back to its last newline; true where there was something to cut.

    Args:
        path: the file; it must be nobody else's to write.
        keep: move what is cut to `<name>.torn-<ns>`, but for the NUL bytes a file system fills in.

    Raises:
        OSError: the file is as it was.
    """
    descriptor = open_private(path, os.O_RDWR)
    try:
        size = os.fstat(descriptor).st_size
        if ends_whole(descriptor, size):
            return False
        whole = _end_of_lines(descriptor, size)
        if keep:
            _save(descriptor, whole, path.with_name(torn_name(path.name, time.time_ns())))
        os.ftruncate(descriptor, whole)
        sync_data(descriptor)
    finally:
        os.close(descriptor)
    return True


def ends_whole(descriptor: int, size: int) -> bool:
    """Whether a file of this size is empty or ends with a newline."""
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"


def _end_of_lines(descriptor: int, size: int) -> int:
    """The offset behind the last newline."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _save(source: int, start: int, path: Path) -> None:
    """Copy what stands from `start` on to a new file, without the NUL bytes at its end."""
    descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        offset, text = start, 0
        while block := os.pread(source, _BLOCK, offset):
            if full := block.rstrip(b"\0"):
                text = offset - start + len(full)
            offset += os.write(descriptor, block)
        os.ftruncate(descriptor, text)
        sync_data(descriptor)
        if not text:
            path.unlink()
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(descriptor)


# --- reading -----------------------------------------------------------------------------------


def open_to_read(path: Path) -> BinaryIO:
    """Open a log to read; the caller closes it.

    Raises:
        OSError: as `open_private` does.
    """
    return os.fdopen(open_private(path, os.O_RDONLY), "rb")


def lines(file: BinaryIO) -> Iterator[bytes]:
    r"""Every line that has its newline, in order; one longer than `MAX_LINE` reads as `\n`."""
    while line := file.readline(MAX_LINE):
        if line.endswith(b"\n"):
            yield line
        elif len(line) == MAX_LINE:
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE)
            yield b"\n"


def lines_backward(file: BinaryIO, end: int | None = None) -> Iterator[bytes]:
    """Every line that has its newline, the last first; what follows the last newline is left out.

    It holds the longest line it meets and as much again; it does not stop at `MAX_LINE`.

    Args:
        file: open to read, and to seek in.
        end: the offset to begin at; the file's end by default.
    """
    if end is None:
        end = file.seek(0, os.SEEK_END)
    rest = b""
    block = _LAST_BLOCK
    torn = True
    while end > 0:
        start = max(0, end - block)
        file.seek(start)
        rest, *found = (file.read(end - start) + rest).split(b"\n")
        end = start
        # A line much longer than a block would else be copied once a block.
        block = _LAST_BLOCK if found else block * 2
        for line in reversed(found):
            if not torn:
                yield line + b"\n"
            torn = False
    if not torn:
        yield rest + b"\n"


# --- a session's files -------------------------------------------------------------------------


def stems_in(directory: Path) -> set[str]:
    """The stems of all sessions that have a file with lines.

    Raises:
        OSError: the directory cannot be read.
    """
    names = map(parse_name, os.listdir(directory))  # noqa: PTH208 - names are all that is needed
    return {name.stem for name in names if name and not name.torn}


def closed_stamps(directory: Path, stem: str) -> list[int]:
    """When each closed file of a session was closed, the oldest first.

    Raises:
        OSError: the directory cannot be read.
    """
    own = (file for file in os.listdir(directory) if file.startswith(f"{stem}@"))  # noqa: PTH208
    names = map(parse_name, own)
    return sorted(name.stamp for name in names if name and name.stamp is not None and not name.torn)
