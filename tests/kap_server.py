"""A scripted `kimi web` server: real HTTP and WebSockets on loopback, and a test says what it says.

    home = KapHome(tmp_path)
    async with serving(home) as server:
        server.session("s1")                          # live, and nothing runs in it
        server.say("s1", "turn.started", {"turnId": 0, "origin": {"kind": "user"}})

It behaves as the real one was seen to (`vendor/web.md`, 0.28.0 to 2.1.0): who is told what, what
is replayed, what wakes a session, how it ends. It writes down what it was asked. Its `Switches`
are the ways in which it, or what stands at its port, can fail.

What it does not do: no model, no turns of its own, and no write but the two that are allowed. A
test says each frame; only an answered ask and an aborted turn come by themselves.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import h11
import trio
from attrs import define, field

from kap_journal import GLOBAL, NOW, KapHome, Session, Work, ulid
from kap_rest import API, Call, Rest, query
from kap_socket import Connection
from kimiaepd.mapping.json_value import JSONObject

HEARTBEAT = 10.0
SOCKET = f"{API}/ws"

_GLOBAL_TYPES = re.compile(r"session\.meta\.updated|event\.(session|workspace|config)\..+")
_SERVER_TYPES = re.compile(r"event\.(session\.(archived|deleted)|workspace\..+|config\..+)")
"""Those that stand in the journal of the whole server."""

_LOCAL = re.compile(rb"(https?://)?(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")


@define(eq=False)
class Switches:
    """How a server misbehaves; may be changed while it runs.

    Attributes:
        hang_up: close each TCP connection as soon as it is there.
        never_shakes_hands: take the WebSocket's handshake and say nothing.
        no_hello: shake hands and say nothing.
        no_ack: subscribe, and never say so.
        never_close: leave a client's goodbye unanswered, and the connection open.
        ping_at_goodbye: send protocol pings before the answer to it.
        instead: what goes back to a REST call, by its name such as "GET /api/v1/meta": these bytes,
            or nothing for ever.
        reacts: an ask that is answered, and a turn that is aborted, are said to have ended.
    """

    hang_up: bool = False
    never_shakes_hands: bool = False
    no_hello: bool = False
    no_ack: bool = False
    never_close: bool = False
    ping_at_goodbye: bool = False
    instead: dict[str, bytes | None] = field(factory=dict)
    reacts: bool = True


@define(eq=False)
class KapServer:
    """One server of a home.

    Attributes:
        version: the vendor's; it decides how it behaves.
        heartbeat: seconds between its pings; None where it sends none, as 0.28.0.
        port: on 127.0.0.1.
        pid: what its file says.
        live: what the sessions do that it runs, by id.
        connections: every WebSocket that there was.
        failures: what killed it, or would have: nothing, unless a client is at fault.
        gone: it is at its end, and its port is closed.
    """

    home: KapHome
    version: str = "2.1.0"
    switches: Switches = field(factory=Switches)
    heartbeat: float | None = HEARTBEAT
    port: int = 0
    pid: int = field(factory=os.getpid)
    id: str = field(factory=ulid)
    own_id: str = field(factory=ulid)
    live: dict[str, Work] = field(factory=dict)
    connections: list[Connection] = field(factory=list)
    failures: list[str] = field(factory=list)
    gone: trio.Event = field(factory=trio.Event)
    rest: Rest = field(init=False)
    _listener: trio.SocketListener | None = None
    _nursery: trio.Nursery | None = None
    _is_killed: bool = False
    _changed: trio.Event = field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.rest = Rest(self)
        if self.is_old:
            self.heartbeat = None

    # --- what there is ---------------------------------------------------------------------------

    @property
    def is_old(self) -> bool:
        """Whether it is one from before 0.42.0."""
        return tuple(int(part) for part in self.version.split(".")) < (0, 42)

    @property
    def file(self) -> Path:
        """Where it says where it is."""
        return self.home.instances / f"{self.id}.json"

    @property
    def open(self) -> list[Connection]:
        """The WebSockets that are open now."""
        return [one for one in self.connections if not one.is_over]

    @property
    def calls(self) -> list[Call]:
        """The REST calls that came, in order."""
        return self.rest.calls

    @property
    def writes(self) -> list[Call]:
        """Those that would change something."""
        return [call for call in self.calls if call.method != "GET"]

    @property
    def said(self) -> list[JSONObject]:
        """What its clients said on their WebSockets, one client after the other."""
        return [frame for connection in self.connections for frame in connection.said]

    @property
    def woken(self) -> list[str]:
        """The sessions of the home that were woken, each of which ran the person's hooks."""
        return [name for name, session in self.home.sessions.items() if session.woken]

    async def until(self, condition: Callable[[], bool], seconds: float = 10) -> None:
        """Wait until something is so: looked at whenever something was asked, said or sent."""
        with trio.fail_after(seconds):
            while not condition():
                await self._changed.wait()

    async def subscribed(self, session: str, seconds: float = 10) -> Connection:
        """Wait until a client is told of a session."""
        await self.until(lambda: any(session in one.subscriptions for one in self.open), seconds)
        return next(one for one in self.open if session in one.subscriptions)

    async def drained(self, seconds: float = 10) -> None:
        """Wait until all that was said is sent: no kill can take it back."""
        await self.until(lambda: not any(one.waiting for one in self.open), seconds)

    # --- what a test makes it do -----------------------------------------------------------------

    def session(
        self, name: str, *, live: bool = True, epoch: str | None = None, seq: int = 0
    ) -> Session:
        """A session that was there before; nothing is said of it. See `KapHome.session`."""
        session = self.home.session(name, epoch=epoch, seq=seq)
        if live:
            self.live.setdefault(name, Work())
        return session

    def create(self, name: str) -> Session:
        """A new session, live, and announced as such."""
        session = self.session(name)
        self.say(name, "event.session.created", {"session": self.rest.shown(session)})
        return session

    def say(
        self,
        session: str,
        type_: str,
        payload: JSONObject | None = None,
        *,
        volatile: bool = False,
        offset: int | None = None,
    ) -> JSONObject:
        """Say a frame to everybody who is told of the session; gives it as it goes out.

        Args:
            session: its id; `__global__` for what concerns none.
            type_: the vendor's.
            payload: beside `type`, `sessionId` and `agentId` (the main agent's).
            volatile: it has no place of its own in the journal, and is not replayed.
            offset: where a delta begins.
        """
        place = GLOBAL if _SERVER_TYPES.fullmatch(type_) else session
        journal = self.home.journal if place == GLOBAL else self.home.sessions[place].journal
        frame: JSONObject = {
            "type": type_,
            "seq": journal.seq + (not volatile),
            "session_id": place,
            "timestamp": NOW,
            "payload": {"type": type_, "agentId": "main", "sessionId": session, **(payload or {})},
            "epoch": journal.epoch,
        }
        if volatile:
            frame["volatile"] = True
        if offset is not None:
            frame["offset"] = offset
        self.relay(frame)
        return frame

    def relay(self, frame: JSONObject) -> None:
        """Say a frame that has its place and its session already, such as one of a capture."""
        place = str(frame["session_id"])
        if frame.get("volatile") is not True:
            journal = self.home.journal if place == GLOBAL else self.home.sessions[place].journal
            journal.add(frame)
        if place in self.home.sessions:
            self.home.sessions[place].note(frame)
        if place in self.live:
            self.live[place].note(frame)
        text = json.dumps(frame)
        is_global = _GLOBAL_TYPES.fullmatch(str(frame["type"])) is not None
        for connection in self.open:
            for _ in range(self._copies(connection, place, is_global=is_global)):
                connection.send(text)
        self.changed()

    def _copies(self, connection: Connection, place: str, *, is_global: bool) -> int:
        if is_global:
            return len(connection.subscriptions) if self.is_old else 1
        return 1 if place in connection.subscriptions and place in self.live else 0

    def resolve(self, session: str, approval: str, verdict: JSONObject | None = None) -> None:
        """Say that an approval was answered; without a verdict, that it is no longer asked."""
        kept = ("decision", "feedback", "scope", "selected_label")
        said = {name: value for name, value in (verdict or {}).items() if name in kept}
        resolved: JSONObject = {"approval_id": approval, **said, "resolved_at": NOW}
        self.say(session, "event.approval.resolved", resolved)
        self.work_changed(session)

    def abort(self, session: str) -> None:
        """Say what an aborted turn comes to; nothing where none runs."""
        work = self.live[session]
        if work.turn is None:
            return
        turn = work.turn
        for question in list(work.questions):
            dismissed: JSONObject = {"question_id": question, "dismissed_at": NOW}
            self.say(session, "event.question.dismissed", dismissed)
        ended: JSONObject = {"turnId": turn["turn_id"], "reason": "cancelled", "durationMs": 5}
        self.say(session, "turn.ended", ended)
        for approval in list(work.approvals):
            self.resolve(session, approval)
        self.work_changed(session)
        aborted: JSONObject = {"promptId": turn["current_prompt_id"], "abortedAt": NOW}
        self.say(session, "prompt.aborted", aborted)

    def work_changed(self, session: str) -> None:
        """Say what a session does now."""
        shown = self.rest.shown(self.home.sessions[session])
        names = ("busy", "main_turn_active", "pending_interaction", "last_turn_reason")
        changed = {name: shown[name] for name in names if name in shown}
        self.say(session, "event.session.work_changed", changed)

    def flood(self, session: str, count: int = 50_000) -> None:
        """Say volatile frames."""
        for number in range(count):
            delta: JSONObject = {"turnId": 0, "delta": f"w{number} "}
            self.say(session, "assistant.delta", delta, volatile=True, offset=number)

    def send(self, message: JSONObject | str | bytes) -> None:
        """Send a message, of whatever kind, to everybody; see `Connection.send`."""
        for connection in self.open:
            connection.send(message)

    def send_raw(self, data: bytes) -> None:
        """Send bytes to everybody that are no whole message, or none at all."""
        for connection in self.open:
            connection.send_raw(data)

    def ping(self) -> list[str]:
        """Send everybody a ping now; gives the nonces."""
        return [connection.ping() for connection in self.open]

    def rotate(self, token: str) -> None:
        """`kimi web rotate-token`; who is connected stays so."""
        self.home.rotate(token)

    def stop(self) -> None:
        """SIGTERM: it listens no more at once, and ends when the last WebSocket is closed."""
        assert self._listener
        self._listener.socket.close()

    def kill(self) -> None:
        """SIGKILL: every connection is cut, and its file is left behind."""
        assert self._nursery
        self._is_killed = True
        self.stop()
        self._nursery.cancel_scope.cancel()

    # --- its life --------------------------------------------------------------------------------

    async def run(self, *, port_is_known: bool = True, task_status: trio.TaskStatus[None]) -> None:
        """Serve until stopped or killed."""
        (listener,) = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
        self._listener = listener
        self.port = listener.socket.getsockname()[1]
        self.register(self.port if port_is_known else 0)
        try:
            async with trio.open_nursery() as connection_nursery:
                self._nursery = connection_nursery
                task_status.started()
                with suppress(trio.ClosedResourceError):
                    while True:
                        connection_nursery.start_soon(self._serve, await listener.accept())
        finally:
            listener.socket.close()
            if not self._is_killed:
                self.file.unlink(missing_ok=True)
            self.gone.set()
            self.changed()

    def register(self, port: int | None = None) -> None:
        """Write its file; with port 0 it says that it is not ready."""
        now = int(time.time() * 1000)
        said: JSONObject = {
            "server_id": self.id,
            "pid": self.pid,
            "host": "127.0.0.1",
            "port": self.port if port is None else port,
            "started_at": now,
            "heartbeat_at": now,
            "host_version": self.version,
        }
        self.file.write_text(json.dumps(said))

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            if not self.switches.hang_up:
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
                await Connection(self, stream).run(target, list(request.headers), rest)
            return
        body = b""
        while isinstance(event := await _next(http, stream), h11.Data):
            body += event.data
        bearer = headers.get(b"authorization")
        call = Call(
            request.method.decode(), path, asked, body, bearer.decode("latin-1") if bearer else None
        )
        answer = self.rest.answer(call, headers).bytes()
        self.changed()
        instead = self.switches.instead.get(call.name, answer)
        if instead is None:
            await trio.sleep_forever()
        else:
            await stream.send_all(instead)

    # --- what its parts ask ----------------------------------------------------------------------

    def changed(self) -> None:
        """Let everybody look again who waits for something."""
        self._changed.set()
        self._changed = trio.Event()

    def is_ours(self, headers: dict[bytes, bytes], *, origin: bool = True) -> bool:
        """Whether a request names this machine as its host, and comes from no other page."""
        hosts = [headers.get(b"host", b"")]
        if origin:
            hosts.append(headers.get(b"origin", b"null"))
        return all(host == b"null" or _LOCAL.fullmatch(host) for host in hosts)

    def live_session(self, name: str) -> Session | None:
        """A session that can be subscribed to here."""
        return self.home.sessions[name] if name in self.live else None

    def wake(self, session: Session, why: str) -> Work:
        """What a live session does; a cold one is live from now on, which runs the hooks."""
        if session.id not in self.live:
            session.woken.append(why)
            self.live[session.id] = Work()
        return self.live[session.id]

    def null_cursor(self) -> None:
        """A client sent a cursor that is null."""
        self.failures.append("a null cursor")
        if self.is_old:
            self.kill()


async def _next(http: h11.Connection, stream: trio.SocketStream) -> object:
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(bytes(await stream.receive_some()))
    return event


@asynccontextmanager
async def serving(
    home: KapHome,
    version: str = "2.1.0",
    *,
    switches: Switches | None = None,
    heartbeat: float = HEARTBEAT,
    port: int = 0,
    pid: int | None = None,
    port_is_known: bool = True,
) -> AsyncIterator[KapServer]:
    """A server until the block ends; then it is gone, and its file too unless it was killed."""
    server = KapServer(
        home,
        version,
        switches=switches or Switches(),
        heartbeat=heartbeat,
        port=port,
        pid=os.getpid() if pid is None else pid,
    )
    async with trio.open_nursery() as server_nursery:

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            await server.run(port_is_known=port_is_known, task_status=task_status)

        await server_nursery.start(run)
        yield server
        server_nursery.cancel_scope.cancel()
    assert not server.failures
