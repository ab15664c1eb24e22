"""The port of a scripted `kimi web` server, its file, and its end.

One listener for HTTP and WebSockets, as the real one has it. A REST call has its connection for
itself. The file says where the server is from before it listens until its clean end; who is killed
leaves it behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import h11
import trio
from attrs import define, field

from kap_journal import ulid
from kap_rest import API, Call, query
from kap_socket import Connection
from kimiaepd.mapping.json_value import JSONObject

if TYPE_CHECKING:
    from kap_server import KapServer

SOCKET = f"{API}/ws"


@define(eq=False)
class Port:
    """Where one server listens.

    Attributes:
        number: on 127.0.0.1; 0 for any, until it listens.
        is_known: whether its file says so from the start.
        id: of its file.
        is_mortal: its file names a process of its own, that dies with it.
        pid: what its file says otherwise; this process by default.
        gone: it is at its end.
    """

    server: KapServer
    number: int = 0
    is_known: bool = True
    id: str = field(factory=ulid)
    is_mortal: bool = False
    pid: int = field(factory=os.getpid)
    gone: trio.Event = field(factory=trio.Event)
    _listener: trio.SocketListener | None = None
    _nursery: trio.Nursery | None = None
    _is_killed: bool = False
    _stand_in: subprocess.Popen[bytes] | None = None

    @property
    def file(self) -> Path:
        """Where the home says of it."""
        return self.server.home.instances / f"{self.id}.json"

    def register(self, number: int) -> None:
        """Write the file; with port 0 it says that the server is not ready."""
        if self.is_mortal and self._stand_in is None:
            self._stand_in = subprocess.Popen(["sleep", "600"])
        now = int(time.time() * 1000)
        said: JSONObject = {
            "server_id": self.id,
            "pid": self._stand_in.pid if self._stand_in else self.pid,
            "host": "127.0.0.1",
            "port": number,
            "started_at": now,
            "heartbeat_at": now,
            "host_version": self.server.version,
        }
        self.file.write_text(json.dumps(said))

    def stop(self) -> None:
        """Listen no more, and end when nobody is connected any longer."""
        assert self._listener
        self._listener.socket.close()

    def kill(self) -> None:
        """Cut every connection, and leave the file."""
        assert self._nursery
        self._is_killed = True
        self.stop()
        self._die()
        self._nursery.cancel_scope.cancel()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until stopped or killed."""
        (self._listener,) = await trio.open_tcp_listeners(self.number, host="127.0.0.1")
        self.number = self._listener.socket.getsockname()[1]
        self.register(self.number if self.is_known else 0)
        try:
            async with trio.open_nursery() as connection_nursery:
                self._nursery = connection_nursery
                task_status.started()
                with suppress(trio.ClosedResourceError):
                    while True:
                        connection_nursery.start_soon(self._serve, await self._listener.accept())
        finally:
            self._listener.socket.close()
            if not self._is_killed:
                self.file.unlink(missing_ok=True)
            self._die()
            self.gone.set()
            self.server.changed()

    def _die(self) -> None:
        if self._stand_in:
            self._stand_in.kill()
            self._stand_in.wait()

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            if not self.server.switches.hang_up:
                await self._talk(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            pass  # a client that went, or no client at all
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _talk(self, stream: trio.SocketStream) -> None:
        http = h11.Connection(h11.SERVER)
        request = await _next(http, stream)
        if not isinstance(request, h11.Request):
            return
        headers, target = dict(request.headers), request.target.decode("latin-1")
        path, asked = query(target)
        if headers.get(b"upgrade", b"").lower() == b"websocket":
            if path == SOCKET:
                rest, _ = http.trailing_data
                await Connection(self.server, stream).run(target, list(request.headers), rest)
            return
        body = b""
        while isinstance(event := await _next(http, stream), h11.Data):
            body += event.data
        bearer = headers.get(b"authorization")
        said = bearer.decode("latin-1") if bearer is not None else None
        call = Call(request.method.decode(), path, asked, body, said)
        await self._answer(stream, call, headers)

    async def _answer(
        self, stream: trio.SocketStream, call: Call, headers: dict[bytes, bytes]
    ) -> None:
        instead = self.server.switches.instead
        if call.name in instead:
            self.server.rest.calls.append(call)
            reply = instead[call.name]
        else:
            reply = self.server.rest.answer(call, headers).bytes()
        self.server.changed()
        if reply is None:
            await trio.sleep_forever()
        else:
            await stream.send_all(reply)


async def _next(http: h11.Connection, stream: trio.SocketStream) -> object:
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(bytes(await stream.receive_some()))
    return event
