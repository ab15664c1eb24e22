"""`kimiaepd setup`: register the hooks with Kimi Code, take them away, show what is there.

With `--json` each prints one object, whose names stay as they are:
- `install` and `uninstall`: `config`, `action`, `changed`, `events`, `backup`, `shim` with `path`,
  `action` and `kept`, `warnings`, `dry_run`, and with `--dry-run` also `diff`.
- Besides, an install has `kimi` with `version`, `told_by` and `others`, and an uninstall has
  `left`: what of ours stays on disk.
- `show`: `config`, `exists`, and `hooks` as in `setup/listing.py`.
A refusal is one line on stderr and an exit status, with `--json` too.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from kimiaepd import settings
from kimiaepd.errors import EXIT_NO, UsageError
from kimiaepd.mapping.json_value import JSON
from kimiaepd.paths import Paths, resolve
from kimiaepd.setup.config_edit import Action
from kimiaepd.setup.events import known_to
from kimiaepd.setup.install import CONFIG_NAME, inspect, install_in, leftovers
from kimiaepd.setup.install import uninstall as take_away
from kimiaepd.setup.kimi_version import NONE_FOUND, Installed, at, find, said
from kimiaepd.setup.listing import listing, row, sockets
from kimiaepd.setup.report import Report
from kimiaepd.setup.retired import BELONGS, is_anothers
from kimiaepd.setup.standing import INSTALL, standing
from kimiaepd.setup.vendor_schema import fault


class _Directory(click.Path):
    """A directory that has a name: `--home "$UNSET"` is not the one that somebody stands in."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        if not os.fspath(value):
            self.fail("the directory has no name; give one, or leave the option out", param, ctx)
        return super().convert(value, param, ctx)


_DIRECTORY = _Directory(path_type=Path, file_okay=False)
_PROGRAM = click.Path(path_type=Path, dir_okay=False, exists=True, resolve_path=False)

TAKES_EFFECT = (
    "they take effect with Kimi's next session, or after /reload; a `kimi web` that runs must be"
    " started again"
)
"""When a change is seen: observed at 0.28.0 and 2.1.0, whose server reads its hooks once."""

