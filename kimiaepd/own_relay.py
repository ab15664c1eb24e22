"""The collector inside the daemon: used where no other relay is configured, and run beside it.

Rules:
- It is reached as any relay is: by the sender, over loopback, with the token that may control.
- It listens on this machine alone, at the wanted port or the next free one; where none of those is
  free, at any. The place is in the state directory, in `status` and on the ready line.
- A crash ends its connections and nothing else. What it holds stays, its port stays ours meanwhile,
  and the sender delivers again what was not proven.
- What cannot be had (a port, a token) leaves the daemon without a relay, and says so: hooks go on.

What a collector is stands in `collector/`; who is sent what, in `delivery.py`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import ExitStack

import structlog
import trio
from attrs import define, field

from kimiaepd.collector import envelope, place
from kimiaepd.collector.access import CODE_SECONDS, Access, Role, token_files
from kimiaepd.collector.hub import Hub
from kimiaepd.collector.routes import Collector
from kimiaepd.collector.same_site import Site
from kimiaepd.collector.serve import bind, serve
from kimiaepd.collector.token_file import TokenFile
from kimiaepd.errors import BusyError, UserError
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.relay.address import Address
from kimiaepd.settings import Settings
from kimiaepd.supervisor import Supervisor

log: structlog.stdlib.BoundLogger = structlog.get_logger()

HOST = "127.0.0.1"

STOP_SECONDS = 1.0
"""How long a stop waits for consumers to hang up, after they were told."""


@define(eq=False)
class OwnRelay:
    """The daemon's own relay.

    Attributes:
        collector: the endpoint; it outlives a crash of the task that serves it.
        address: where it is.
        supervisor: keeps it running.
        well: told each time it is there.
    """

    collector: Collector
    address: Address
    supervisor: Supervisor
    well: Callable[[], object] = lambda: None
    _control: TokenFile = field(kw_only=True, repr=False)
    _listener: socket.socket = field(kw_only=True, repr=False)

    @classmethod
    def open(cls, settings: Settings, held: ExitStack) -> OwnRelay | None:
        """Take the port, and say where it is; None where that cannot be. `held` lets go of it."""
        state_dir = settings.paths.state_dir
        try:
            listener = _bind(settings.collector.port)
        except UserError as error:
            log.warning("no relay of our own; events stay on disk", why=str(error))
            return None
        opened = held.enter_context(ExitStack())
        opened.callback(listener.close)
        envelope.warm()  # before the first hook can come, which would wait for it
        port = listener.getsockname()[1]
        url = f"http://{HOST}:{port}"
        try:
            collector = Collector(Hub(), Access.open(state_dir, Site.at(HOST, port)))
            opened.enter_context(place.announced(state_dir, url, os.getpid()))
        except (UserError, OSError) as error:
            opened.close()  # nobody shall wait at a port that is not served
            log.warning("no relay of our own; events stay on disk", why=str(error))
            return None
        return cls(
            collector,
            Address(url, HOST, port, is_tls=False, path=""),
            Supervisor("collector"),
            control=token_files(state_dir)[0],
            listener=listener,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`, or until cancelled."""
        await self.supervisor.run(self._serve, task_status=task_status)

    async def _serve(self) -> None:
        async with trio.open_nursery() as collector_nursery:
            # Ours stays open: whoever comes while there is nobody to serve him waits.
            await collector_nursery.start(serve, self.collector, self._listener.dup())
            self.well()

    def stop(self) -> None:
        """Tell every consumer that it is over; the caller has the deadline."""
        self.collector.stopping.set()

    def token(self) -> str:
        """The token that may control, as it is now.

        Raises:
            ConfigError: it cannot be read, or cannot be trusted.
        """
        return self._control.read()

    def code(self, role: Role = Role.CONTROL) -> str:
        """A one-time code for a browser."""
        return self.collector.access.issue(trio.current_time(), role)

    def admit(self, role: Role, *, with_token: bool) -> JSONObject:
        """What `kimiaepd console` needs: the place, and a code or a token that ends with us."""
        answer: JSONObject = {"url": self.address.url}
        if with_token:
            answer["token"] = self.collector.access.grant(role)
        else:
            answer |= {"code": self.code(role), "seconds": CODE_SECONDS}
        return answer

    @property
    def is_attended(self) -> bool:
        """Whether a consumer is connected that could answer."""
        return bool(self.collector.hub.commanders)

    def status(self) -> JSONObject:
        """What `kimiaepd status` says of it besides the link."""
        hub = self.collector.hub
        held: dict[str, JSON] = dict(hub.history.counters())
        return {
            "connections": self.collector.connections,
            "subscriptions": hub.subscriptions,
            "commanders": len(hub.commanders),
            "held": held,
            "refused": hub.refused,
            "crashes": self.supervisor.crashes,
        }


def _bind(port: int) -> socket.socket:
    try:
        return bind(HOST, port)
    except BusyError:
        return bind(HOST, 0)
