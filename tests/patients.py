"""Who the doctor's tests examine: an instance's settings, without a kimi."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kimiaepd import settings
from kimiaepd.doctor.check import Check, Level, Patient
from kimiaepd.setup.kimi_version import NONE_FOUND


def patient(environ: Mapping[str, str]) -> Patient:
    """The instance that an environment says."""
    return Patient(
        settings=settings.load(environ),
        environ=environ,
        home_by="the default",
        installed=NONE_FOUND,
        setup_command="kimiaepd setup install",
    )


def lines(checks: Iterable[Check]) -> list[str]:
    """What a person reads of the checks."""
    return [f"{check.level} {check.name}: {check.said} -> {check.remedy}" for check in checks]


def bad(checks: Iterable[Check]) -> list[str]:
    """The same, of those that are not ok."""
    return lines(check for check in checks if check.level is not Level.OK)
