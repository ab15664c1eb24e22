"""State directory, socket and daemon: what is there, who holds it, and whether it answers.

Rules:
- A daemon that is absent, one that hangs and a stranger at its socket are three findings, because
  they need three cures. What tells them apart is an answer, and, where there is none, whether the
  daemon's lock is held.
- A socket that a dead daemon left refuses connections. That is a part of "no daemon is running":
  the next start removes it.

Nothing is made, locked or removed. What a daemon that answers says against itself is
`complaints.py`'s, and what it writes to `storage.py`'s.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from attrs import frozen

from kimiaepd.doctor.check import Check, Patient, finding, ok
from kimiaepd.doctor.complaints import complaints
from kimiaepd.doctor.places import can_write, first_look
from kimiaepd.doctor.told import told
from kimiaepd.errors import ConfigError
from kimiaepd.hook_socket.client import NotAnswering, NotRunning, request
from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.paths import SOCKET_BYTES, Paths
from kimiaepd.storage.lock_holder import lock_holder
from kimiaepd.storage.private_directory import check_private

ANSWER_SECONDS = 2.0
"""How long the daemon may take to say its status; a busy one takes some milliseconds."""

STATE, SOCKET, DAEMON = "state directory", "socket", "daemon"
START = "run: kimiaepd run (or kimiaepd service install, to have it always)"

_SOCKET_MODE = 0o600


@frozen
class Seen:
    """What was seen of the daemon.

    Attributes:
        checks: in the order in which they are shown.
        status: what it says of itself; None where it says nothing.
    """

    checks: tuple[Check, ...]
    status: JSONObject | None


async def examine(patient: Patient) -> Seen:
    """Look at the daemon and at its places; it takes `ANSWER_SECONDS` at most."""
    paths = patient.settings.paths
    places = (_state_directory(paths.state_dir), _socket(paths))
    holder = lock_holder(paths.state_dir / "daemon.lock")
    try:
        status = await request(paths.socket, "status", timeout=ANSWER_SECONDS)
    except NotRunning:
        return Seen((*places, _silent(paths, holder)), None)
    except NotAnswering:
        return Seen((*places, _unanswered(paths, holder)), None)
    except ConfigError as error:
        return Seen((*places, told(DAEMON, error, remedy=START)), None)
    if not _is_status(status):
        return Seen((*places, _odd(paths, holder, status)), None)
    return Seen((*places, _running(status), *complaints(DAEMON, patient.settings, status)), status)


# --- places ------------------------------------------------------------------------------------


def _state_directory(directory: Path) -> Check:
    if said := first_look(STATE, directory, "state_dir", shown=str(directory)):
        return said
    if not can_write(directory):
        return finding(
            STATE,
            f"{directory} cannot be written to (mode {_mode(directory):04o}, or a read-only disk)",
            f"run: chmod 700 {shlex.quote(str(directory))}",
        )
    return ok(STATE, f"{directory} is ours alone (mode {_mode(directory):04o})")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def _socket(paths: Paths) -> Check:
    path = paths.socket
    size = len(os.fsencode(path))
    if size > SOCKET_BYTES:
        return finding(
            SOCKET,
            f"{path} is {size} bytes long, and at most {SOCKET_BYTES} can be bound",
            "set socket to a shorter path",
        )
    if path.parent != paths.state_dir and os.path.lexists(path.parent):
        try:
            check_private(path.parent)
        except ConfigError as error:
            return told(SOCKET, error, remedy="set socket to a path in a directory of your own")
    budget = f"{size} of {SOCKET_BYTES} bytes"
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return ok(SOCKET, f"{path} ({budget}) is not there; the daemon makes it")
    except OSError as error:
        return finding(
            SOCKET, f"{path} cannot be looked at: {error.strerror}", "set socket to another path"
        )
    return _file_at(path, found) or ok(SOCKET, f"{path} ({budget}) is ours alone")


def _file_at(path: Path, found: os.stat_result) -> Check | None:
    """What is wrong with the file at the socket's path; None where nothing is."""
    if not stat.S_ISSOCK(found.st_mode):
        return finding(
            SOCKET,
            f"{path} is {_kind(found.st_mode)} and not a socket; no daemon can listen there",
            "move it away, or set socket to another path",
        )
    if found.st_uid != os.geteuid():
        return finding(
            SOCKET,
            f"{path} belongs to uid {found.st_uid}, and this is uid {os.geteuid()}",
            "set socket to a path in a directory of your own",
        )
    if (mode := stat.S_IMODE(found.st_mode)) != _SOCKET_MODE:
        return finding(
            SOCKET,
            f"{path} has mode {mode:04o}, and must have {_SOCKET_MODE:04o}",
            f"run: chmod 600 {shlex.quote(str(path))}",
        )
    return None


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFREG: "a regular file",
        stat.S_IFDIR: "a directory",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a FIFO",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


# --- the daemon --------------------------------------------------------------------------------


def _silent(paths: Paths, holder: int | None) -> Check:
    """Nobody listens."""
    if holder:
        return finding(
            DAEMON,
            f"pid {holder} holds {paths.state_dir / 'daemon.lock'}, but nobody listens at "
            f"{paths.socket}: it is starting or stopping, or its socket was deleted",
            f"look again in 30 s; if it is still so, run: kill {holder}; then: kimiaepd run",
        )
    return finding(DAEMON, "no daemon is running: hooks do nothing until one does", START)


def _unanswered(paths: Paths, holder: int | None) -> Check:
    """Somebody listens, and gives no answer of ours."""
    if holder:
        return finding(
            DAEMON,
            f"pid {holder} holds the daemon's lock and does not answer within {ANSWER_SECONDS:g} s:"
            " it hangs, is stopped, or is far too busy",
            f"see what it wrote last; then run: kill {holder} (kill -9 {holder} if it stays), and"
            " start it again: kimiaepd run",
        )
    return finding(
        DAEMON,
        f"what listens at {paths.socket} is not kimiaepd: it gives no answer of ours, and nobody"
        " holds the daemon's lock",
        "stop that program, or set socket to another path",
    )


def _is_status(answer: JSONObject) -> bool:
    return isinstance(answer.get("version"), str) and isinstance(answer.get("pid"), int)


def _odd(paths: Paths, holder: int | None, answer: JSONObject) -> Check:
    """It answers, but not with a status."""
    if isinstance(error := answer.get("error"), str):
        return finding(
            DAEMON,
            f"the daemon (pid {holder or 'unknown'}) cannot say its status: {tame(error)}",
            "it is a defect of kimiaepd: report what its log says",
        )
    return _unanswered(paths, None)


def _running(status: JSONObject) -> Check:
    said = status.get
    line = f"pid {said('pid')} answers: version {said('version')}, up {said('uptime_s')} s"
    return ok(DAEMON, tame(f"{line}, {said('hooks')} hooks taken in"))
