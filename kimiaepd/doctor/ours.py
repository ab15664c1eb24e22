"""Our own hooks in Kimi's config.toml, held against what `kimiaepd setup install` would write.

Rules:
- What is wrong is one line, however many hooks have it, because one command mends it.
- A hook that does nothing is as bad as none: the files that it names must be there, and its socket
  must be this daemon's. What happens when it is run is `command.py`'s business.
- Another interpreter that works is a warning; it is what an upgrade of Python leaves.
- What makes kimi drop every hook is said by `config.py`, and not here again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kimiaepd.doctor.check import Check, Patient, finding, ok, warning
from kimiaepd.paths import Paths
from kimiaepd.setup.command import Command, Entry
from kimiaepd.setup.config_edit import Action, plan_install
from kimiaepd.setup.config_text import ConfigText, EditRefusedError, Hook
from kimiaepd.setup.events import OLDEST_TRIED, Version, certainly_unknown
from kimiaepd.setup.install import intended
from kimiaepd.setup.standing import causes, same_file
from kimiaepd.setup.vendor_schema import fault

NAME = "our hooks"

MOST_NAMED = 5
"""How many events are named one by one."""


def examine(config: Path, text: ConfigText, patient: Patient) -> Iterator[Check]:
    """Look at every hook of ours.

    Raises:
        ConfigError: this interpreter cannot run hooks, or a path of ours cannot be registered.
    """
    ours = [hook for hook in text.hooks if hook.ours]
    run_setup = f"run: {patient.setup_command}"
    if not ours:
        if not text.bad_hooks:  # then that is what keeps them out
            yield finding(NAME, f"no hook of ours in {config}", run_setup)
        return
    matchers = list(_matchers(text, ours))
    for line in matchers:
        what = "a matcher was added to one of our hooks, so it does not always fire"
        yield finding(NAME, f"{config}:{line}: {what}", "delete that line")
    version = judged_as(patient.installed.version)
    # Where no release is known, what is registered may be known to the one that is there.
    wanted = intended(patient.settings, version, also=() if version else _by_event(ours))
    if said := list(_differences(ours, wanted, patient.settings.paths, version)):
        yield finding(NAME, f"{config}: {'; '.join(said)}", run_setup)
    elif others := list(_other_interpreters(ours, wanted)):
        yield warning(NAME, f"{config}: {'; '.join(others)}", run_setup)
    elif matchers or any(fault(hook.values, version) for hook in ours):
        return  # said above, or by `config.py`
    elif _would_change(text, wanted, version):
        yield finding(NAME, f"{config}: they are not as setup would write them now", run_setup)
    else:
        yield ok(NAME, f"{len(ours)}, complete and current")


def judged_as(version: Version | None) -> Version | None:
    """The release whose hooks are known; None where nobody knows what this one has."""
    return version if version and version >= OLDEST_TRIED else None


def commands(text: ConfigText) -> Mapping[str, Command]:
    """Each command of ours that is registered, to the byte, and its parts."""
    return {str(hook.values["command"]): hook.ours for hook in text.hooks if hook.ours}


def _by_event(ours: list[Hook]) -> dict[str, list[Hook]]:
    found: dict[str, list[Hook]] = {}
    for hook in ours:
        if isinstance(event := hook.values.get("event"), str):
            found.setdefault(event, []).append(hook)
    return found


def _matchers(text: ConfigText, ours: list[Hook]) -> Iterator[int]:
    for hook in ours:
        if "matcher" in hook.values:
            stranger = text.stranger(hook, ("event", "command", "timeout"))
            yield stranger[0] if stranger else hook.line


def _would_change(text: ConfigText, wanted: tuple[Entry, ...], version: Version | None) -> bool:
    try:
        return plan_install(text.raw, wanted, version).action is not Action.UNCHANGED
    except EditRefusedError:
        return False  # `config.py` says what stands in the way


# --- what is not as it must be -----------------------------------------------------------------


def _differences(
    ours: list[Hook], wanted: tuple[Entry, ...], paths: Paths, version: Version | None
) -> Iterator[str]:
    have = _by_event(ours)
    missing = [entry.event for entry in wanted if entry.event not in have]
    # A hook whose own event is wrong is said by `config.py`, and why another one is missing.
    if missing and not any(_is_misnamed(hook, version) for hook in ours):
        yield f"no hook of ours for {_listed(missing)}"
    if doubled := [event for event, hooks in have.items() if len(hooks) > 1]:
        yield f"more than one hook of ours for {_listed(doubled)}"
    names = {entry.event for entry in wanted}
    strange = [event for event in have if event not in names]
    if strange := [event for event in strange if not certainly_unknown(event, version)]:
        yield f"setup would register no hook for {_listed(strange)}"
    pairs = [(hook, entry) for entry in wanted for hook in have.get(entry.event, ())]
    yield from _timeouts(pairs, version)
    yield from _deadlines(pairs)
    distinct = dict.fromkeys(hook.ours for hook in ours if hook.ours)
    yield from dict.fromkeys(
        f"these hooks do nothing: {cause}"
        for command in distinct
        for cause in causes(command, paths)
    )
    yield from _other_shims(distinct, paths)


def _is_misnamed(hook: Hook, version: Version | None) -> bool:
    event = hook.values.get("event")
    return not isinstance(event, str) or certainly_unknown(event, version)


def _timeouts(pairs: Sequence[tuple[Hook, Entry]], version: Version | None) -> Iterator[str]:
    wrong: dict[tuple[object, int], list[str]] = {}
    for hook, entry in pairs:
        said = hook.values.get("timeout")
        if said != entry.timeout and not fault(hook.values, version):
            wrong.setdefault((said, entry.timeout), []).append(entry.event)
    for (said, must), events in wrong.items():
        is_so = "missing" if said is None else f"{said} s"
        yield f"the timeout of {_listed(events)} is {is_so}, and must be {must} s"


def _deadlines(pairs: Sequence[tuple[Hook, Entry]]) -> Iterator[str]:
    wrong: dict[tuple[float, float], list[str]] = {}
    for hook, entry in pairs:
        must = Command.recognise(entry.command)
        if hook.ours and must and hook.ours.seconds != must.seconds:
            wrong.setdefault((hook.ours.seconds, must.seconds), []).append(entry.event)
    for (said, must_be), events in wrong.items():
        yield f"the wait of {_listed(events)} is {said:g} s, and must be {must_be:g} s"


def _other_shims(distinct: Iterable[Command], paths: Paths) -> Iterator[str]:
    for shim in dict.fromkeys(command.shim for command in distinct):
        if os.path.isfile(shim) and not same_file(shim, str(paths.installed_shim)):  # noqa: PTH113 - never raises
            yield f"they run {shim}, and the installed hook program is {paths.installed_shim}"


def _other_interpreters(ours: list[Hook], wanted: tuple[Entry, ...]) -> Iterator[str]:
    must = next((Command.recognise(entry.command) for entry in wanted), None)
    for python in dict.fromkeys(hook.ours.python for hook in ours if hook.ours):
        if must and not same_file(python, must.python):
            yield f"they run with {python}, and setup would name {must.python} now"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NAMED])
    more = len(names) - MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
