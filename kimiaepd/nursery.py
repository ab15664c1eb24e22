"""The daemon: what runs, in which order it starts and stops, what may fail without the rest.

Rules:
- The order of the start: settings, lock, log, hooks registered (`up`), socket, epoch, sessions,
  ready line (rule I12). The socket is bound before the epoch is taken, so that a start that fails
  uses none up; nobody is accepted before the sessions are there. What fails ends the start with
  one line, and leaves no socket and nothing half written.
- Five nurseries, named by lifetime. `keeper_nursery` holds what must outlive every hook: the log's
  syncer, the observer's clock, the signals. `relay_nursery`, inside it, holds our own relay, and
  `uplink_nursery` what delivers, to that one or another, and `bridge_nursery` what watches the
  servers of `kimi web`. `server_nursery`, the innermost, holds the hook server and the watchdog
  that asks it: when it has let the last hook go, nothing is watched any more, what still waits is
  decided, the uplinks get a moment to deliver it, the relay says goodbye, and only then the keeper
  ends.
- SIGTERM or SIGINT stops within one deadline, and lets go at once what is held; a second one stops
  now. SIGHUP opens the logs again and reads the settings again; where it says that our terminal was
  closed, it stops. SIGUSR1 tries the relay at once: for whoever knows that the network is back.
- A part that can fail by itself gets a supervisor of its own here; the hook server has none: if it
  fails, the daemon ends with its error.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial

import structlog
import trio
from attrs import asdict, define, evolve, field, frozen

from kimiaepd import __version__, service_notify, watchdog
from kimiaepd.collector.access import Role
from kimiaepd.delivery import Delivery, open_delivery
from kimiaepd.emitter import Emitter, clean_host
from kimiaepd.errors import UserError
from kimiaepd.gate.gate import Gate
from kimiaepd.hook_socket import activation, endpoint
from kimiaepd.hook_socket.conversation import Reply
from kimiaepd.hook_socket.endpoint import Endpoint
from kimiaepd.hook_socket.peer import Peer
from kimiaepd.hook_socket.server import Limits, serve
from kimiaepd.instruct import INSTRUCT, Instructions
from kimiaepd.mapping.capture import Ceilings
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.redaction import Redactor
from kimiaepd.notifier import Notifier
from kimiaepd.observer import Observer
from kimiaepd.own_relay import STOP_SECONDS, OwnRelay
from kimiaepd.service_notify import notify
from kimiaepd.sessions import SessionBook
from kimiaepd.settings import LogSettings, Settings
from kimiaepd.storage.daemon_lock import DaemonLock
from kimiaepd.storage.epoch import next_epoch
from kimiaepd.storage.journal import Journal, LogPolicy, Position
from kimiaepd.storage.ledger import Ledger
from kimiaepd.storage.private_directory import create_private
from kimiaepd.supervisor import Supervisor
from kimiaepd.terminal import Terminal
from kimiaepd.web.bridge import Bridge
from kimiaepd.web_bridge import open_bridge, take_answers

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_MIB = 1 << 20

UPLINK_SECONDS = 2.0
"""How long a stop waits for what was just logged to be delivered; the log keeps the rest."""


@frozen
class Ready:
    """What there is to say of a daemon that takes hooks.

    Attributes:
        settings: as it runs.
        relay: the URL of our own relay; None where there is another, or none.
        code: a one-time code for it.
    """

    settings: Settings
    relay: str | None = None
    code: str | None = field(default=None, repr=False)


@define
class Daemon:
    """What answers hooks and clients while the daemon runs.

    Attributes:
        settings: as they stand; a reload puts others in their place.
        load: reads the settings again.
        epoch: this start's number.
        delivery: the relay's part; None where none is configured.
        gate: what holds tool calls, where that is switched on.
        notifier: tells a person's own program of holds.
        bridge: watches the servers of `kimi web`; None where that is switched off.
    """

    settings: Settings
    load: Callable[[], Settings]
    environ: Mapping[str, str] = field(repr=False)  # it may hold a token
    epoch: int
    journal: Journal
    emitter: Emitter
    observer: Observer
    delivery: Delivery | None
    gate: Gate
    notifier: Notifier
    bridge: Bridge | None
    started: float

    @property
    def own_relay(self) -> OwnRelay | None:
        """Our own relay, where there is one."""
        return self.delivery.own if self.delivery else None

    async def hook(self, body: bytes, started_ns: int, peer: Peer) -> bytes | Reply:
        """One hook; what it gives back is what its shim writes out."""
        return await self.observer.hook(body, started_ns, peer)

    def oversized(self, head: bytes, size: int, started_ns: int) -> None:
        """A hook over the size limit: freed already, and said here."""
        self.observer.oversized(head, size, started_ns)

    def console(self, *, read_only: bool, with_token: bool) -> JSONObject:
        """What opens our own relay to a browser, or to a client that takes its token in a URL."""
        own = self.own_relay
        if own is None:
            where = self.settings.relay.url
            return {"error": f"the relay is {where}: ask there" if where else "no relay runs here"}
        return own.admit(Role.OBSERVE if read_only else Role.CONTROL, with_token=with_token)

    def ready(self) -> Ready:
        """What a ready line says."""
        own = self.own_relay
        if own is None:
            return Ready(self.settings)
        return Ready(self.settings, own.address.url, own.code())

    async def reload(self) -> JSONObject:
        """Open the logs again and take the settings that can change while running."""
        try:
            fresh = self.load()
        except UserError as error:
            log.warning("settings not reloaded", why=str(error))
            return {"error": str(error)}
        try:
            self.journal.reopen()
        except (OSError, UserError) as error:
            log.warning("logs not opened again; the next event tries to", why=str(error))
            return {"error": str(error)}
        self.emitter.ceilings = _ceilings(fresh)
        self.emitter.redactor = _redactor(fresh, self.environ)
        # Hooks are registered for the gate that there is, and for as long as it holds.
        was = self.settings.gate
        self.gate.terms = evolve(fresh.gate, enabled=was.enabled, hold_ms=was.hold_ms)
        self.notifier.command = fresh.gate.notify_command
        fixed = evolve(
            self.settings,
            capture=fresh.capture,
            gate=self.gate.terms,
            warnings=fresh.warnings,
        )
        later = [] if fixed == fresh else ["what else changed takes effect at the next start"]
        self.settings = fixed
        log.info("reloaded", capture=fresh.capture.default.word)
        return {"ok": True, "notes": [*fresh.warnings, *later]}

    def status(self) -> JSONObject:
        """What `kimiaepd status` shows; the server adds its own counters."""
        paths = self.settings.paths
        instructions = self.observer.instructions
        capture: dict[str, JSON] = {
            "default": self.settings.capture.default.word,
            **{name: level.word for name, level in self.settings.capture.overrides.items()},
        }
        return {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(trio.current_time() - self.started),
            "epoch": self.epoch,
            "socket": str(paths.socket),
            "log_dir": str(paths.log_dir),
            "capture": capture,
            "sync": self.settings.log.sync,
            "events": {"logged": self.emitter.counts.logged, "lost": self.emitter.counts.lost},
            "log": asdict(self.journal.stats),
            "health": self.emitter.health.status(),
            "relay": self.delivery.status() if self.delivery else None,
            "gate": self.gate.status(),
            "notifier": self.notifier.status(),
            "instruct": instructions.status() if instructions else None,
            "web": self.bridge.status(trio.current_time()) if self.bridge else None,
            **self.observer.status(trio.current_time()),
        }

    def bury(self, session_id: str, last: Position | None) -> None:
        """A session's log is about to be removed."""
        self.observer.book.bury(session_id, last)
        if self.delivery:
            self.delivery.removed(session_id)


