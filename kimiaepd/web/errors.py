"""What can go wrong with a `kimi web` server: nobody answers, somebody else does, or it says no.

Rules:
- `str()` is fit for a log line or a status: no token, and the server's own words only where they
  are said to be there. They can name paths; never let them into an event.
- `code` is a word fit for an event.
- A code that is not in the table is a refusal like the others: the vendor adds some.
"""

from __future__ import annotations

from enum import IntEnum

from kimiaepd.log_lines import tame


class Refusal(IntEnum):
    """The vendor's error codes, as far as they were met or named (0.28.0 to 2.1.0)."""

    INVALID = 40001
    UNAUTHORIZED = 40101
    INVALID_HOST = 40301
    NO_SESSION = 40401
    NO_PROMPT = 40402
    NO_APPROVAL = 40404
    NO_QUESTION = 40405
    NO_FOLDER = 40409
    ALREADY_RESOLVED = 40902
    NOTHING_TO_COMPACT = 40910
    TOO_MANY_FAILURES = 42901
    INTERNAL = 50001


DISMISSED = 40909
"""The one code beside 0 that is a success: a question was dismissed."""


class WebError(Exception):
    """A call to a server failed; `code` says how, in a word fit for an event."""

    code = "web"


class NoTokenError(WebError):
    """The home has no token to ask with. Nothing was sent."""

    code = "no-token"


class NoAnswerError(WebError):
    """Nobody answers, or the answer broke off.

    Attributes:
        is_refused: nothing listens there: the server is starting, stopping or gone, and the call
            had no effect. Otherwise a write may have had its effect.
    """

    code = "no-answer"

    def __init__(self, why: str, *, is_refused: bool = False) -> None:
        super().__init__(why)
        self.is_refused = is_refused


class OddAnswerError(WebError):
    """What answered is not `kimi web` as it is known: no envelope, or not the call's data."""

    code = "odd-answer"


class RefusedError(WebError):
    """The server said no.

    Attributes:
        number: its code.
        refusal: the same, where it is known.
        said: its own words, tamed; they can name paths.
    """

    def __init__(self, number: int, said: str = "") -> None:
        super().__init__(f"kimi web refused it ({number})")
        self.number = number
        self.refusal = Refusal(number) if number in Refusal.__members__.values() else None
        self.said = tame(said)

    @property
    def code(self) -> str:  # type: ignore[override]  # computed here, constant elsewhere
        """The code's name, such as "no-session"."""
        name = self.refusal.name if self.refusal else "refused"
        return name.lower().replace("_", "-")
