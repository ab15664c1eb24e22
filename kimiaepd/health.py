"""What is wrong with the daemon itself, as `agent.health` says it: which parts, since they changed.

Rules:
- A part degrades or recovers once; saying it twice is no news.
- It belongs to no session, so it is in no log: it goes to the relay that is there, and to the next
  one after its hello as long as something is wrong.

It does not watch anything: whoever meets the trouble says so.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.json_value import JSONObject


@define(eq=False)
class Health:
    """The parts that are not well.

    Attributes:
        changed: told whenever a part degrades or recovers.
    """

    changed: Callable[[], object] = lambda: None
    _troubles: dict[str, str] = field(factory=dict)

    @property
    def is_well(self) -> bool:
        """Whether no part is in trouble."""
        return not self._troubles

    def degraded(self, part: str, why: str) -> None:
        """A part does less than it should."""
        if part not in self._troubles:
            self._troubles[part] = why
            self.changed()

    def recovered(self, part: str) -> None:
        """It does what it should again."""
        if self._troubles.pop(part, None) is not None:
            self.changed()

    def draft(self) -> Draft:
        """The event that says how things are."""
        status = Field(("status",), Capture.METADATA, "ok" if self.is_well else "degraded")
        if self.is_well:
            return Draft("agent.health", None, (status,))
        detail = "; ".join(f"{part}: {why}" for part, why in self._troubles.items())
        return Draft(
            "agent.health",
            None,
            (status, Field(("detail",), Capture.REDACTED, detail)),
            "warning",
        )

    def status(self) -> JSONObject:
        """What `kimiaepd status` says of it: each part in trouble, and why."""
        return dict(self._troubles)
