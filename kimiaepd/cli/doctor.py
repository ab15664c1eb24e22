"""`kimiaepd doctor`: what is wrong with a set-up, and how to mend it.

With `--json` it prints one object, whose names stay as they are: `checks`, a list of `name`,
`level` (ok, warning, finding), `said` and `remedy`; `configured`, `probed`, `fired`; `findings` and
`warnings`, how many there are of each.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import trio

from kimiaepd import settings as settings_room
from kimiaepd.cli.setup import home_option, kimi_option, kimi_version_option, remedy, which_kimi
from kimiaepd.doctor.check import Level, Patient
from kimiaepd.doctor.examine import examine, unsettled
from kimiaepd.doctor.report import Report
from kimiaepd.errors import EXIT_NO, ConfigError
from kimiaepd.paths import resolve
from kimiaepd.settings import Settings
from kimiaepd.setup import kimi_version as kimi_version_room
from kimiaepd.setup.kimi_version import NONE_FOUND, Installed

_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.FINDING: "red"}
_LEVEL, _NAME = 9, 17
"""Columns, in characters."""


@click.command()
@home_option
@kimi_option
@kimi_version_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(
    home: Path | None, kimi: Path | None, kimi_version: str | None, *, as_json: bool
) -> None:
    """Look at everything between Kimi and the log, and say what is wrong and what to do.

    It changes nothing. Exit status 0: nothing to mend, though there may be warnings; 1: something
    is.
    """
    if kimi_version is not None:
        kimi_version_room.said(kimi_version)  # a wrong one ends us here
    try:
        settings = settings_room.load(os.environ, kimi_home=home)
    except ConfigError as error:
        report = unsettled(error)
    else:
        ask = partial(which_kimi, settings.paths, kimi, kimi_version)
        patient = Patient(
            settings=settings,
            environ=os.environ,
            home_by=_home_by(settings, home),
            installed=NONE_FOUND,
            setup_command=_setup_command(home, kimi, kimi_version),
        )
        report = trio.run(_look, patient, ask)
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        _print(report)
    if report.count(Level.FINDING):
        sys.exit(EXIT_NO)


async def _look(patient: Patient, ask: Callable[[], Installed]) -> Report:
    """Examine; a SIGTERM or a SIGHUP ends it as Ctrl-C does, with what it runs meanwhile."""
    told: list[int] = []
    report = None
    async with trio.open_nursery() as look_nursery:

        async def heed(*, task_status: trio.TaskStatus[None]) -> None:
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as signals:
                task_status.started()
                async for number in signals:
                    told.append(number)
                    look_nursery.cancel_scope.cancel()

        await look_nursery.start(heed)
        report = await examine(patient, ask, partial(dt.datetime.now, dt.UTC))
        look_nursery.cancel_scope.cancel()
    if report is None:
        sys.exit(128 + told[0])
    return report


def _home_by(settings: Settings, home: Path | None) -> str:
    if home is not None:
        return "--home"
    if os.environ.get("KIMI_CODE_HOME"):
        return "KIMI_CODE_HOME"
    if settings.paths.kimi_home == resolve({"HOME": os.environ.get("HOME", "")}).kimi_home:
        return "the default"
    return f"kimi_home in {settings.paths.config_file}"


def _setup_command(home: Path | None, kimi: Path | None, version: str | None) -> str:
    """What mends the hooks of this home for this kimi."""
    flags = ""
    if kimi is not None:
        flags += f" --kimi {shlex.quote(str(kimi))}"
    if version is not None:
        flags += f" --kimi-version {shlex.quote(version)}"
    return remedy(home) + flags


def _print(report: Report) -> None:
    for check in report.checks:
        level = click.style(f"{check.level:<{_LEVEL}}", fg=_COLOURS[check.level])
        click.echo(f"{level}{check.name:<{_NAME}}{_shown(check.said)}")
        if check.remedy:
            click.echo(f"{'':{_LEVEL + _NAME}}-> {_shown(check.remedy)}")
    click.echo(_summary(report))


def _summary(report: Report) -> str:
    fired = report.fired.isoformat(sep=" ", timespec="seconds") if report.fired else "none known"
    return (
        f"configured: {_yes(report.configured)}; probe passed: {_yes(report.probed)};"
        f" last real hook: {fired}; {_count(report, Level.FINDING)},"
        f" {_count(report, Level.WARNING)}"
    )


def _yes(truth: bool) -> str:
    return "yes" if truth else "no"


def _count(report: Report, level: Level) -> str:
    number = report.count(level)
    return f"{number} {level}" if number == 1 else f"{number} {level}s"


def _shown(text: str) -> str:
    """The text without what a terminal would obey: a config file may hold anything."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
