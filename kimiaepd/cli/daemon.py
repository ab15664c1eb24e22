"""`kimiaepd run` and `kimiaepd up`: the daemon in the foreground."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import structlog
import trio

from kimiaepd import log_lines
from kimiaepd import settings as settings_room
from kimiaepd.cli import setup
from kimiaepd.cli.own_name import own_name
from kimiaepd.collector.access import CODE_SECONDS
from kimiaepd.nursery import Ready, run_daemon
from kimiaepd.settings import Settings
from kimiaepd.setup.install import CONFIG_NAME, cut_short, install_in, unreachable

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@click.command()
@setup.home_option
@click.option("-v", "--verbose", is_flag=True, help="Log what the daemon does in more detail.")
def run(home: Path | None, verbose: bool) -> None:
    """Run the daemon in the foreground, until Ctrl-C or SIGTERM.

    It takes in what Kimi's hooks send and writes it as AEP events, one log a session. Register the
    hooks once with `kimiaepd setup install`.
    """
    _run(home, verbose=verbose)


@click.command()
@setup.home_option
@setup.kimi_option
@setup.kimi_version_option
@click.option("-v", "--verbose", is_flag=True, help="Log what the daemon does in more detail.")
def up(home: Path | None, kimi: Path | None, kimi_version: str | None, verbose: bool) -> None:
    """Register the hooks with Kimi, then run the daemon in the foreground.

    Can be run again at any time: hooks that are registered stay as they are.
    """
    _run(home, verbose=verbose, prepare=partial(_register, kimi=kimi, kimi_version=kimi_version))


def _register(settings: Settings, *, kimi: Path | None, kimi_version: str | None) -> None:
    setup.refuse_retired(settings.paths)
    installed = setup.which_kimi(settings.paths, kimi, kimi_version)
    report = install_in(settings, installed.version)
    click.echo(setup.install_summary(report, installed))
    setup.warn(report)


def _run(
    home: Path | None,
    *,
    verbose: bool,
    prepare: Callable[[Settings], None] = lambda _: None,
) -> None:
    log_lines.configure(verbose=verbose)
    announce = partial(_announce, remedy=setup.remedy(home))
    load = partial(settings_room.load, os.environ, kimi_home=home)
    trio.run(partial(run_daemon, load, os.environ, prepare=prepare, announce=announce))
    log.info("kimiaepd stopped; hooks that are registered do nothing until it runs again")


def _announce(ready: Ready, *, remedy: str) -> None:
    paths = ready.settings.paths
    if missing := unreachable(paths, remedy=remedy):
        log.warning(missing)
    elif early := cut_short(ready.settings, remedy=remedy):
        log.warning(early)
    hooks = "no hooks yet" if missing else f"hooks in {paths.kimi_home / CONFIG_NAME}"
    line = f"kimiaepd ready: {hooks}, socket {paths.socket}, log {paths.log_dir}"
    if ready.relay:
        line += f", relay {ready.relay}, code {ready.code} (once, within {CODE_SECONDS:.0f} s)"
        line += f"\nconsole: {ready.relay}/#code={ready.code} (once; another: {own_name()} console)"
    line += "\n"
    # Past Python's buffer, which would try again at exit: nobody has to listen to it.
    with contextlib.suppress(OSError):
        os.write(1, line.encode("utf-8", "surrogateescape"))
