"""Who is subscribed on one connection, and who is asked for: what an acknowledgement means.

Rules:
- Only what was asked for is believed: whatever a server names beside that is not listened to.
- What is asked for is not asked for again until that is acknowledged, or the server has said
  nothing of it for `ACK_SECONDS`.
- What is replayed comes before the acknowledgement, and without holes: until that only the frame
  that follows the cursor is taken. The greatest place of those that were not is remembered, because
  an acknowledgement that does not reach it leaves it out.
- At most `MOST` sessions, subscribed or asked for, with ids of `LONGEST_SESSION` characters.

No I/O and no clock. From where a session is told, and what is missing, is for `conversation.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import define, field

from kimiaepd.mapping.payloads import LONGEST_SESSION
from kimiaepd.web.cursors import Cursor
from kimiaepd.web.wire import Ack, Resync

ACK_SECONDS = 30.0
"""How long a server may say nothing of a session that is asked for."""

MOST = 2_000
"""Sessions on one connection: a server has a few dozen that live."""


@define
class Asked:
    """A session that is asked for, and not acknowledged yet.

    Attributes:
        request: the subscription's own id.
        after: after what it is to be told, and then how far it was; None: from now on.
        at: when it was asked for, or a frame of it came (monotonic seconds).
        passed: the greatest place of a frame that was passed over.
        cut: why it cannot be told on from there, where the server says so.
    """

    request: str
    after: Cursor | None
    at: float
    passed: int = 0
    cut: Resync | None = None


@define(eq=False)
class Subscriptions:
    """Those of one connection.

    Attributes:
        sessions: who is subscribed.
        asked: who is asked for.
    """

    sessions: set[str] = field(factory=set)
    asked: dict[str, Asked] = field(factory=dict)

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those that are neither subscribed nor asked for, as far as there is room."""
        room = MOST - len(self.sessions) - len(self.asked)
        unique = dict.fromkeys(name for name in names if len(name) <= LONGEST_SESSION)
        missing = [one for one in unique if one not in self.sessions and one not in self.asked]
        return missing[: max(0, room)]

    def ask(self, request: str, wanted: Mapping[str, Cursor | None], now: float) -> None:
        """A subscription goes out."""
        for name, after in wanted.items():
            self.asked[name] = Asked(request, after, now)

    def follows(self, name: str, seq: int, epoch: str | None, now: float) -> bool:
        """Whether a frame of a session that is asked for is the next of what is replayed."""
        asked = self.asked[name]
        asked.at = now
        if asked.after is None or seq != asked.after.seq + 1:
            asked.passed = max(asked.passed, seq)
            return False
        asked.after = Cursor(seq, epoch or asked.after.epoch)
        return True

    def cut(self, resync: Resync) -> None:
        """The server says that a session cannot be told on from its cursor."""
        if asked := self.asked.get(resync.session):
            asked.cut = resync

    def acknowledged(self, ack: Ack) -> dict[str, Asked]:
        """Who is subscribed by an acknowledgement, and as what each was asked for."""
        answered = {name: one for name, one in self.asked.items() if one.request == ack.request}
        for name in answered:
            del self.asked[name]
        accepted = {name: answered[name] for name in ack.accepted if name in answered}
        self.sessions |= accepted.keys()
        return accepted

    def give_up(self, now: float) -> list[str]:
        """Forget what the server says nothing of, so that it is asked for anew; who that is."""
        late = [name for name, asked in self.asked.items() if now - asked.at >= ACK_SECONDS]
        for name in late:
            del self.asked[name]
        return late
