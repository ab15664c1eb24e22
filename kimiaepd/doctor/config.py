"""What Kimi's config.toml says: the file, every hook in it, and whether ours are right.

Rules:
- Each hook is held against the installed release's schema, whoever wrote it: one bad entry drops
  them all.
- What cannot be looked at because of something else that is wrong is not complained about.
- Hooks of other tools are named by their line: what they run is nobody's business here.

Which home it is stands in `home.py`; what ours must be, in `ours.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from attrs import frozen

from kimiaepd.doctor import home, ours
from kimiaepd.doctor.check import Check, Level, Patient, finding, ok, warning
from kimiaepd.doctor.told import told
from kimiaepd.errors import ConfigError
from kimiaepd.setup import config_file
from kimiaepd.setup.command import Command
from kimiaepd.setup.config_text import BOM, ConfigText, EditRefusedError, Hook, read
from kimiaepd.setup.events import OLDEST_TRIED, Version
from kimiaepd.setup.install import CONFIG_NAME
from kimiaepd.setup.vendor_schema import KEYS, doubt, fault, too_great

FILE, HOOKS = "config file", "hooks"

MOST_NAMED = 10
"""How many bad hooks are named one by one."""

_MEND = "mend or remove it (`kimi doctor` names it too)"
_MOVE = "move it above the first table of the file, or under its own table's header"


@frozen
class Seen:
    """What was seen in the file.

    Attributes:
        checks: in the order in which they are shown.
        commands: each command of ours that is registered, to the byte, and its parts.
    """

    checks: tuple[Check, ...]
    commands: Mapping[str, Command]

    @property
    def configured(self) -> bool:
        """Whether nothing keeps a kimi from running our hooks."""
        bad = any(check.level is Level.FINDING for check in self.checks)
        return bool(self.commands) and not bad


def examine(patient: Patient) -> Seen:
    """Look at Kimi's home and its config file.

    Raises:
        ConfigError: this interpreter cannot run hooks, or a path of ours cannot be registered.
    """
    at_home = home.examine(patient)
    if not home.is_there(at_home):
        return Seen(at_home, {})
    config = patient.settings.paths.kimi_home / CONFIG_NAME
    try:
        raw = config_file.peek(config)
        if raw is None:
            said = f"{config} does not exist, so no hook is registered"
            return Seen((*at_home, finding(FILE, said, f"run: {patient.setup_command}")), {})
        text = read(raw)
    except ConfigError as error:
        return Seen((*at_home, told(FILE, error, remedy="make it readable")), {})
    except EditRefusedError as error:
        return Seen((*at_home, _at(FILE, config, error)), {})
    checks = (
        *at_home,
        _file(config, text),
        *_hooks(config, text, patient),
        *ours.examine(config, text, patient),
    )
    return Seen(checks, ours.commands(text))


def _at(name: str, config: Path, error: EditRefusedError) -> Check:
    place = f"{config}:{error.line}" if error.line else str(config)
    return finding(name, f"{place}: {error.reason}", error.remedy)


def _file(config: Path, text: ConfigText) -> Check:
    if text.raw.startswith(BOM):
        return finding(
            FILE,
            f"{config}:1: the file begins with a byte-order mark, and kimi refuses to read it",
            "save it as UTF-8 without a byte-order mark",
        )
    if line := text.first_line_with(too_great):
        return finding(
            FILE,
            f"{config}:{line}: kimi refuses to read a file with a number as great as this one",
            "write it smaller, or as text in quotes",
        )
    return ok(FILE, f"{config} is TOML")


# --- every hook --------------------------------------------------------------------------------


def _hooks(config: Path, text: ConfigText, patient: Patient) -> Iterator[Check]:
    version = ours.judged_as(patient.installed.version)
    bad = _bad(config, text, version, f"run: {patient.setup_command}")
    named = list(islice(bad, MOST_NAMED))
    yield from named
    if more := sum(1 for _ in bad):
        yield finding(HOOKS, f"{config}: {more} more such hooks", _MEND)
    if not named:
        others = sum(not hook.ours for hook in text.hooks)
        whose = f", {others} of other tools" if others else ""
        whom = f"kimi {version}" if version else f"every kimi since {OLDEST_TRIED}"
        yield ok(HOOKS, f"{len(text.hooks)}{whose}; {whom} takes them")


def _bad(config: Path, text: ConfigText, version: Version | None, setup: str) -> Iterator[Check]:
    """The hooks that drop every hook, and those that may."""
    if text.bad_hooks:
        yield _at(HOOKS, config, text.bad_hooks)
    mendable: dict[str, int] = {}
    for hook in text.hooks:
        found = fault(hook.values, version)
        if not hook.ours:
            yield from _foreign(config, text, hook, found, version)
        elif found and (stranger := text.stranger(hook, KEYS)):
            line, key = stranger
            yield finding(
                HOOKS,
                f"{config}:{line}: `{key}` stands inside a [[hooks]] table of ours, so kimi takes"
                " it for a key of that hook and drops every hook",
                _MOVE,
            )
        elif found:
            mendable.setdefault(found, hook.line)
    if mendable:  # one line for all of ours: one command mends them
        first, *more = mendable
        said = f"a hook of ours makes kimi drop every hook: {first}"
        also = f" (and {len(more)} more such)" if more else ""
        yield finding(HOOKS, f"{config}:{mendable[first]}: {said}{also}", setup)


def _foreign(
    config: Path, text: ConfigText, hook: Hook, found: str | None, version: Version | None
) -> Iterator[Check]:
    if found:
        stranger = text.stranger(hook, KEYS)
        line = stranger[0] if stranger else hook.line
        said = f"{config}:{line}: another tool's hook makes kimi drop every hook: {found}"
        yield finding(HOOKS, said, f"remove it, or {_MOVE}" if stranger else _MEND)
    elif doubtful := doubt(hook.values, version):
        said = f"{config}:{hook.line}: another tool's hook may make kimi drop every hook"
        yield warning(HOOKS, f"{said}: {doubtful}", _MEND)
