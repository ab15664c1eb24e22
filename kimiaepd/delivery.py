"""Delivery as the daemon has it: the sender made from its settings, presence, and commands.

Rules:
- It goes to the relay that `relay.url` names, else to our own (`own_relay.py`); where there is
  neither, nothing of it runs.
- `agent.presence` says online after each hello and offline before an orderly end; `agent.health`
  says when a part of the daemon degrades or recovers. They belong to no session, and are in no log.
- What cannot be used (a relay in plain text elsewhere) ends the start with a line, not a thread.

How events travel is `relay/`'s business, what a command means its handlers'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Literal

import trio
from attrs import define, frozen

from kimiaepd.commands import Command, Commands
from kimiaepd.emitter import Emitter, source_of
from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.own_relay import OwnRelay
from kimiaepd.relay import frames
from kimiaepd.relay.address import Address, address_of
from kimiaepd.relay.positions import Positions, Proven
from kimiaepd.relay.recent import RecentPositions
from kimiaepd.relay.rejects import NAME as REJECTS
from kimiaepd.relay.rejects import Rejects
from kimiaepd.relay.sender import RelaySender
from kimiaepd.relay_token import relay_token
from kimiaepd.sessions import SessionBook
from kimiaepd.settings import Settings
from kimiaepd.supervisor import Supervisor


@define(eq=False)
class Delivery:
    """One relay, and what it sends back.

    Attributes:
        sender: delivers.
        commands: takes what comes back.
        supervisor: keeps the sender running.
        own: the relay, where it is our own.
    """

    sender: RelaySender
    commands: Commands
    supervisor: Supervisor
    own: OwnRelay | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver until told to stop and everything was, or until cancelled."""
        await self.supervisor.run(self.sender.run, task_status=task_status)

    @property
    def is_controlled(self) -> bool:
        """Whether commands could come over it at all, once it is connected."""
        return self.own is not None or self.sender.has_token

    def is_answerable(self, *, is_notified: bool = False) -> bool:
        """Whether somebody could answer (AEP-0004 section 4.1): never over an open connection.

        Of a relay that is not ours nobody knows who looks at it; of ours we know.

        Args:
            is_notified: whether somebody is told of each hold, who may come and look then.
        """
        attended = self.own is None or self.own.is_attended
        return self.sender.is_authenticated and (attended or is_notified)

    def removed(self, session: str) -> None:
        """A session's log is gone."""
        self.sender.removed(session)

    def status(self) -> JSONObject:
        """What `kimiaepd status` says of it."""
        decided: dict[str, JSON] = dict(self.commands.taken)
        return {
            **self.sender.status(),
            "crashes": self.supervisor.crashes,
            "commands": {**decided, "repeated": self.commands.repeated},
            "own": self.own.status() if self.own else None,
        }


@frozen
class _Target:
    """A relay as the sender needs it."""

    address: Address
    token: Callable[[], str | None]
    positions: Proven


def _target(
    settings: Settings, environ: Mapping[str, str], held: ExitStack, own: OwnRelay | None
) -> _Target | None:
    address = address_of(settings.relay)
    if address is not None:
        positions = Positions.open(settings.paths.state_dir, address.url)
        held.callback(positions.close)
        return _Target(address, lambda: relay_token(settings.relay, environ), positions)
    return _Target(own.address, own.token, RecentPositions()) if own else None


def open_delivery(
    settings: Settings,
    environ: Mapping[str, str],
    book: SessionBook,
    held: ExitStack,
    own: OwnRelay | None = None,
) -> Delivery | None:
    """Delivery to the relay that there is; None where there is none. `held` closes what it opens.

    Args:
        settings: they name a relay, or none.
        environ: the environment, for its token.
        book: the sessions.
        held: closes what is opened here.
        own: our own relay, where no other is configured.

    Raises:
        ConfigError: the relay cannot be used, or the positions cannot be kept.
    """
    target = _target(settings, environ, held, own)
    if target is None:
        return None
    emitter = book.emitter
    sender = RelaySender(
        address=target.address,
        token=target.token,
        log_dir=settings.paths.log_dir,
        positions=target.positions,
        rejects=Rejects(settings.paths.state_dir / REJECTS),
        hello=lambda token: frames.hello(
            f"{book.host}/{book.epoch}", emitter.ceilings.highest, commands.accepts if token else ()
        ),
        first=lambda: _greeting(emitter, book.host),
        last=lambda: [_presence(emitter, book.host, "offline")],
        claims=book.going_on,
        is_own=own is not None,
    )
    commands = Commands(
        is_known=book.is_known,
        acknowledge=partial(_acknowledge, book, sender),
        decline=partial(_decline, book, sender),
        again=sender.send,
        is_authenticated=lambda: sender.is_authenticated,
    )
    sender.command = commands.take
    emitter.logged = sender.logged
    health = emitter.health
    health.changed = lambda: sender.send(_health(emitter, book.host))
    sender.connected = partial(health.recovered, "relay")
    if own:
        own.supervisor.crashed = partial(health.degraded, "collector")
        own.well = partial(health.recovered, "collector")
    return Delivery(
        sender, commands, Supervisor("relay", crashed=partial(health.degraded, "relay")), own
    )


def _greeting(emitter: Emitter, host: str) -> list[bytes]:
    """What a connection begins with: that we are there, and what is wrong with us, if anything."""
    online = _presence(emitter, host, "online")
    return [online] if emitter.health.is_well else [online, _health(emitter, host)]


def _health(emitter: Emitter, host: str) -> bytes:
    return emitter.aside(emitter.health.draft(), source_of(host)).rstrip(b"\n")


def _presence(emitter: Emitter, host: str, state: Literal["online", "offline"]) -> bytes:
    draft = Draft("agent.presence", None, (Field(("state",), Capture.METADATA, state),))
    return emitter.aside(draft, source_of(host)).rstrip(b"\n")


def _acknowledge(book: SessionBook, sender: RelaySender, command: Command, draft: Draft) -> bytes:
    """Log an answer in its session's order; send it alone where that cannot be.

    Where the session is behind, it is also sent at once: an answer is awaited within seconds, and
    to come before its place is legal (AEP-0003 section 7); it comes again there, the same bytes.
    """
    if not book.is_known(command.session):
        return _decline(book, sender, command, draft)
    session = book.get(command.session, trio.current_time(), is_heard=False)
    run = session.state.run.id if session.state.run else None
    said, is_logged = book.emitter.say(session.stream, draft, run=run, cause=command.id)
    book.keep(session)
    line = said.rstrip(b"\n")
    if not is_logged or sender.outbox.is_behind(command.session):
        sender.send(line)
    return line


def _decline(book: SessionBook, sender: RelaySender, command: Command, draft: Draft) -> bytes:
    """Send an answer past the log, for a session that has none, or where there are too many.

    An event about a session has a place in its order (AEP-0001 section 5.2), and so has this one.
    """
    line = book.emitter.aside(
        draft,
        source_of(book.host, command.session),
        session=command.session,
        at=book.spend(command.session),
        cause=command.id,
    ).rstrip(b"\n")
    sender.send(line)
    return line
