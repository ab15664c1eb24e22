"""A scripted `kimi web` server: real HTTP and WebSockets on loopback, and a test says what it says.

    home = KapHome(tmp_path)
    async with serving(home) as server:
        server.session("s1")                          # live, and nothing runs in it
        server.say("s1", "turn.started", {"turnId": 0, "origin": {"kind": "user"}})

It behaves as the real one was seen to (`vendor/web.md`, 0.28.0 to 2.1.0): who is told what, what
is replayed, what wakes a session, how it ends. It writes down what it was asked. Its `Switches`
are the ways in which it, or what stands at its port, can fail.

What it does not do: no model, no turns of its own, and no write but the two that are allowed. A
test says each frame, or each step (`kap_turns.py`); only an answered approval and an aborted turn
are said by themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
from attrs import define, field

from kap_journal import GLOBAL, NOW, Journal, KapHome, Session, Work, members, ulid
from kap_port import Port
from kap_rest import Call, Rest
from kap_socket import Connection
from kap_switches import Switches
from kimiaepd.mapping.json_value import JSONObject

HEARTBEAT = 10.0

_GLOBAL_TYPES = re.compile(r"session\.meta\.updated|event\.(session|workspace|config)\..+")
_SERVER_TYPES = re.compile(r"event\.(session\.(archived|deleted)|workspace\..+|config\..+)")
"""Those that stand in the journal of the whole server."""

_LOCAL = re.compile(rb"(https?://)?(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")


@define(eq=False)
class KapServer:
    """One server of a home.

    Attributes:
        version: the vendor's; it decides how it behaves.
        heartbeat: seconds between its pings; None where it sends none, as 0.28.0.
        own_id: its name for itself, which is not its file's.
        live: what the sessions do that it runs, by id.
        connections: every WebSocket that there was.
        rest: the REST calls.
        failures: what killed it, or would have: nothing, unless a client is at fault. The block of
            `serving` ends with an error where there are any.
    """

    home: KapHome
    version: str = "2.1.0"
    switches: Switches = field(factory=Switches)
    heartbeat: float | None = HEARTBEAT
    own_id: str = field(factory=ulid)
    live: dict[str, Work] = field(factory=dict)
    connections: list[Connection] = field(factory=list)
    failures: list[str] = field(factory=list)
    rest: Rest = field(init=False)
    at: Port = field(init=False)
    _changed: trio.Event = field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.rest = Rest(self)
        self.at = Port(self)
        if self.is_old:
            self.heartbeat = None

    # --- what there is, and what it was asked ----------------------------------------------------

    @property
    def is_old(self) -> bool:
        """Whether it is one from before 0.42.0."""
        return tuple(int(part) for part in self.version.split(".")) < (0, 42)

    @property
    def port(self) -> int:
        """On 127.0.0.1."""
        return self.at.number

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
        """Wait until a client is told of a session; gives the last one that is."""
        await self.until(lambda: any(session in one.subscriptions for one in self.open), seconds)
        return next(one for one in reversed(self.open) if session in one.subscriptions)

    async def drained(self, seconds: float = 10) -> None:
        """Wait until all that was said is sent: no kill can take it back."""
        await self.until(lambda: not any(one.waiting for one in self.open), seconds)

    # --- its sessions, and what is said of them --------------------------------------------------

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
        journal = self._journal(place)
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
            self._journal(place).add(frame)
        about = str(members(frame["payload"]).get("sessionId"))
        if about in self.home.sessions:
            self.home.sessions[about].note(frame)
        if about in self.live:
            self.live[about].note(frame)
        text = json.dumps(frame)
        for connection in self.open:
            for _ in range(self._copies(connection, place, str(frame["type"]))):
                connection.send(text)
        self.changed()

    async def flood(self, session: str, count: int = 50_000) -> None:
        """Say volatile frames, as fast as they can be made."""
        for number in range(count):
            delta: JSONObject = {"turnId": 0, "delta": f"w{number} "}
            self.say(session, "assistant.delta", delta, volatile=True, offset=number)
            if number % 100 == 0:
                await trio.lowlevel.checkpoint()

    def _journal(self, place: str) -> Journal:
        return self.home.journal if place == GLOBAL else self.home.sessions[place].journal

    def _copies(self, connection: Connection, place: str, type_: str) -> int:
        """How often a client is told of it."""
        if _GLOBAL_TYPES.fullmatch(type_):
            return len(connection.subscriptions) if self.is_old else 1
        return int(place in connection.subscriptions and place in self.live)

    # --- what else a test makes it do ------------------------------------------------------------

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

    def ready(self) -> None:
        """Say in its file where it listens, where that was not known from the start."""
        self.at.register(self.port)

    def stop(self) -> None:
        """SIGTERM: it listens no more at once, and ends when the last WebSocket is closed."""
        self.at.stop()

    def kill(self) -> None:
        """SIGKILL: every connection is cut, and its file is left behind."""
        self.at.kill()

    async def ended(self, seconds: float = 10) -> None:
        """Wait until it is gone: nobody is connected, and its file is where it belongs."""
        with trio.fail_after(seconds):
            await self.at.gone.wait()

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
        """A client sent a cursor that is null: 0.28.0 dies, later ones answer no more."""
        self.failures.append("a null cursor")
        if self.is_old:
            self.kill()


@asynccontextmanager
async def serving(
    home: KapHome,
    version: str = "2.1.0",
    *,
    switches: Switches | None = None,
    heartbeat: float = HEARTBEAT,
    port: int = 0,
    port_is_known: bool = True,
    pid: int | None = None,
    is_mortal: bool = False,
) -> AsyncIterator[KapServer]:
    """A server until the block ends; then it is gone, and its file too unless it was killed.

    Args:
        home: whose server it is.
        version: the vendor's.
        switches: how it misbehaves.
        heartbeat: seconds between its pings; 0.28.0 sends none.
        port: where it listens, such as where one did that was killed.
        port_is_known: else its file has port 0 until `ready`.
        pid: what its file says; this process by default.
        is_mortal: its file names a process of its own, which dies with it.
    """
    server = KapServer(home, version, switches or Switches(), heartbeat)
    server.at.number, server.at.is_known = port, port_is_known
    if pid is not None:
        server.at.pid = pid
    server.at.is_mortal = is_mortal
    async with trio.open_nursery() as server_nursery:
        await server_nursery.start(server.at.run)
        yield server
        server_nursery.cancel_scope.cancel()
    assert not server.failures, server.failures
