"""Registering and unregistering, whole: plan, the shim, the edit, and what to tell the person.

Rules:
- A refusal comes before anything is written. Then the shim, then the config that names it; an
  uninstall goes the other way. So no hook ever names a program that is not there because of us.
- The shim is shared by every vendor home, and stays while another known one has hooks that use it.
- A second run finds nothing to do, writes nothing, and says so.
- A vendor home that does not exist is made, private: `kimi` that never ran has none, and reads this
  one when it does. Its parent is not made: that would be a misspelt path.

Where things are and which release is installed is the caller's to say (`cli/setup.py`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from attrs import evolve

from kimiaepd.errors import ConfigError
from kimiaepd.paths import Paths
from kimiaepd.settings import Settings
from kimiaepd.setup import config_file, homes, installed_shim
from kimiaepd.setup.command import Entry, budgets, entries
from kimiaepd.setup.config_edit import Action, Plan, plan_install, plan_uninstall
from kimiaepd.setup.config_text import ConfigText, EditRefusedError, read
from kimiaepd.setup.events import OLDEST_TRIED, SINCE, Version, known_to
from kimiaepd.setup.interpreter import running_interpreter
from kimiaepd.setup.report import Report
from kimiaepd.setup.standing import INSTALL, causes, same_file
from kimiaepd.setup.vendor_schema import fault

CONFIG_NAME = "config.toml"


def install_in(settings: Settings, version: Version | None, *, dry_run: bool = False) -> Report:
    """Register every event that a release knows, with this interpreter, as the settings say.

    Raises:
        ConfigError: see `intended` and `install`.
    """
    paths = settings.paths
    return install(
        paths.kimi_home / CONFIG_NAME,
        intended(settings, version),
        shim=paths.installed_shim,
        version=version,
        dry_run=dry_run,
    )


def intended(
    settings: Settings, version: Version | None, *, also: Collection[str] = ()
) -> tuple[Entry, ...]:
    """What an install registers here and now; what is registered is current if it is this.

    Args:
        settings: where the daemon listens, where the shim is, how long a call may be held.
        version: the installed release; None where nobody could say.
        also: events that count as known to it, though nobody here knows that.

    Raises:
        ConfigError: the release is too old, this interpreter cannot run hooks, or a path cannot
            stand in a config file.
    """
    known = known_to(version)
    if not known:
        raise ConfigError(
            f"kimi {version} is older than {OLDEST_TRIED}, and which hooks it has is not known;"
            " update kimi, or say with --kimi-version which release it is"
        )
    return entries(
        socket=str(settings.paths.socket),
        shim=str(settings.paths.installed_shim),
        python=str(running_interpreter()),
        events=tuple(event for event in SINCE if event in known or event in also),
        exceptions=budgets(settings.gate),
    )


def install(
    config: Path,
    wanted: tuple[Entry, ...],
    *,
    shim: Path,
    version: Version | None = None,
    program: bytes | None = None,
    now: dt.datetime | None = None,
    dry_run: bool = False,
) -> Report:
    """Register our hooks, or bring them up to date.

    Args:
        config: the vendor's config.toml; created, private, where it is missing.
        wanted: the hooks; all of their events are known to `version`.
        shim: where the hook program that they name is installed.
        version: the installed release; None where nobody could say.
        program: the hook program's bytes; this version's own by default.
        now: the time for the backup's name, in UTC.
        dry_run: plan and report; write nothing.

    Raises:
        ConfigError: the file cannot be edited safely; the line names it, the reason, the remedy.
    """
    program = installed_shim.source() if program is None else program
    events = tuple(entry.event for entry in wanted)

    def plan(old: bytes) -> Plan:
        return plan_install(old, wanted, version)

    preview = _preview(config, plan, shim)
    if dry_run:
        is_current = installed_shim.is_current(shim, program)
        did = Action.UNCHANGED if is_current else _put(was_there=os.path.lexists(shim))
        return evolve(preview, shim_action=did, events=events)
    was_there = os.path.lexists(shim)
    with _home(config.parent):
        is_new = installed_shim.install(shim, program)
        report = _carry_out(config, plan, shim, now)
        homes.remember(shim, config)
    return evolve(
        report,
        shim_action=_put(was_there=was_there) if is_new else Action.UNCHANGED,
        events=events,
    )


def uninstall(
    config: Path,
    *,
    shim: Path,
    others: Iterable[Path] = (),
    now: dt.datetime | None = None,
    dry_run: bool = False,
) -> Report:
    """Take our hooks out of the file, and then remove the installed shim if nobody else uses it.

    Args:
        config: the vendor's config.toml.
        shim: the hook program, which all of a user's configs share.
        others: configs that may have hooks of ours, besides those that install noted; the shim
            stays while one has.
        now: the time for the backup's name, in UTC.
        dry_run: plan and report; write nothing.

    Raises:
        ConfigError: the file cannot be edited safely; the line names it, the reason, the remedy.
    """
    if dry_run:
        report = _preview(config, plan_uninstall, shim)
    else:
        report = _carry_out(config, plan_uninstall, shim, now)
    everywhere = dict.fromkeys((*others, *homes.known(shim)))
    if not dry_run:
        homes.forget(shim, config)
    kept = _in_use(shim, [one for one in everywhere if not same_file(str(one), str(config))])
    if kept:
        return evolve(report, shim_kept=kept)
    if not dry_run:
        homes.clear(shim)
    is_gone = os.path.lexists(shim) if dry_run else installed_shim.remove(shim)
    return evolve(report, shim_action=Action.REMOVED if is_gone else Action.UNCHANGED)


def leftovers(paths: Paths) -> list[str]:
    """What an uninstall leaves of ours, for people: the log, the state, copies of the config."""
    places = (("log", paths.log_dir), ("state", paths.state_dir))
    found = [f"the {name} {place}" for name, place in places if os.path.lexists(place)]
    if count := len(config_file.backups(paths.kimi_home / CONFIG_NAME)):
        found.append(f"{count} backup{'s' if count > 1 else ''} beside {CONFIG_NAME}")
    return found


def inspect(config: Path) -> ConfigText | None:
    """What is registered, by anybody; None where there is no file.

    Raises:
        ConfigError: the file cannot be read.
    """
    raw = config_file.peek(config)
    with _refusals_in(config):
        return None if raw is None else read(raw)


def unreachable(paths: Paths, *, remedy: str = INSTALL) -> str | None:
    """Why no hook of Kimi's can reach this instance, in one line; None where one can.

    Whatever is wrong with the config is in the line; nothing is raised for it.

    Args:
        paths: the instance; `kimi_home` says which config, `socket` where the hooks must lead.
        remedy: the command that mends it.
    """
    config = paths.kimi_home / CONFIG_NAME
    try:
        text = inspect(config)
    except ConfigError as error:
        return f"whether any hook leads here is not known: {error}"
    none = f"no hook in {config} leads here"
    ours = [hook.ours for hook in text.hooks if hook.ours] if text else []
    if not text or not ours:
        return f"{none}: none is ours; run: {remedy}"
    for hook in text.hooks:
        if found := fault(hook.values, None):
            return f"{none}: line {hook.line} makes kimi drop every hook: {found}"
    found_in_each = [causes(command, paths) for command in ours]
    if not all(found_in_each):
        return None
    every = dict.fromkeys(cause for found in found_in_each for cause in found)
    return f"{none}: {', '.join(every)}; run: {remedy}"


def cut_short(settings: Settings, *, remedy: str = INSTALL) -> str | None:
    """Why calls are let go before the gate's own time is up, in one line; None where they are not.

    The hold must end before the shim gives up, and the shim before the CLI kills it. What is
    registered may be older than the settings. What cannot be read is `unreachable`'s to say.
    """
    config = settings.paths.kimi_home / CONFIG_NAME
    with contextlib.suppress(ConfigError):
        text = inspect(config) if settings.gate.enabled else None
        for hook in text.hooks if text else ():
            if hook.ours and hook.values.get("event") == "PreToolUse":
                hold, shim = settings.gate.hold_ms / 1000, hook.ours.seconds
                kimi = hook.values.get("timeout")
                if hold < shim and isinstance(kimi, int) and shim < kimi:
                    continue
                waits = f"waits {shim:g} s, and kimi {kimi or 'who knows how many'} s"
                for_a = f"for a call that may be held for {hold:g} s"
                return f"the hook for PreToolUse in {config} {waits}, {for_a}; run: {remedy}"
    return None


def _in_use(shim: Path, configs: Iterable[Path]) -> str | None:
    """Why the shim must stay: a config has hooks that name it, or may have; else None."""
    if not os.path.lexists(shim):
        return None
    for config in configs:
        try:
            text = inspect(config)
        except ConfigError:
            return f"{config} cannot be read, and its hooks may use it"
        commands = [hook.ours for hook in text.hooks if hook.ours] if text else []
        if any(same_file(command.shim, str(shim)) for command in commands):
            return f"hooks in {config} use it"
    return None


def _preview(config: Path, plan: Callable[[bytes], Plan], shim: Path) -> Report:
    old = config_file.peek(config)
    with _refusals_in(config):
        planned = plan(old or b"")
    return Report(config, planned.action, old, planned.new, shim, warnings=planned.warnings)


def _carry_out(
    config: Path, plan: Callable[[bytes], Plan], shim: Path, now: dt.datetime | None
) -> Report:
    plans: list[Plan] = []

    def new(old: bytes) -> bytes:
        plans.append(plan(old))
        return plans[-1].new

    with _refusals_in(config):
        edited = config_file.edit(config, new, now or dt.datetime.now(dt.UTC))
    last = plans[-1]
    return Report(
        config,
        last.action,
        edited.old,
        edited.new,
        shim,
        backup=edited.backup,
        warnings=last.warnings,
    )


def _put(*, was_there: bool) -> Action:
    return Action.REFRESHED if was_there else Action.ADDED


@contextlib.contextmanager
def _home(home: Path) -> Iterator[None]:
    """Kimi's home, made where it is missing; gone again where what comes next fails."""
    is_ours = not os.path.lexists(home)
    try:
        home.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{home}: Kimi's home cannot be made: {error.strerror}; give the right one with --home"
        ) from None
    try:
        yield
    except BaseException:
        if is_ours:
            with contextlib.suppress(OSError):  # somebody else uses it already
                home.rmdir()
        raise


@contextlib.contextmanager
def _refusals_in(config: Path) -> Iterator[None]:
    try:
        yield
    except EditRefusedError as refused:
        place = f"{config}:{refused.line}" if refused.line else str(config)
        raise ConfigError(f"{place}: {refused.reason}; {refused.remedy}") from None
