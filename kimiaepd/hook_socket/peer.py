"""Who is at the other end of a connection, and whether they are still there (rule I6).

The kernel is asked: SO_PEERCRED on Linux; LOCAL_PEERCRED on macOS, for which Python has no wrapper.
On any other system nothing answers, and the private directory alone keeps others out.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Protocol

import trio
from attrs import frozen

_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1
"""From macOS's <sys/un.h>."""

_UCRED = struct.Struct("iII")
_XUCRED_BYTES = 76


class Receives(Protocol):
    """The part of a connection that hears from its peer."""

    async def receive_some(self) -> bytes:
        """The next bytes; nothing at all at the end."""
        ...


class HasOptions(Protocol):
    """The part of a socket that knows its peer."""

    def getsockopt(self, level: int, option: int, length: int, /) -> bytes:
        """The option's value."""
        ...


def peer_uid(connected: HasOptions) -> int | None:
    """The uid of the process that connected; None where the system cannot say.

    Raises:
        OSError: the peer went before it could be asked (macOS alone).
    """
    if sys.platform == "linux":
        peercred = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        uid = uid_of_ucred(peercred)
    elif sys.platform == "darwin":
        peercred = connected.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES)
        uid = uid_of_xucred(peercred)
    else:
        uid = None
    return uid


def uid_of_ucred(raw: bytes) -> int:
    """From Linux's `struct ucred`: pid, uid, gid."""
    return int(_UCRED.unpack(raw)[1])


def uid_of_xucred(raw: bytes) -> int | None:
    """From macOS's `struct xucred`: version (always 0), uid, groups; None for a version unknown."""
    version, uid = struct.unpack_from("II", raw)
    return int(uid) if version == 0 else None


@frozen(eq=False)
class Peer:
    """The client whose request is being handled."""

    _connection: Receives

    async def gone(self) -> None:
        """Return when the client hung up; what else it sends is thrown away.

        For a held call to race against. Only one task may wait at a time; who does not wait pays
        nothing.
        """
        try:
            while await self._connection.receive_some():
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
