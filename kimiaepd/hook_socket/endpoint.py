"""The place where hooks meet the daemon: bound in private, and cleaned up by its maker alone.

Rules (the ids are those of the project's operations rules):
- Nobody else can connect, at no moment: a private directory, then bind, chmod, listen (I1).
- A socket is stale only when it refuses a connection. An owner that is busy, stopped or slow does
  not refuse, so it is never displaced (I3).
- Only the file with our device and inode is ever unlinked (I4).
- A file that a cleaner deleted, alone or with its directory, is made again; one that another
  program put there is not fought over (I8).

It accepts nothing and reads nothing (`server.py`), and resolves no path (`paths.py`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from attrs import define, field

from kimiaepd.errors import BusyError, ConfigError
from kimiaepd.hook_socket.connection import Listener
from kimiaepd.paths import SOCKET_BYTES
from kimiaepd.storage.private_directory import create_private

BACKLOG = 512
"""Connections that the kernel keeps for us; with a short one the second hook would be refused."""

Standing: TypeAlias = Literal["mine", "gone", "taken"]
"""What is at an endpoint's path: our socket, nothing, or somebody else's file."""


@define(eq=False)
class Endpoint:
    """A listening socket and the file that leads to it; a context that cleans both up.

    Attributes:
        path: where clients connect.
        listener: what `server.py` accepts from; `rebind` puts another in its place.
    """

    path: Path
    listener: Listener
    _identity: tuple[int, int] | None = field(repr=False)
    """Device and inode of our file; None where another program owns it (socket activation)."""

    def standing(self) -> Standing:
        """What is at the path now. Another program's file is never ours to judge: "mine"."""
        if self._identity is None:
            return "mine"
        found = _identity_of(self.path)
        if found is None:
            return "gone"
        return "mine" if found == self._identity else "taken"

    def still_mine(self) -> bool:
        """Whether the path still leads to us."""
        return self.standing() == "mine"

    def touch(self) -> None:
        """Look used, for the sake of cleaners that remove old files from /tmp (I8)."""
        if self._identity is not None:
            with contextlib.suppress(OSError):
                os.utime(self.path)

    def rebind(self) -> Listener:
        """Listen at the path again after its file was deleted; the old listener is given back.

        What waits in the old one's backlog can still be accepted; its closing is the caller's.

        A directory that was deleted with it is made again.

        Raises:
            BusyError: another program was faster.
            ConfigError: the directory cannot be made, or is no longer private.
        """
        create_private(self.path.parent)
        old = self.listener
        self.listener, self._identity = _listen(self.path, BACKLOG)
        return old

    def unlink_if_mine(self) -> None:
        """Remove the file, unless it is missing, no longer ours, or cannot be removed.

        What stays refuses connections, and the next start removes it.
        """
        if self._identity is not None and self.still_mine():
            with contextlib.suppress(OSError):
                self.path.unlink()

    def close(self) -> None:
        """Stop listening and remove the file; within a Trio run, any number of times."""
        self.unlink_if_mine()
        self.listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def bind(path: Path, *, backlog: int = BACKLOG) -> Endpoint:
    """Listen at the path, in a private directory, which is made where it is missing.

    The caller holds the `DaemonLock`: between the proof that an old socket is stale and its
    removal nothing else may start.

    Raises:
        BusyError: something answers at the path, or is alive there and too busy to.
        ConfigError: the directory is not private, or the path cannot be bound.
    """
    if len(os.fsencode(path)) > SOCKET_BYTES:
        raise ConfigError(f"the socket path is longer than {SOCKET_BYTES} bytes: {path}")
    create_private(path.parent)
    _remove_stale(path)
    return Endpoint(path, *_listen(path, backlog))


def adopt(path: Path, listening: socket.socket) -> Endpoint:
    """An endpoint whose file belongs to the program that bound it: never checked nor removed."""
    return Endpoint(path, Listener.wrap(listening), None)


def _listen(path: Path, backlog: int) -> tuple[Listener, tuple[int, int]]:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound = False
    try:
        listening.bind(os.fspath(path))
        bound = True
        path.chmod(0o600)
        made = path.lstat()
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        if bound:
            path.unlink(missing_ok=True)
        if error.errno == errno.EADDRINUSE:
            raise BusyError(f"another program has just taken {path}; stop it first") from None
        raise ConfigError(f"cannot listen at {path}: {error.strerror}") from error
    return Listener.wrap(listening), (made.st_dev, made.st_ino)


def _identity_of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _remove_stale(path: Path) -> None:
    """Unlink a socket that nobody listens at any more; anything else at the path is an error."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} is there and is not a socket; move it away or give another path")
    if not _refuses(path):
        raise BusyError(f"another program listens at {path}; stop it first, or give another path")
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot remove the stale {path}: {error.strerror}") from error


def _refuses(path: Path) -> bool:
    """Whether nobody listens there: the one answer that proves it.

    Without waiting, Linux says EAGAIN where the owner's backlog is full; macOS refuses then, and
    the daemon's lock alone keeps its owner in place.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        except OSError:
            return False
    return False
