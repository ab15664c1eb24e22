"""People at the other end: whether calls are held for them, who tells them, who may instruct.

Rules:
- Off is nothing bad. Where calls are held, the three times that make every hold end by itself are
  said; what is registered with Kimi is held against them by `ours.py`.
- A daemon may run with other settings than those here: a service has not the shell's variables.
  So what it says of itself is compared.
- The notifier's program is looked for, and not run: somebody would be told.

Whether an answer could come back at all is the relay's to say (`relay.py`, `own_relay.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from kimiaepd.doctor.check import Check, Patient, finding, ok, warning
from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.settings import GateSettings
from kimiaepd.setup.command import budgets

GATE, NOTIFIER, STEERING = "gate", "notifier", "steering"

_START_AGAIN = "start it again, with the settings that it shall have"


def examine(patient: Patient, status: JSONObject | None) -> tuple[Check, ...]:
    """Look at all three.

    Args:
        patient: who is examined.
        status: what the daemon says of itself; None where it says nothing. Any member of it may be
            missing, or of another type.
    """
    said = status or {}
    return (*_gate(patient, said), *_notifier(patient, said), *_steering(patient, said))


def _gate(patient: Patient, status: JSONObject) -> Iterator[Check]:
    terms = patient.settings.gate
    yield ok(GATE, _on(terms) if terms.enabled else "off (gate.enabled): no call is held")
    match status.get("gate"):
        case {"enabled": bool(runs)}:
            yield from _differs(GATE, wanted=terms.enabled, runs=runs)


def _on(terms: GateSettings) -> str:
    budget = budgets(terms)["PreToolUse"]
    times = f"{terms.hold_ms / 1000:g} s at most, its hook waits {budget.seconds:g} s"
    return f"on, mode {terms.mode.value}: a call is held for {times}, kimi {budget.timeout} s"


def _differs(name: str, *, wanted: bool, runs: bool) -> Iterator[Check]:
    if wanted != runs:
        is_so, here = ("on", "off") if runs else ("off", "on")
        said = f"it is {is_so} in the daemon that runs, and {here} by the settings here"
        yield warning(name, said, _START_AGAIN)


def _notifier(patient: Patient, status: JSONObject) -> Iterator[Check]:
    terms = patient.settings.gate
    if not terms.notify_command:
        yield ok(NOTIFIER, "off (gate.notify_command): nobody is told that a call is held")
        return
    name = terms.notify_command[0]
    program = shutil.which(name, path=patient.environ.get("PATH"))
    if program is None:
        where = "is no program that can be run" if "/" in name else "is not on PATH"
        said = f"gate.notify_command: {tame(name)} {where}, so nobody is told that a call is held"
        yield finding(NOTIFIER, said, "name one that can be run, by its absolute path; chmod +x it")
    elif not terms.enabled:
        said = "gate.notify_command is set, and gate.enabled is not: nobody is told anything"
        yield warning(NOTIFIER, said, "set gate.enabled = true, or take gate.notify_command out")
    else:
        yield ok(NOTIFIER, f"{tame(program)} is run as a hold begins and as it ends")
    if times := _failures(status.get("notifier")):
        said = f"notices that did not get through: {', '.join(times)} since the daemon started"
        yield warning(NOTIFIER, said, "what it wrote to stderr says why")


def _failures(notifier: JSON) -> list[str]:
    match notifier:
        case {"failed": dict(failed), "dropped": int(dropped)}:
            found = {**failed, "dropped": dropped}
            return [tame(f"{how} {times}") for how, times in found.items() if times]
        case _:
            return []


def _steering(patient: Patient, status: JSONObject) -> Iterator[Check]:
    settings = patient.settings
    wanted = settings.instruct.enabled
    if wanted and settings.relay.url is None and not settings.collector.enabled:
        said = "instruct.enabled is set, but without a relay no instruction can come"
        yield warning(STEERING, said, "set collector.enabled = true, or instruct.enabled = false")
        return
    on = "on: an instruction from the relay goes with its session's next prompt"
    yield ok(STEERING, on if wanted else "off (instruct.enabled): no instruction is taken")
    if "instruct" in status and status.get("relay"):
        yield from _differs(STEERING, wanted=wanted, runs=status["instruct"] is not None)
