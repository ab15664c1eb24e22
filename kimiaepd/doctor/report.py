"""What the doctor found, whole: the checks, the three truths, and how many there are of each."""

from __future__ import annotations

import datetime as dt

from attrs import frozen

from kimiaepd.doctor.check import Check, Level
from kimiaepd.mapping.json_value import JSON, JSONObject


@frozen
class Report:
    """What was found.

    Attributes:
        checks: in the order in which they are shown.
        configured: whether Kimi's file says what it must.
        probed: whether a probe by the registered command arrived at the daemon.
        fired: when the last hook of a real kimi came, in UTC; None where none is known of.
    """

    checks: tuple[Check, ...]
    configured: bool = False
    probed: bool = False
    fired: dt.datetime | None = None

    def count(self, level: Level) -> int:
        """How many checks went so."""
        return sum(check.level is level for check in self.checks)

    def as_json(self) -> JSONObject:
        """The whole report for a program; its names stay as they are."""
        checks: list[JSON] = [
            {"name": each.name, "level": each.level, "said": each.said, "remedy": each.remedy}
            for each in self.checks
        ]
        return {
            "checks": checks,
            "configured": self.configured,
            "probed": self.probed,
            "fired": self.fired.isoformat() if self.fired else None,
            "findings": self.count(Level.FINDING),
            "warnings": self.count(Level.WARNING),
        }
