"""The log directory, the room on its disk, and the clock that stamps what is written there.

Rules:
- A log directory may be a symbolic link; what it leads to must be ours alone.
- Files are looked at from outside, and none is opened: opening one of ours also mends its mode.

What the log holds is `kimiaepd validate`'s business. The state directory is `daemon.py`'s, but for
the room on its disk.
"""

from __future__ import annotations

import datetime as dt
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field, frozen

from kimiaepd.doctor.check import Check, Patient, finding, ok, warning
from kimiaepd.doctor.places import can_write, existing, first_look
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.storage.journal import LOCK_NAME
from kimiaepd.storage.lock_holder import lock_holder
from kimiaepd.storage.log_names import parse_name

LOG, DISK, CLOCK = "log directory", "disk space", "clock"

EARLIEST = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
"""No clock that is right has shown an earlier time since this release."""

LATEST = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)

FUTURE_SECONDS = 60.0
"""How far ahead of the clock a file may have been written: a file server has a clock of its own."""

_MIB = 1 << 20
_GIB = 1 << 30


@define
class _Files:
    """What stands in the log directory.

    Attributes:
        count: files of the log.
        size: bytes in all of them.
        closed: names of those that we cannot read and write, or that are no regular files.
        newest: when something was last written to one, in seconds since 1970.
        newest_name: to which.
    """

    count: int = 0
    size: int = 0
    closed: list[str] = field(factory=list)
    newest: float = 0.0
    newest_name: str = ""


def examine(patient: Patient, status: JSONObject | None, now: dt.datetime) -> tuple[Check, ...]:
    """Look at the log from outside.

    Args:
        patient: whose log it is.
        status: what the running daemon says; None where none answers.
        now: the time, with its zone.
    """
    directory = patient.settings.paths.log_dir
    try:
        real = directory.resolve()
    except (OSError, RuntimeError):  # links in a circle
        real = directory
    files, trouble = _survey(real)
    return (
        trouble or _directory(patient, directory, real, files, status),
        *_disk(patient, existing(real), files, status),
        _clock(now, files),
    )


# --- the directory -----------------------------------------------------------------------------


def _survey(directory: Path) -> tuple[_Files, Check | None]:
    files = _Files()
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if parse_name(entry.name):
                    _take_in(files, entry)
    except FileNotFoundError:
        pass
    except OSError as error:
        said = f"{directory} cannot be read: {error.strerror}"
        return files, finding(LOG, said, "set log.dir to a directory of your own")
    return files, None


def _take_in(files: _Files, entry: os.DirEntry[str]) -> None:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return  # removed in this moment
    files.count += 1
    files.size += found.st_size
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    if not ours or not os.access(entry.path, os.R_OK | os.W_OK):
        files.closed.append(entry.name)
    elif found.st_mtime > files.newest:
        files.newest, files.newest_name = found.st_mtime, entry.name


def _directory(
    patient: Patient, directory: Path, real: Path, files: _Files, status: JSONObject | None
) -> Check:
    shown = str(directory) if real == directory else f"{directory} (leads to {real})"
    if said := first_look(LOG, real, "log.dir", shown=shown):
        return said
    if trouble := _use(patient, real, files, status):
        return trouble
    return ok(LOG, f"{shown} is ours alone; files: {files.count}, {_amount(files.size)}")


def _use(
    patient: Patient, directory: Path, files: _Files, status: JSONObject | None
) -> Check | None:
    """What keeps the daemon from using a directory that is private; None where nothing does."""
    if not can_write(directory):
        return finding(
            LOG,
            f"{directory} cannot be written to",
            f"run: chmod 700 {shlex.quote(str(directory))}; if the disk is read-only, set log.dir",
        )
    if files.closed:
        return finding(
            LOG,
            f"in {directory} are files that cannot be written to, or are not ours: "
            f"{len(files.closed)}, such as {min(files.closed)}",
            "move them away, or give them back with chown and chmod 600",
        )
    if stranger := _other_writer(patient, directory, status):
        return finding(
            LOG,
            f"another daemon (pid {stranger}) writes to {directory}: two never share one",
            "set log.dir to another place, or stop that daemon",
        )
    return None


