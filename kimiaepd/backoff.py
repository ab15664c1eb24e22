"""How long to wait before the next try: full jitter, capped, and slower where trying is futile.

Rules (operations I45): a wait is uniform between nothing and `BASE * 2**failures`, capped, so that
many daemons do not come back at one moment; it begins anew only after a connection that lasted.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from attrs import define

BASE_SECONDS = 0.5
CAP_SECONDS = 30.0
HEALTHY_SECONDS = 60.0
"""A connection that lasted so long was a good one; one that is accepted and closed never is."""

REFUSED_SECONDS = 300.0
"""Between tries where the relay refused the token: nothing changes by asking often."""

_ENOUGH = 16
"""Doublings beyond this change nothing, and a float has an end."""


@define
class Backoff:
    """The waits of one relay.

    Attributes:
        uniform: a random number between two.
        failures: connections in a row that did not last.
    """

    uniform: Callable[[float, float], float] = random.uniform
    failures: int = 0

    def lasted(self, seconds: float) -> None:
        """A connection ended after so long."""
        if seconds >= HEALTHY_SECONDS:
            self.failures = 0

    def next(self, *, is_refused: bool = False, retry_after: float | None = None) -> float:
        """Seconds until the next try.

        Args:
            is_refused: the relay does not take our token.
            retry_after: what the relay asked for, in seconds; at most the slow rate is obeyed.
        """
        if is_refused:
            return self.uniform(REFUSED_SECONDS / 2, REFUSED_SECONDS)
        highest = min(CAP_SECONDS, BASE_SECONDS * 2 ** min(self.failures, _ENOUGH))
        self.failures += 1
        wait = self.uniform(0.0, highest)
        return max(wait, min(retry_after or 0.0, REFUSED_SECONDS))
