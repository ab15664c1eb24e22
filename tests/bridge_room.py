"""The bridge on real ground: its servers are scripted ones on loopback, its log is a scratch one.

Time runs five times as fast as outside (`fast_clock`): what the bridge waits for is real, and its
own waits are not.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import define

from daemon_room import Room, opened
from kap_journal import KapHome
from kimiaepd.commands import Command, Decision
from kimiaepd.mapping.capture import Ceilings
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.settings import WebMode
from kimiaepd.storage.ledger import Ledger
from kimiaepd.supervisor import Supervisor
from kimiaepd.web.bridge import Bridge
from kimiaepd.web.control import WebControl
from kimiaepd.web.cursors import CURSORS, Cursors
from kimiaepd.web.feed import Feed

PATIENCE = 600.0
"""How long a test waits for what must come; two minutes of ours, on a machine that may be busy."""

FULL = Ceilings(Capture.FULL, {})


@define(eq=False)
class BridgeRoom:
    """A bridge that runs, and what it logged."""

    room: Room
    bridge: Bridge
    scope: trio.CancelScope

    @property
    def feed(self) -> Feed:
        return self.bridge.feed

    @property
    def status(self) -> JSONObject:
        return self.bridge.status(trio.current_time())

    @property
    def server(self) -> JSONObject:
        """What the status says of the only server."""
        servers = self.status["servers"]
        assert isinstance(servers, list)
        (server,) = servers
        assert isinstance(server, dict)
        return server

    def core(self, session: str = "s1") -> list[JSON]:
        """The types logged, in order, without the vendor's own."""
        return [kind for kind in self.types(session) if not str(kind).startswith("x.")]

    def types(self, session: str = "s1") -> list[JSON]:
        return self.room.types(session)

    def events(self, session: str = "s1") -> list[JSONObject]:
        return self.room.events(session)

    def only(self, kind: str, session: str = "s1") -> JSONObject:
        (event,) = (event for event in self.events(session) if event["type"] == kind)
        return event

    def data(self, kind: str, session: str = "s1") -> JSONObject:
        found = self.only(kind, session)["data"]
        assert isinstance(found, dict)
        return found

    async def until(self, kind: str, count: int = 1, session: str = "s1") -> None:
        """Wait until so many events of a type are logged."""
        await self.so(lambda: self.types(session).count(kind) >= count)

    async def so(self, condition: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Wait until something is so."""
        with trio.fail_after(seconds):
            while not condition():  # noqa: ASYNC110 - the log tells nobody, and virtual time is short
                await trio.sleep(0.05)

    def respond(
        self, ask: JSONObject, answer: JSONObject, command: str = "cmd1"
    ) -> Decision | None:
        """A person's answer, as the daemon takes it."""
        control = self.bridge.control
        assert control is not None
        subject, session = str(ask["id"]), str(ask["session"])
        kind = "control.attention.respond"
        taken = control.respond(
            Command(command, "desk", kind, session, subject, {"answer": answer})
        )
        _go_on(taken)
        return taken

    def cancel(self, session: str = "s1", command: str = "cmd1", **data: JSON) -> Decision:
        """A person's wish that a run ends."""
        control = self.bridge.control
        assert control is not None
        taken = control.cancel(Command(command, "desk", "control.cancel", session, None, data))
        _go_on(taken)
        return taken


def _go_on(taken: Decision | None) -> None:
    if taken and taken.then:
        taken.then()


@asynccontextmanager
async def bridged(
    folder: Path,
    home: KapHome,
    mode: WebMode = "primary",
    *,
    control: bool = False,
    supervisor: Supervisor | None = None,
    epoch: int = 1,
    ceilings: Ceilings = FULL,
) -> AsyncIterator[BridgeRoom]:
    """A bridge until the block ends; opening the folder in another epoch is the next start.

    With a supervisor it is begun again where it fails, as in the daemon.
    """
    with opened(folder, epoch=epoch, ceilings=ceilings) as room:
        ledger = Ledger.open(folder / CURSORS)
        feed = Feed(room.book, Cursors(ledger), mode)
        room.book.is_streamed = feed.is_streamed
        writes = WebControl(room.book, lambda: True) if control else None
        if writes:
            feed.offer, feed.outcome = writes.offer, writes.outcome
        bridge = Bridge(home.path, feed, writes)
        try:
            async with trio.open_nursery() as bridge_nursery:
                if supervisor:
                    await bridge_nursery.start(supervisor.run, bridge.run)
                else:
                    await bridge_nursery.start(bridge.run)
                yield BridgeRoom(room, bridge, bridge_nursery.cancel_scope)
                bridge_nursery.cancel_scope.cancel()
        finally:
            ledger.close()


def words(events: list[JSONObject]) -> str:
    """Everything that events say, as one text."""
    return json.dumps(events)
