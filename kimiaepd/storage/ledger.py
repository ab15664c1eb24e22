"""Ledger: the newest record of every session, in one file that survives a crash.

Rules:
- What a record says is the caller's business; it holds no content of a session. Whether a session
  is over is read from its record: `"open": true` says that it is not.
- Nothing is synced: the loop's thread never waits for the disk, neither to put a record, which is
  one `os.write`, nor to rewrite the file. What was put survives the death of this process. After a
  power cut records may be missing, or, just after a rewrite, all of them; the log is the judge.
- At open a torn tail is cut, what is no record is passed over, and the newest record of each
  session is kept.
- Past `SESSIONS` sessions, or `LIVE_BYTES` of records, the session that was put longest ago goes,
  of those that are over. An open one goes only past twice as much: nobody has so many, so these
  are sessions that died without a word.
- The file is rewritten, whole or not at all, when it is larger than `COMPACT_BYTES` and more than
  twice what is live.

Worst case in memory: 20 000 sessions, 64 MiB of records as bytes, and 300 bytes a session. Worst
case on disk: 128 MiB and one record, and 64 MiB more while it is rewritten.

Numbers come back as JSON's: whole ones are exact up to 2**53.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import structlog
from attrs import define, field

from kimiaepd.errors import ConfigError
from kimiaepd.mapping.json_value import JSONObject, MalformedJSONError, dump, parse
from kimiaepd.storage.file_safety import open_private, write_atomically
from kimiaepd.storage.log_files import TornWriteError, lines, open_to_read, repair_tail, write_line

_LOG: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

SESSIONS = 10_000
"""How many sessions are kept; twice as many where all are open."""

LIVE_BYTES = 32 << 20
"""How many bytes of records are kept; twice as many where all are of open sessions."""

RECORD_BYTES = 256 << 10
"""The largest record, with its session's id around it."""

COMPACT_BYTES = 4 << 20
"""A file that is no larger is never rewritten."""


class LedgerError(Exception):
    """A record is not in the file; `code` says why in a word: ENOSPC, EIO, too-large."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def peek(path: Path) -> Iterator[tuple[str, JSONObject]]:
    """Every record in a ledger's file as it stands, also while a daemon writes it; older ones too.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        yield from filter(None, map(_entry, lines(file)))


@define(eq=False)
class Ledger:
    """The newest record of every session.

    Attributes:
        path: the file.
        most: how many sessions are kept, instead of `SESSIONS`.
        skipped: lines at open that were no record.
    """

    path: Path
    most: int | None = None
    skipped: int = field(default=0, init=False)
    _descriptor: int = field(default=-1, init=False)
    _size: int = field(default=0, init=False)
    _live: int = field(default=0, init=False)
    _retry_at: int = field(default=0, init=False)
    # The lines as they stand in the file: bytes cost a fifth of the objects, and cannot change.
    _open: dict[str, bytes] = field(factory=dict, init=False)
    _over: dict[str, bytes] = field(factory=dict, init=False)

    @classmethod
    def open(cls, path: Path, *, most: int | None = None) -> Ledger:
        """Read the file, or begin one; its directory must be there.

        Args:
            path: the file.
            most: how many sessions are kept; `SESSIONS` by default.

        Raises:
            ConfigError: it cannot be read or written.
        """
        ledger = cls(path, most)
        try:
            ledger._reopen()
            repair_tail(path, keep=False)
            with open_to_read(path) as file:
                ledger._load(lines(file))
            ledger._size = path.stat().st_size
        except OSError as error:
            ledger.close()
            raise ConfigError(f"{path}: cannot be used: {error.strerror}") from None
        return ledger

    def _load(self, found: Iterator[bytes]) -> None:
        for line in found:
            entry = _entry(line)
            if entry:
                session, record = entry
                self._keep(session, line, is_open=record.get("open") is True)
            else:
                self.skipped += 1

    def put(self, session: str, record: JSONObject) -> None:
        """Keep this record of the session instead of any before it.

        Raises:
            LedgerError: the file did not take it; `get` and `items` give it all the same, unless it
                is larger than `RECORD_BYTES`.
        """
        line = dump({"session": session, "record": record}) + b"\n"
        if len(line) > RECORD_BYTES:
            raise LedgerError("too-large", f"a record of {len(line)} bytes; {RECORD_BYTES} fit")
        self._keep(session, line, is_open=record.get("open") is True)
        try:
            self._write(line)
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0, "unknown")
            raise LedgerError(code, str(error)) from error

    def get(self, session: str) -> JSONObject | None:
        """The session's newest record; None where none is kept."""
        line = self._open.get(session) or self._over.get(session)
        entry = _entry(line) if line else None
        return entry[1] if entry else None

    def items(self, *, is_open: bool = False) -> Iterator[tuple[str, JSONObject]]:
        """Every session and its newest record, those that are over first, then by age.

        With `is_open` only those that are not over, which are few.
        """
        over = [] if is_open else self._over.values()
        for line in [*over, *self._open.values()]:
            if entry := _entry(line):
                yield entry

    def __len__(self) -> int:
        return len(self._open) + len(self._over)

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    # --- what is live --------------------------------------------------------------------------

    def _keep(self, session: str, line: bytes, *, is_open: bool) -> None:
        self._drop(self._open, session)
        self._drop(self._over, session)
        (self._open if is_open else self._over)[session] = line
        self._live += len(line)
        most = self.most or SESSIONS
        while self._over and (len(self) > most or self._live > LIVE_BYTES):
            self._drop(self._over, next(iter(self._over)))
        while len(self) > 2 * most or self._live > 2 * LIVE_BYTES:
            self._drop(self._open, next(iter(self._open)))

    def _drop(self, kept: dict[str, bytes], session: str) -> None:
        self._live -= len(kept.pop(session, b""))

    # --- the file --------------------------------------------------------------------------------

    def _write(self, line: bytes) -> None:
        if self._descriptor < 0:
            self._rewrite()  # the line is among what is kept
            return
        try:
            write_line(self._descriptor, line)
        except TornWriteError:
            self.close()  # nothing may follow the torn tail
            raise
        self._size += len(line)
        if self._size > max(COMPACT_BYTES, self._retry_at, 2 * self._live):
            try:
                self._rewrite()
            except OSError as error:
                # The line is in the old file; this is only about that file's size.
                self._retry_at = self._size + COMPACT_BYTES
                _LOG.warning("ledger.not_rewritten", file=str(self.path), error=error.strerror)

    def _rewrite(self) -> None:
        # What is over stands in front: reading it back drops the same sessions in the same order.
        content = b"".join([*self._over.values(), *self._open.values()])
        write_atomically(self.path, content, synced=False)
        self._reopen()
        self._size = len(content)
        self._retry_at = 0

    def _reopen(self) -> None:
        self.close()
        self._descriptor = open_private(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)


def _entry(line: bytes) -> tuple[str, JSONObject] | None:
    try:
        entry = parse(line)
    except MalformedJSONError:
        return None
    if not isinstance(entry, dict):
        return None
    session, record = entry.get("session"), entry.get("record")
    return (session, record) if isinstance(session, str) and isinstance(record, dict) else None
