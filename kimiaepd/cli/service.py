"""`kimiaepd service`: the daemon as a service of the user's own service manager."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import click
import trio
from attrs import asdict

from kimiaepd import settings as settings_room
from kimiaepd.cli.setup import home_option, remedy
from kimiaepd.paths import resolve
from kimiaepd.service import steps
from kimiaepd.service.launchd import Launchd
from kimiaepd.service.manager import Manager
from kimiaepd.service.systemd import Systemd
from kimiaepd.service.wanted import Service, wanted
from kimiaepd.settings import Settings
from kimiaepd.setup.install import unreachable


@click.group()
def service() -> None:
    """Run the daemon by itself: a systemd user unit, or a launchd agent on macOS."""


@service.command()
@home_option
@click.option("--dry-run", is_flag=True, help="Print the change as a diff; write nothing.")
def install(home: Path | None, dry_run: bool) -> None:
    """Install the service and start it, or bring it up to date; a second run changes nothing.

    The service gets the variables that decide places and settings as they are set here, and never
    AEP_TOKEN.
    """
    settings, described = _described(home)
    manager = _manager()
    if dry_run:
        diff = steps.preview(manager, described)
        click.echo(diff, nl=False)
        click.echo("it would be started" if diff else "nothing would change", err=True)
        return
    trio.run(partial(steps.install, manager, described, settings.paths, tell=click.echo))
    for hint in [*trio.run(manager.hints), *_hints(settings)]:
        click.echo(hint)
    if missing := unreachable(settings.paths, remedy=remedy(home)):
        click.echo(f"warning: {missing}", err=True)


@service.command()
def uninstall() -> None:
    """Stop the service and remove it; log, state and hooks stay."""
    trio.run(partial(steps.uninstall, _manager(), tell=click.echo))


@service.command()
@home_option
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON object.")
def status(home: Path | None, as_json: bool) -> None:
    """Show whether the service is installed, runs and answers.

    Exit status 0: it runs and answers; 1: it does not run; 3: it runs and does not answer.
    """
    settings, described = _described(home)
    found = trio.run(partial(steps.standing, _manager(), described, settings.paths))
    if as_json:
        click.echo(json.dumps(asdict(found)))
    else:
        for name, text in _lines(found, settings).items():
            click.echo(f"{name:<9}{text}")
    if found.status:
        sys.exit(found.status)


def _described(home: Path | None) -> tuple[Settings, Service]:
    settings = settings_room.load(os.environ, kimi_home=home)
    return settings, wanted(settings, os.environ, kimi_home=home)


def _manager() -> Manager:
    """This system's; found without settings, so that a wrong one keeps nobody from an uninstall."""
    environ = {name: os.environ.get(name, "") for name in ("HOME", "XDG_CONFIG_HOME")}
    config_home = resolve(environ).config_file.parent.parent
    if sys.platform == "darwin":
        return Launchd.below(Path(environ["HOME"]))
    return Systemd.below(config_home)


def _hints(settings: Settings) -> list[str]:
    lines = []
    if os.environ.get("AEP_TOKEN"):
        lines.append(
            "AEP_TOKEN is not given to the service: put the token into a file with mode 0600,"
            f" and name it as relay.token_file in {settings.paths.config_file}"
        )
    if secret := [name for name in settings.capture.redact_names if os.environ.get(name)]:
        lines.append(
            f"the service does not see the values of {', '.join(secret)}: there they are redacted"
            " by name and by shape, not by value"
        )
    return lines


def _lines(found: steps.Standing, settings: Settings) -> dict[str, str]:
    if not found.installed:
        file = f"{found.file}: not there; to install it: kimiaepd service install"
    elif found.current:
        file = found.file
    else:
        file = (
            f"{found.file}: is not what an install from here would write (another version, or"
            " other settings); to bring it up to date: kimiaepd service install"
        )
    if found.answers:
        answers = f"pid {found.pid} at {settings.paths.socket}"
    elif found.other_pid:
        answers = f"not the service: pid {found.other_pid} does, at {settings.paths.socket}"
    else:
        answers = f"nobody at {settings.paths.socket}"
    return {
        "file": file,
        "at login": "starts" if found.enabled else "does not start",
        "service": found.said + (f", pid {found.pid}" if found.pid else ""),
        "answers": answers,
    }
