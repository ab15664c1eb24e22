"""Whether a session's gate stands: nobody waits again and again for a person who is not there.

Rules:
- After `TIMEOUTS` in a row in one session, with no command from anyone between them, its gate
  stands down: calls pass as if there were no gate, but for rejecting rules.
- Any command, or a consumer that connects, means that somebody is there: every gate stands again,
  and the counting begins anew.
- An answer is a command; a hold that ends for another reason says nothing about people.
- At most `MOST` sessions are counted; the one that timed out longest ago is forgotten first, and
  its gate stands.
"""

from __future__ import annotations

from attrs import define, field

TIMEOUTS = 2
MOST = 2_000


@define
class Standing:
    """The gates of all sessions.

    Attributes:
        timeouts: of each session, how many in a row; those that had none are not in it.
    """

    timeouts: dict[str, int] = field(factory=dict)

    def is_down(self, session: str) -> bool:
        """Whether the session's gate holds nothing."""
        return self.timeouts.get(session, 0) >= TIMEOUTS

    def timed_out(self, session: str) -> bool:
        """Count one; whether the gate stands down by it."""
        count = self.timeouts.pop(session, 0) + 1
        self.timeouts[session] = count
        if len(self.timeouts) > MOST:
            del self.timeouts[next(iter(self.timeouts))]
        return count == TIMEOUTS

    def somebody_came(self) -> None:
        """Every gate stands again."""
        self.timeouts.clear()

    def over(self, session: str) -> None:
        """The session has ended."""
        self.timeouts.pop(session, None)

    @property
    def down(self) -> int:
        """How many gates stand down."""
        return sum(count >= TIMEOUTS for count in self.timeouts.values())
