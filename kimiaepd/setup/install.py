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
import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from attrs import evolve, frozen

from kimiaepd.errors import ConfigError
from kimiaepd.paths import Paths
from kimiaepd.settings import Settings
from kimiaepd.setup import config_file, installed_shim
from kimiaepd.setup.command import NO_EXCEPTIONS, Budget, budgets, entries
from kimiaepd.setup.config_edit import Action, Plan, plan_install, plan_uninstall
from kimiaepd.setup.config_text import ConfigText, EditRefusedError, read
from kimiaepd.setup.events import OLDEST_TRIED, Version, known_to
from kimiaepd.setup.interpreter import running_interpreter
from kimiaepd.setup.standing import INSTALL, causes, same_file
from kimiaepd.setup.vendor_schema import fault

CONFIG_NAME = "config.toml"


@frozen
class Report:
    """What an install or an uninstall did, or would do where it was only tried.

    Attributes:
        config: the vendor's file.
        action: what was done to it.
        old: its bytes before; None where there was no file.
        new: its bytes after.
        backup: the copy of the old ones, if one was made.
        shim: where the installed hook program has its place.
        shim_was_there: whether there was one before.
        shim_changed: whether it was written or removed.
        shim_kept: why an uninstall left it, for people.
        warnings: what was left as it is, a line each.
    """

    config: Path
    action: Action
    old: bytes | None
    new: bytes
    shim: Path
    shim_was_there: bool
    backup: Path | None = None
    shim_changed: bool = False
    shim_kept: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything on disk is other than before."""
        return self.shim_changed or self.action is not Action.UNCHANGED

    def diff(self) -> str:
        """The change of the file as a unified diff; empty where there is none."""
        old = (self.old or b"").decode("utf-8").splitlines(keepends=True)
        new = self.new.decode("utf-8").splitlines(keepends=True)
        before = "/dev/null" if self.old is None else str(self.config)
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(old, new, before, str(self.config))
        )


def install_in(settings: Settings, version: Version | None, *, dry_run: bool = False) -> Report:
    """Register every event that a release knows, with this interpreter, as the settings say.

    Raises:
        ConfigError: see `install`; or the release is too old, or the interpreter cannot run hooks.
    """
    events = known_to(version)
    if not events:
        raise ConfigError(
            f"kimi {version} is older than {OLDEST_TRIED}, and which hooks it has is not known;"
            " update kimi, or say with --kimi-version which release it is"
        )
    paths = settings.paths
    return install(
        paths.kimi_home / CONFIG_NAME,
        socket=paths.socket,
        shim=paths.installed_shim,
        interpreter=running_interpreter(),
        events=events,
        version=version,
        exceptions=budgets(settings.gate),
        dry_run=dry_run,
    )


def install(
    config: Path,
    *,
    socket: Path,
    shim: Path,
    interpreter: Path,
    events: tuple[str, ...],
    version: Version | None = None,
    exceptions: Mapping[str, Budget] = NO_EXCEPTIONS,
    program: bytes | None = None,
    now: dt.datetime | None = None,
    dry_run: bool = False,
) -> Report:
    """Register our hooks, or bring them up to date.

    Args:
        config: the vendor's config.toml; created, private, where it is missing.
        socket: where the daemon listens.
        shim: where the hook program is installed.
        interpreter: what runs it.
        events: which events; all of them known to `version`.
        version: the installed release; None where nobody could say.
        exceptions: events that get another budget than `command.OBSERVED`.
        program: the hook program's bytes; this version's own by default.
        now: the time for the backup's name, in UTC.
        dry_run: plan and report; write nothing.

    Raises:
        ConfigError: the file cannot be edited safely; the line names it, the reason, the remedy.
    """
    wanted = entries(
        socket=str(socket),
        shim=str(shim),
        python=str(interpreter),
        events=events,
        exceptions=exceptions,
    )
    program = installed_shim.source() if program is None else program

    def plan(old: bytes) -> Plan:
        return plan_install(old, wanted, version)

    preview = _preview(config, plan, shim)
    if dry_run:
        return evolve(preview, shim_changed=not installed_shim.is_current(shim, program))
    shim_changed = installed_shim.install(shim, program)
    _make_home(config.parent)
    return evolve(
        _carry_out(config, plan, shim, now),
        shim_changed=shim_changed,
        shim_was_there=preview.shim_was_there,
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
        others: the other configs that may have hooks of ours; the shim stays while one has.
        now: the time for the backup's name, in UTC.
        dry_run: plan and report; write nothing.

    Raises:
        ConfigError: the file cannot be edited safely; the line names it, the reason, the remedy.
    """
    if dry_run:
        report = _preview(config, plan_uninstall, shim)
    else:
        report = _carry_out(config, plan_uninstall, shim, now)
    kept = _in_use(shim, [other for other in others if not same_file(str(other), str(config))])
    if kept:
        return evolve(report, shim_kept=kept)
    changed = report.shim_was_there if dry_run else installed_shim.remove(shim)
    return evolve(report, shim_changed=changed)


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
    return Report(
        config,
        planned.action,
        old,
        planned.new,
        shim,
        shim_was_there=os.path.lexists(shim),
        warnings=planned.warnings,
    )


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
        shim_was_there=os.path.lexists(shim),
        backup=edited.backup,
        warnings=last.warnings,
    )


def _make_home(home: Path) -> None:
    try:
        home.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{home}: Kimi's home cannot be made: {error.strerror}; give the right one with --home"
        ) from None


@contextlib.contextmanager
def _refusals_in(config: Path) -> Iterator[None]:
    try:
        yield
    except EditRefusedError as refused:
        place = f"{config}:{refused.line}" if refused.line else str(config)
        raise ConfigError(f"{place}: {refused.reason}; {refused.remedy}") from None
