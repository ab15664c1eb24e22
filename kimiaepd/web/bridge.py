"""The bridge: every `kimi web` server of the home, each with a task of its own.

Rules:
- Servers are found by their files, which are looked at every second. A file whose process lives is
  a server; one that is killed leaves its file behind, and its process tells. A file that cannot be
  read for a moment tells nothing: its server writes it anew every 15 s.
- A server whose file names another port has not ended: until it listens it names one that it only
  wants, where another may answer.
- A server that cannot be listened to for `AWAY_SECONDS` leaves its sessions to hooks until it can:
  its file's process may be another program by now.
- A server that is no more ends what was open in its sessions, and hooks tell of them again. A stop
  of the daemon ends nothing: the next start goes on from the cursors.
- What the stream began before this start, and no server goes on with, is ended once every server
  has been asked, or after `ORPHAN_SECONDS`.
- A task that fails is begun again, and no other is touched.

What may be done at a server is `control.py`'s; everything else here only reads.
"""

from __future__ import annotations

from pathlib import Path

import structlog
import trio
from attrs import define, field

from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.storage.file_safety import lives
from kimiaepd.supervisor import Supervisor
from kimiaepd.web.client import Client
from kimiaepd.web.control import WebControl
from kimiaepd.web.feed import Feed
from kimiaepd.web.home import Instance, find
from kimiaepd.web.watch import Watch

log: structlog.stdlib.BoundLogger = structlog.get_logger()

LOOK_SECONDS = 1.0
"""Between two looks at the home: how late a server is found, or missed."""

AWAY_SECONDS = 30.0
"""How long a connection may take to come back, before hooks tell of its sessions."""

ORPHAN_SECONDS = 20.0
"""How long a server may take to be asked, before what the stream began is given up."""

MOST = 32
"""Servers that are watched at once; a home has one, or two."""


@define(eq=False)
class _Server:
    """One server's task.

    Attributes:
        has_ended: once it is to be left: whether the server itself is gone.
    """

    instance: Instance
    watch: Watch
    supervisor: Supervisor
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    has_ended: bool = True


@define(eq=False)
class Bridge:
    """All servers of one home.

    Attributes:
        home: the Kimi home.
        feed: takes what they say.
        control: the two writes; None where they are switched off.
        last_error: why the home cannot be looked at.
    """

    home: Path
    feed: Feed
    control: WebControl | None = None
    last_error: str | None = None
    _servers: dict[str, _Server] = field(factory=dict)
    _began: float = 0.0
    _orphans_are_over: bool = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled."""
        self._began, self._orphans_are_over = trio.current_time(), False
        task_status.started()
        try:
            async with trio.open_nursery() as bridge_nursery:
                if self.control:
                    self.control.use(bridge_nursery, self._client)
                while True:
                    self._look(bridge_nursery)
                    await trio.sleep(LOOK_SECONDS)
        finally:
            # Only here is it sure that no frame is under way.
            self._servers.clear()
            self.feed.forget()
            if self.control:
                self.control.close()

    def status(self, now: float) -> JSONObject:
        """What `kimiaepd status` says of it."""
        servers: list[JSON] = [
            {**one.watch.status(now), "crashes": one.supervisor.crashes}
            for one in self._servers.values()
        ]
        return {
            "mode": self.feed.mode,
            "control": self.control is not None,
            "writes": dict(self.control.counts) if self.control else {},
            "frames": self.feed.frames,
            "gaps": self.feed.gaps,
            "last_error": self.last_error,
            "servers": servers,
        }

    def _look(self, bridge_nursery: trio.Nursery) -> None:
        try:
            found = find(self.home)
        except OSError as error:
            said = tame(f"{error.filename}: {error.strerror}")
            if said != self.last_error:
                log.warning("servers of kimi web cannot be looked for", why=said)
            self.last_error = said
            return
        self.last_error = None
        there = {instance.id: instance for instance in found.servers[:MOST]}
        unread = {file.stem for file in found.odd}
        for name, server in list(self._servers.items()):
            if name in unread and lives(server.instance.pid):
                continue
            now = there.get(name)
            if now is None or _is_another(now, server.instance):
                server.has_ended = now is None or now.pid != server.instance.pid
                server.scope.cancel()
            elif server.watch.silent_seconds > AWAY_SECONDS:
                self.feed.away(name)
        for name, instance in there.items():
            if name not in self._servers and instance.base_url():
                self._begin(name, instance, bridge_nursery)
        self._look_at_orphans(is_sure=not unread)

    def _begin(self, name: str, instance: Instance, bridge_nursery: trio.Nursery) -> None:
        watch = Watch(Client(instance, self.home), self.feed)
        server = _Server(instance, watch, Supervisor(f"kimi web at {instance.port}"))
        self._servers[name] = server
        bridge_nursery.start_soon(self._watch, name, server, name=f"watch {instance.name}")

    async def _watch(self, name: str, server: _Server) -> None:
        with server.scope:
            await server.supervisor.run(server.watch.run)
        # Only here is it sure that no frame of it is under way, which would bring it back.
        del self._servers[name]
        self.feed.gone(name, is_over=server.has_ended)

    def _look_at_orphans(self, *, is_sure: bool) -> None:
        if self._orphans_are_over:
            return
        all_asked = all(server.watch.is_called for server in self._servers.values())
        if (all_asked and is_sure) or trio.current_time() >= self._began + ORPHAN_SECONDS:
            self._orphans_are_over = True
            self.feed.end_orphans()

    def _client(self, session: str) -> Client | None:
        """Who runs a session; None where nobody does."""
        server = self._servers.get(self.feed.speaker(session) or "")
        return server.watch.client if server else None


def _is_another(now: Instance, before: Instance) -> bool:
    return (now.pid, now.host, now.port) != (before.pid, before.host, before.port)