def _other_writer(patient: Patient, directory: Path, status: JSONObject | None) -> int | None:
    """The pid of a daemon of another state directory that has this log; None where none has."""
    holder = lock_holder(directory / LOCK_NAME)
    ours = lock_holder(patient.settings.paths.state_dir / "daemon.lock")
    return holder if holder not in (ours, (status or {}).get("pid")) else None


# --- room --------------------------------------------------------------------------------------


@frozen
class _Room:
    """What one disk has left: bytes, and whether it can take another file."""

    owner: str
    at: Path
    free: int
    takes_files: bool


def _disk(
    patient: Patient, log_at: Path, files: _Files, status: JSONObject | None
) -> Iterator[Check]:
    log = patient.settings.log
    state_at = existing(patient.settings.paths.state_dir)
    places = {"log": log_at, "state directory": state_at}
    try:
        if log_at.stat().st_dev == state_at.stat().st_dev:
            del places["state directory"]
        rooms = [_ask(owner, at) for owner, at in places.items()]
    except OSError as error:
        yield finding(
            DISK,
            f"{error.filename} cannot be asked for its room: {error.strerror}",
            "mend it, or set another place",
        )
        return
    bad = [check for room in rooms if (check := _judge(room, log.min_free_mib))]
    yield from bad
    if not bad:
        free = ", ".join(f"{_amount(room.free)} free on the {room.owner}'s disk" for room in rooms)
        taken = f"the log takes {_amount(files.size)} of log.keep_mib = {log.keep_mib}"
        yield ok(DISK, f"{free}; {taken}")
    stats = (status or {}).get("log")
    if isinstance(stats, dict) and isinstance(shed := stats.get("shed"), int) and shed:
        yield warning(
            DISK,
            f"events of little weight dropped for lack of room: {shed} since the daemon started",
            "make room; in each session's log an event says how many it misses",
        )


def _ask(owner: str, at: Path) -> _Room:
    there = os.statvfs(at)
    takes_files = there.f_favail > 0 or there.f_files == 0  # some file systems count none
    return _Room(owner, at, there.f_bavail * there.f_frsize, takes_files)


def _judge(room: _Room, min_free_mib: int) -> Check | None:
    """What is wrong with the room on one disk; None where nothing is."""
    remedy = f"make room on the disk of {room.at}"
    if not room.takes_files:
        return finding(
            DISK, f"the {room.owner}'s disk takes no more files: no inode is free", remedy
        )
    least = min_free_mib * _MIB
    said = (
        f"{_amount(room.free)} free on the {room.owner}'s disk, log.min_free_mib = {min_free_mib}"
    )
    remedy += ", or set log.min_free_mib lower"
    if room.free < least:
        effect = (
            "events of little weight are counted, not written"
            if room.owner == "log"
            else "the daemon may lose its record of sessions"
        )
        return finding(DISK, f"{said}: {effect}", remedy)
    if room.free < 2 * least:
        return warning(DISK, f"{said}: soon too little", remedy)
    return None


def _amount(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / _MIB:.1f} MiB"


# --- the clock ---------------------------------------------------------------------------------


def _clock(now: dt.datetime, files: _Files) -> Check:
    shown = now.astimezone(dt.UTC).isoformat(sep=" ", timespec="seconds")
    remedy = "set the clock; with systemd: timedatectl set-ntp true"
    if not EARLIEST <= now < LATEST:
        return finding(CLOCK, f"it says {shown}, and every event will", remedy)
    ahead = files.newest - now.timestamp()
    if ahead > FUTURE_SECONDS:
        return warning(
            CLOCK,
            f"it says {shown}, and {files.newest_name} was written to {ahead:.0f} s later:"
            " the clock went back",
            remedy,
        )
    return ok(CLOCK, shown)
