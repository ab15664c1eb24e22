"""A listening socket handed over by systemd, or by whoever speaks its protocol (rule I9).

The protocol: LISTEN_FDS says how many descriptors there are from number 3 on, LISTEN_PID for which
process. Exactly one is taken, a listening Unix stream socket; anything else is an error that names
it, because a service that quietly listened elsewhere would never be found. The variables are taken
out of the process environment, so that no child takes them for its own.

The file belongs to the manager: it is never changed, checked or removed. Without the variables, or
where they are meant for another process, nothing is taken and the caller binds its own.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import structlog

from kimiaepd.errors import ConfigError
from kimiaepd.hook_socket.endpoint import Endpoint, adopt

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FIRST_FD = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def take(environ: Mapping[str, str], path: Path, *, first_fd: int = FIRST_FD) -> Endpoint | None:
    """The endpoint that was handed over; None where none was.

    Args:
        environ: where the variables are read.
        path: where clients connect; a warning says so if the socket is bound elsewhere.
        first_fd: the number of the first descriptor.

    Raises:
        ConfigError: not exactly one, or no listening Unix stream socket.
    """
    said = {name: environ.get(name) for name in _VARIABLES}
    for name in _VARIABLES:
        os.environ.pop(name, None)
    pid, count = said["LISTEN_PID"], said["LISTEN_FDS"]
    if pid is None and count is None:
        return None
    if pid is not None and pid != str(os.getpid()):
        log.warning("LISTEN_PID names another process; its sockets are left alone", pid=pid)
        return None
    if pid is None or count != "1":
        raise ConfigError(
            f"socket activation needs LISTEN_PID and LISTEN_FDS=1, and got LISTEN_PID={pid}, "
            f"LISTEN_FDS={count}; give the service exactly one ListenStream="
        )
    return adopt(path, _listening(first_fd, path))


def _listening(fd: int, path: Path) -> socket.socket:
    try:
        given = socket.socket(fileno=fd)
    except OSError as error:
        raise ConfigError(f"socket activation: descriptor {fd}: {error.strerror}") from error
    wrong = _what_is_wrong(given)
    if wrong:
        given.close()
        raise ConfigError(f"socket activation: descriptor {fd} is {wrong}; use ListenStream=/path")
    os.set_inheritable(fd, False)
    bound = os.fsdecode(given.getsockname())
    if bound != os.fspath(path):
        log.warning("hooks look for the socket elsewhere", bound=bound, hooks_use=str(path))
    return given


def _what_is_wrong(given: socket.socket) -> str | None:
    if given.family != socket.AF_UNIX:
        return "no Unix socket"
    if given.type != socket.SOCK_STREAM:
        return "no stream socket"
    try:
        listening = given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:
        return None  # macOS does not tell
    return None if listening else "not listening"
