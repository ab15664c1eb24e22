"""Asks a running daemon one thing: ping, status, reload.

Rules:
- A daemon lives when it answers a ping, and by no other sign (rule I5): its pid, its file and an
  accepted connection prove nothing.
- "Not running" and "not answering" are different errors with different exit statuses (1 and 3),
  because they need different cures: start it, or find out what holds it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

import trio

from kimiaepd.errors import ConfigError, UserError
from kimiaepd.hook_socket.wire import Kind, NeedData, ProtocolError, ReplyReader, encode_request
from kimiaepd.mapping.json_value import JSON, JSONObject, MalformedJSONError, parse

REPLY_BYTES = 16 << 20
"""The longest answer that is read; a status of ten thousand sessions has a few MiB."""


class NotRunning(UserError):  # noqa: N818 - a state of the world, as `kimiaepd status` names it
    """Nobody listens at the socket."""


class NotAnswering(UserError):  # noqa: N818 - as above
    """Somebody listens there, and gave no whole answer in time."""

    status = 3


async def request(
    path: Path,
    kind: Kind,
    body: bytes = b"",
    *,
    timeout: float,  # noqa: ASYNC109 - its end is an error of its own, not TooSlowError
) -> JSONObject:
    """Ask, and wait at most `timeout` seconds for the whole answer.

    Raises:
        NotRunning: nobody listens there, or nobody could.
        NotAnswering: no whole answer in time, something that is no answer, or a full house.
        ConfigError: the socket is another user's.
    """
    with trio.move_on_after(timeout):
        return _understood(path, await _exchange(path, encode_request(kind, time.time_ns(), body)))
    raise NotAnswering(
        f"the daemon at {path} did not answer within {timeout:g} s; if it does not soon, restart it"
    )


async def _exchange(path: Path, frame: bytes) -> bytes:
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        await _connect(connection, path)
        stream = trio.SocketStream(connection)
        reader = ReplyReader(limit=REPLY_BYTES)
        try:
            await stream.send_all(frame)
            async for piece in stream:
                said = reader.feed(bytes(piece))
                if not isinstance(said, NeedData):
                    return said
        except (trio.BrokenResourceError, ProtocolError):
            pass
    raise NotAnswering(
        f"what listens at {path} hung up: it is busy, or is not kimiaepd; try again, or see its log"
    )


async def _connect(connection: trio.socket.SocketType, path: Path) -> None:
    try:
        await connection.connect(os.fspath(path))
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotRunning(f"no daemon is running at {path}; start it: kimiaepd run") from None
    except PermissionError:
        raise ConfigError(f"{path} belongs to another user; set your own path") from None
    except OSError as error:  # a file for a directory, another kind of socket, links in a circle
        why = error.strerror or error
        raise NotRunning(f"no daemon can be running at {path} ({why}); set another path") from None
    try:
        connection.getpeername()
    except OSError:
        # Linux refuses with EAGAIN where the backlog is full; it is no promise of a connection, as
        # it is for other sockets, but Trio takes it for one.
        raise NotAnswering(
            f"the daemon at {path} is busy: too many are waiting for it; try again, or restart it"
        ) from None


def _understood(path: Path, body: bytes) -> JSONObject:
    answer: JSON = None
    with contextlib.suppress(MalformedJSONError):
        answer = parse(body)
    if not isinstance(answer, dict):
        raise NotAnswering(f"what listens at {path} gave no answer that kimiaepd would give")
    return answer
