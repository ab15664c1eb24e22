"""Everything that is looked at, in the order in which it is shown.

Rules:
- Kimi is asked for its version in a thread, which takes one to three seconds, and a relay that
  does not answer takes many. What needs neither is looked at meanwhile.
- A look that fails in a way of its own is a finding, and stops no other.
- What is broken once is said once: a look that could only repeat another's finding is left out.

What each look sees is its own module's business.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from attrs import define, evolve, field

from kimiaepd.doctor import (
    bridge,
    command,
    config,
    daemon,
    fired,
    people,
    relay,
    storage,
    versions,
    web,
)
from kimiaepd.doctor.check import Check, Patient, finding, ok, warning
from kimiaepd.doctor.report import Report
from kimiaepd.doctor.told import told
from kimiaepd.errors import ConfigError, UserError
from kimiaepd.setup.kimi_version import Installed

SETTINGS = "settings"

_AGAIN = "mend that, then run this again"
_NO_CONFIG = config.Seen((), {})
_NO_COMMAND = command.Seen((), probed=False)
_NO_DAEMON = daemon.Seen((), None)


def unsettled(error: ConfigError) -> Report:
    """The report where the settings are wrong: nothing else can be looked at with certainty."""
    return Report((told(SETTINGS, error, remedy=_AGAIN),))


async def examine(
    patient: Patient, ask: Callable[[], Installed], now: Callable[[], dt.datetime]
) -> Report:
    """Look at everything; it takes some seconds.

    Args:
        patient: who is examined; its `installed` stands until `ask` has answered.
        ask: finds out which kimi is installed; it may block, and raise `UserError`.
        now: the clock, in UTC.
    """
    looks = _Looks(patient)
    async with trio.open_nursery() as outside_nursery:
        outside_nursery.start_soon(looks.take, relay.RELAY, partial(looks.at_relay, now()))
        outside_nursery.start_soon(looks.take, web.WEB, looks.at_web)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(looks.take, versions.NAME, partial(looks.ask_kimi, ask))
            nursery.start_soon(looks.take, daemon.DAEMON, looks.at_daemon)
        await looks.take(config.FILE, looks.at_config)
        await looks.take(command.COMMAND, looks.run_command)
        await looks.take(storage.LOG, partial(looks.at_storage, now()))
    return await looks.report(now())


@define
class _Looks:
    """What was seen so far."""

    patient: Patient
    of_versions: tuple[Check, ...] = ()
    of_config: config.Seen = _NO_CONFIG
    of_command: command.Seen = _NO_COMMAND
    of_daemon: daemon.Seen = _NO_DAEMON
    of_storage: tuple[Check, ...] = ()
    of_relay: tuple[Check, ...] = ()
    of_web: tuple[Check, ...] = ()
    failed: list[Check] = field(factory=list)

    async def take(self, name: str, look: Callable[[], Awaitable[None]]) -> None:
        """Take one look; what keeps it from seeing anything is a finding."""
        try:
            await look()
        except UserError as error:
            self.failed.append(told(name, error, remedy=_AGAIN))
        except OSError as error:
            self.failed.append(finding(name, f"it cannot be looked at: {error}", _AGAIN))

    async def ask_kimi(self, ask: Callable[[], Installed]) -> None:
        installed = await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
        self.patient = evolve(self.patient, installed=installed)
        self.of_versions = (versions.examine(installed),)

    async def at_daemon(self) -> None:
        self.of_daemon = await daemon.examine(self.patient)

    async def at_relay(self, now: dt.datetime) -> None:
        self.of_relay = await relay.examine(self.patient, now)

    async def at_web(self) -> None:
        self.of_web = await web.examine(self.patient)

    async def at_config(self) -> None:
        self.of_config = await trio.to_thread.run_sync(config.examine, self.patient)

    async def run_command(self) -> None:
        self.of_command = await command.examine(
            self.patient, self.of_config.commands, self.of_daemon.status
        )

    async def at_storage(self, now: dt.datetime) -> None:
        self.of_storage = await trio.to_thread.run_sync(
            storage.examine, self.patient, self.of_daemon.status, now
        )

    async def report(self, now: dt.datetime) -> Report:
        """Everything in its order; when the last hook came is asked last, after every probe."""
        configured = self.of_config.configured
        last = await trio.to_thread.run_sync(
            partial(
                fired.examine,
                self.patient.settings.paths.state_dir,
                self.of_daemon.status,
                now,
                configured=configured,
            )
        )
        checks = (
            *_settings(self.patient),
            *self.of_versions,
            *self.of_config.checks,
            *self.of_command.checks,
            *self.of_daemon.checks,
            *self.of_storage,
            *self.of_relay,
            *people.examine(self.patient, self.of_daemon.status),
            *self.of_web,
            *bridge.examine(self.of_daemon.status),
            *self.failed,
            last.check,
        )
        return Report(checks, configured, self.of_command.probed, last.when)


def _settings(patient: Patient) -> tuple[Check, ...]:
    file = patient.settings.paths.config_file
    said = f"{file}" if file.is_file() else f"the defaults: there is no {file}"
    odd = (
        warning(SETTINGS, line, "change it; nothing to do where it is meant so")
        for line in patient.settings.warnings
    )
    return (ok(SETTINGS, said), *odd)