async def run_daemon(
    load: Callable[[], Settings],
    environ: Mapping[str, str],
    *,
    prepare: Callable[[Settings], None] = lambda _: None,
    announce: Callable[[Ready], None],
) -> None:
    """Run until a signal says to stop.

    Args:
        load: reads the settings; called again on a reload.
        environ: the environment, for the service manager's variables and secret values.
        prepare: what to do once it is sure that no other daemon runs, before anything is opened.
        announce: called when hooks can come.

    Raises:
        UserError: something is not as it must be; nothing was left behind.
    """
    settings = load()
    for warning in settings.warnings:
        log.warning(warning)
    create_private(settings.paths.state_dir)
    with ExitStack() as held:
        held.enter_context(DaemonLock.acquire(settings.paths.state_dir))
        storage = _open_storage(settings, held)
        prepare(settings)
        listening = held.enter_context(_endpoint(settings, environ))
        daemon = _assemble(settings, load, environ, storage, held)
        daemon.observer.book.bring_back(trio.current_time())
        try:
            await _serve_until_stopped(daemon, listening, lambda: announce(daemon.ready()))
        except BaseExceptionGroup as group:
            raise _one_line(group) from None


def _one_line(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """A failure for people out of the nurseries' wrapping; the group itself where it is more."""
    told, rest = group.split(UserError)
    found: BaseException | None = told
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return group if rest or found is None else found


async def _serve_until_stopped(
    daemon: Daemon, listening: Endpoint, announce: Callable[[], None]
) -> None:
    hooks, stop_seconds = daemon.settings.hooks, daemon.settings.stop_seconds
    limits = Limits(
        frame_bytes=hooks.frame_mib * _MIB,
        connections=hooks.connections,
        stop_seconds=float(stop_seconds),
    )
    if pace := watchdog.pace(daemon.environ):
        limits = evolve(limits, check_seconds=min(limits.check_seconds, pace.look))
    stopping = trio.Event()
    async with trio.open_nursery() as keeper_nursery:
        book = daemon.observer.book
        await keeper_nursery.start(daemon.journal.run, book.is_live, daemon.bury)
        await keeper_nursery.start(daemon.observer.run)
        await keeper_nursery.start(
            _obey_signals, daemon, stopping, keeper_nursery.cancel_scope.cancel
        )
        async with trio.open_nursery() as relay_nursery:
            own = daemon.own_relay
            if own:
                await relay_nursery.start(own.run)
            serve_hooks = partial(_serve_hooks, daemon, listening, limits, stopping, announce)
            await _deliver_meanwhile(daemon, serve_hooks)
            if own:
                own.stop()
            relay_nursery.cancel_scope.deadline = trio.current_time() + STOP_SECONDS
        keeper_nursery.cancel_scope.cancel()


async def _deliver_meanwhile(daemon: Daemon, serve_hooks: Callable[[], Awaitable[None]]) -> None:
    async with trio.open_nursery() as uplink_nursery:
        if daemon.delivery:
            await uplink_nursery.start(daemon.delivery.run)
        notifying = Supervisor("notifier")
        await uplink_nursery.start(notifying.run, daemon.notifier.run)
        try:
            async with trio.open_nursery() as bridge_nursery:
                if daemon.bridge:
                    watching = Supervisor("web bridge")
                    await bridge_nursery.start(watching.run, daemon.bridge.run)
                await serve_hooks()
                bridge_nursery.cancel_scope.cancel()
        finally:
            # Also where a second signal did not let the stop wait: it costs no time.
            daemon.observer.settle()
        daemon.notifier.stop()
        if daemon.delivery:
            daemon.delivery.sender.stop()
        uplink_nursery.cancel_scope.deadline = trio.current_time() + UPLINK_SECONDS


async def _serve_hooks(
    daemon: Daemon,
    listening: Endpoint,
    limits: Limits,
    stopping: trio.Event,
    announce: Callable[[], None],
) -> None:
    async with trio.open_nursery() as server_nursery:
        await server_nursery.start(partial(serve, listening, daemon, limits, stopping=stopping))
        if pace := watchdog.pace(daemon.environ):
            await server_nursery.start(watchdog.run, pace, daemon.environ, listening.path, stopping)
        announce()
        notify(daemon.environ, service_notify.READY)


async def _obey_signals(
    daemon: Daemon,
    stopping: trio.Event,
    stop_now: Callable[[], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    terminal = Terminal()
    obeyed = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    with trio.open_signal_receiver(*obeyed) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGUSR1:
                if daemon.delivery:
                    daemon.delivery.sender.hurry()
            elif number == signal.SIGHUP and not terminal.is_gone():
                notify(daemon.environ, service_notify.RELOADING)
                await daemon.reload()
                notify(daemon.environ, service_notify.READY)
            elif stopping.is_set():
                stop_now()
            else:
                notify(daemon.environ, service_notify.STOPPING)
                stopping.set()
                daemon.gate.stop()


def _open_storage(settings: Settings, held: ExitStack) -> tuple[Journal, Ledger]:
    """Log and ledger; `held` closes them."""
    journal = Journal.open(settings.paths.log_dir, policy=_policy(settings.log))
    held.callback(journal.close)
    ledger = Ledger.open(settings.paths.state_dir / "ledger.jsonl")
    held.callback(ledger.close)
    return journal, ledger


def _assemble(
    settings: Settings,
    load: Callable[[], Settings],
    environ: Mapping[str, str],
    storage: tuple[Journal, Ledger],
    held: ExitStack,
) -> Daemon:
    """The daemon on its storage, in an epoch of its own."""
    journal, ledger = storage
    epoch = next_epoch(settings.paths.state_dir, at_least=journal.highest_epoch())
    emitter = Emitter(journal, _ceilings(settings), _redactor(settings, environ))
    book = SessionBook(
        emitter=emitter,
        journal=journal,
        ledger=ledger,
        host=clean_host(socket.gethostname()),
        epoch=epoch,
        idle_seconds=settings.session_idle_hours * 3600.0,
    )
    own = OwnRelay.open(settings, held) if _wants_own_relay(settings) else None
    delivery = open_delivery(settings, environ, book, held, own)
    _warn_where_nobody_can_command(settings, environ, delivery)
    notifier = Notifier(settings.gate.notify_command, environ)
    gate = _gate(settings, book, delivery, notifier)
    bridge = open_bridge(settings, book, delivery, held)
    control = bridge.control if bridge else None
    if delivery and (settings.gate.enabled or control):
        take_answers(delivery, gate.respond, control)
    return Daemon(
        settings=settings,
        load=load,
        environ=environ,
        epoch=epoch,
        journal=journal,
        emitter=emitter,
        observer=Observer(
            book,
            journal,
            gate,
            _instructions(settings, book, delivery),
            last_hook_ns=book.last_heard_ns(),
        ),
        delivery=delivery,
        gate=gate,
        notifier=notifier,
        bridge=bridge,
        started=trio.current_time(),
    )


def _warn_where_nobody_can_command(
    settings: Settings, environ: Mapping[str, str], delivery: Delivery | None
) -> None:
    has_token = bool(environ.get("AEP_TOKEN") or settings.relay.token_file)
    if delivery and (delivery.own or has_token):
        return
    why = "no token for the relay is set" if delivery else "there is no relay"
    if settings.gate.enabled:
        log.warning("gate.enabled is set, but no call is held", why=why)
    if settings.instruct.enabled:
        log.warning("instruct.enabled is set, but no instruction is taken", why=why)
    if settings.web.control and settings.web.mode == "primary":
        log.warning("web.control is set, but no command is taken", why=why)


def _instructions(
    settings: Settings, book: SessionBook, delivery: Delivery | None
) -> Instructions | None:
    """Steering, where it is switched on; without a relay there is nobody to take it from."""
    if not delivery or not settings.instruct.enabled:
        return None
    instructions = Instructions(book)
    delivery.commands.register(INSTRUCT, instructions.take)
    return instructions


def _gate(
    settings: Settings, book: SessionBook, delivery: Delivery | None, notifier: Notifier
) -> Gate:
    """The gate, and who tells it that somebody is there."""
    gate = Gate(
        book,
        settings.gate,
        lambda: delivery is not None and delivery.is_answerable(is_notified=bool(notifier.command)),
        lambda: delivery is not None and delivery.is_controlled,
        notifier.notify,
    )
    if delivery and settings.gate.enabled:
        delivery.commands.came = gate.somebody_came
        if delivery.own:
            delivery.own.collector.hub.came = gate.somebody_came
    return gate


def _wants_own_relay(settings: Settings) -> bool:
    return settings.relay.url is None and settings.collector.enabled


def _endpoint(settings: Settings, environ: Mapping[str, str]) -> Endpoint:
    given = activation.take(environ, settings.paths.socket)
    return given or endpoint.bind(settings.paths.socket)


def _ceilings(settings: Settings) -> Ceilings:
    return Ceilings(settings.capture.default, settings.capture.overrides)


def _redactor(settings: Settings, environ: Mapping[str, str]) -> Redactor:
    return Redactor(
        home=environ.get("HOME"),
        secret_names=frozenset(settings.capture.redact_names),
        secret_values=settings.capture.secret_values(environ),
        pii=settings.capture.pii,
    )


def _policy(settings: LogSettings) -> LogPolicy:
    return LogPolicy(
        sync=settings.sync,
        rotate_bytes=settings.rotate_mib * _MIB,
        keep_bytes=settings.keep_mib * _MIB,
        keep_days=settings.keep_days,
        min_free_bytes=settings.min_free_mib * _MIB,
    )