home_option = click.option(
    "--home", type=_DIRECTORY, help="Kimi's home.  [default: $KIMI_CODE_HOME or ~/.kimi-code]"
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print the change as a diff; write nothing."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
kimi_option = click.option("--kimi", type=_PROGRAM, help="The kimi to ask for its version.")
kimi_version_option = click.option(
    "--kimi-version", metavar="X.Y.Z", help="The version of kimi; nobody is asked."
)


@click.group()
def setup() -> None:
    """Register kimiaepd's hooks in Kimi's config.toml, and remove them."""
    # As Ctrl-C does, so that no half of a file with somebody's keys in it is left behind.
    before = signal.signal(signal.SIGTERM, _unwind)
    click.get_current_context().call_on_close(partial(signal.signal, signal.SIGTERM, before))


def _unwind(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


@setup.command()
@home_option
@kimi_option
@kimi_version_option
@dry_run_option
@json_option
def install(
    home: Path | None,
    kimi: Path | None,
    kimi_version: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Add the hooks, or bring them up to date; a second run changes nothing."""
    loaded = settings.load(os.environ, kimi_home=home)
    refuse_retired(loaded.paths)
    installed = which_kimi(loaded.paths, kimi, kimi_version)
    report = install_in(loaded, installed.version, dry_run=dry_run)
    if as_json:
        print_json(report, dry_run=dry_run, kimi=_asked(installed))
        return
    if dry_run:
        preview(report, "written")
    else:
        click.echo(install_summary(report, installed))
    warn(report)


@setup.command()
@home_option
@dry_run_option
@json_option
def uninstall(home: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Remove the hooks, and the hook program if no other home uses it; all else stays."""
    paths = settings.load(os.environ, kimi_home=home).paths
    report = take_away(
        paths.kimi_home / CONFIG_NAME,
        shim=paths.installed_shim,
        others=_usual_configs(),
        dry_run=dry_run,
    )
    if as_json:
        print_json(report, dry_run=dry_run, left=[*leftovers(paths)])
        return
    if dry_run:
        preview(report, "removed")
        return
    if report.action is Action.UNCHANGED:
        click.echo(f"no hooks of kimiaepd in {report.config}; nothing changed there")
    else:
        click.echo(f"hooks removed from {report.config}; the file before: {report.backup}")
    if report.shim_changed:
        click.echo(f"hook program removed: {report.shim}")
    elif report.shim_kept:
        click.echo(f"hook program kept: {report.shim_kept}")
    if kept := leftovers(paths):
        click.echo(f"kept: {', '.join(kept)}")


@setup.command()
@home_option
@kimi_version_option
@json_option
def show(home: Path | None, kimi_version: str | None, *, as_json: bool) -> None:
    """Say which hooks are registered, by whom, on which line, and what is wrong with them.

    Exit status 0: nothing is wrong, though no daemon may be running; 1: something is.
    """
    version = None if kimi_version is None else said(kimi_version).version
    paths = settings.load(os.environ, kimi_home=home).paths
    config = paths.kimi_home / CONFIG_NAME
    text = inspect(config)
    hooks = [] if text is None else listing(text, paths, version)
    if as_json:
        found = {"config": str(config), "exists": text is not None, "hooks": hooks}
        click.echo(json.dumps(found, default=str))
    elif text is None or not hooks:
        click.echo(f"{config}: {'does not exist' if text is None else 'no hooks'}")
    else:
        click.echo(str(config))
        for hook, parsed in zip(hooks, text.hooks, strict=True):
            click.echo(row(hook))
            if silencing := fault(parsed.values, version):
                click.echo(f"{'':8}this one makes kimi drop every hook: {silencing}")
        for socket in sockets(hooks):
            click.echo(f"hooks of kimiaepd lead to {socket}")
        for line in standing(text, paths, remedy=remedy(home)):
            click.echo(line)
    if any(hook["fault"] for hook in hooks):
        sys.exit(EXIT_NO)


def remedy(home: Path | None) -> str:
    """The command that registers anew where somebody looked."""
    return INSTALL if home is None else f"{INSTALL} --home {shlex.quote(str(home))}"


def _usual_configs() -> list[Path]:
    """Where hooks may be besides in a `--home`: the configured home, and the vendor's own."""
    configured = settings.load(os.environ).paths.kimi_home
    own = resolve({"HOME": os.environ.get("HOME", "")}).kimi_home
    return [home / CONFIG_NAME for home in dict.fromkeys((configured, own))]


def refuse_retired(paths: Paths) -> None:
    """Register nothing in the home of another program.

    Raises:
        UsageError: it is the retired kimi-cli's.
    """
    if is_anothers(paths.kimi_home, os.environ):
        raise UsageError(f"{paths.kimi_home} {BELONGS}; use Kimi Code's own home: ~/.kimi-code")


def which_kimi(paths: Paths, kimi: Path | None, version: str | None) -> Installed:
    """The installed release: as said, as the given program says, or as found."""
    if version is not None:
        return said(version)
    if kimi is not None:
        return at(kimi.absolute(), os.environ)
    return find(os.environ, paths.kimi_home)


def install_summary(report: Report, installed: Installed) -> str:
    """What was registered, for which release, and how that is known."""
    count = len(known_to(installed.version))
    head = f"{report.config}: {count} hooks{_release(installed)}"
    if report.action is Action.UNCHANGED:
        head += ", as they were" if report.changed else ", as they were; nothing changed"
    lines = [head]
    if installed == NONE_FOUND:
        did = "kept" if report.action is Action.UNCHANGED else "registered"
        lines.append(
            f"no kimi found: {did} the {count} hooks that every release has;"
            " run this again once kimi is installed, for the rest"
        )
    if installed.others:
        lines.append(
            f"not asked: {', '.join(map(str, installed.others))}; if you start one of those and it"
            " is an older release, choose it with --kimi"
        )
    if report.action is not Action.UNCHANGED:
        made = f"made {report.config} (there was none)"
        lines.append(f"the file before: {report.backup}" if report.backup else made)
        lines.append(TAKES_EFFECT)
    elif report.shim_changed:
        did = "put back" if report.shim_action is Action.ADDED else "brought up to date"
        lines.append(f"hook program {did}: {report.shim}")
    return "\n".join(lines)


def _release(installed: Installed) -> str:
    if installed.version:
        return f" for kimi {installed.version} ({installed.told_by})"
    if installed == NONE_FOUND:
        return ""
    return f" for kimi of unknown version ({installed.told_by}; only what every release knows)"


def print_json(report: Report, *, dry_run: bool, **more: JSON) -> None:
    """Print what was done as one JSON object; see the top of this file."""
    found: dict[str, JSON] = {**report.as_json(), "dry_run": dry_run, **more}
    if dry_run:
        found["diff"] = report.diff()
    click.echo(json.dumps(found))


def _asked(installed: Installed) -> JSON:
    version = str(installed.version) if installed.version else None
    others: list[JSON] = [str(other) for other in installed.others]
    return {"version": version, "told_by": installed.told_by, "others": others}


def preview(report: Report, done: str) -> None:
    """Print what a dry run found: the diff on stdout, the rest on stderr."""
    click.echo(report.diff(), nl=False)
    if not report.changed:
        click.echo("nothing would change", err=True)
    if report.shim_changed:
        click.echo(f"hook program would be {done}: {report.shim}", err=True)
    elif report.shim_kept:
        click.echo(f"hook program would be kept: {report.shim_kept}", err=True)


def warn(report: Report) -> None:
    """Print what was left as it is, on stderr."""
    for warning in report.warnings:
        click.echo(f"warning: {report.config}: {warning}", err=True)
