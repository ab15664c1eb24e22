"""The options of a held call, and what an answer to it means (AEP-0002 section 5.3, AEP-0008).

Rules:
- An option decides, and the text beside it is the reason. Text alone that is, trimmed and whatever
  its case, the id of an option or the label of exactly one is that option.
- Any other text refuses, and is the reason. No text is ever taken for consent by accident.
- Labels that say only a position (below capture `redacted`) match no text.
- What is empty, or of another shape, is no answer at all: the call stays held.

It is pure. Who may answer, and until when, is `gate.py`'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from attrs import frozen

from kimiaepd.mapping.json_value import JSON, JSONObject

OptionSet: TypeAlias = Literal["two", "four"]


@frozen
class Option:
    """One thing that can be said of a held call."""

    id: str
    label: str


ALLOW = Option("allow", "No objection")
ALLOW_SESSION = Option("allow_session", "No objection for this session")
DENY = Option("deny", "Deny")
CANCEL = Option("cancel", "Cancel")

OPTIONS: dict[OptionSet, tuple[Option, ...]] = {
    "two": (ALLOW, DENY),
    "four": (ALLOW, ALLOW_SESSION, DENY, CANCEL),
}
"""What is offered, by `gate.options`. "No objection", as the CLI's own approval still comes."""


@frozen
class Answer:
    """An answer as it is applied.

    Attributes:
        option: the id of the option.
        text: what was said beside it, trimmed; None where the words were the decision.
    """

    option: str
    text: str | None = None


def offered(options: Sequence[Option]) -> JSON:
    """The options as attention.requested has them."""
    return [{"id": option.id, "label": option.label} for option in options]


def offered_by_position(options: Sequence[Option]) -> JSON:
    """The same below capture `redacted`: labels that say a position only (AEP-0002 section 5.3)."""
    return [{"id": option.id, "label": str(place)} for place, option in enumerate(options, 1)]


def read_answer(
    data: JSONObject, options: Sequence[Option], *, labelled: bool, refusing: str = DENY.id
) -> Answer | None:
    """What a control.attention.respond says; None where it says nothing that can be applied.

    Args:
        data: its payload.
        options: what was offered.
        labelled: whether their labels were shown, and not their positions.
        refusing: the option that any other text is.
    """
    answer = data.get("answer")
    if not isinstance(answer, dict):
        return None
    option, text = answer.get("option"), answer.get("text", "")
    if not isinstance(text, str):
        return None
    text = text.strip()
    if "option" in answer:
        is_offered = any(option == one.id for one in options)
        return Answer(str(option), text or None) if is_offered else None
    if not text:
        return None
    named = _named(text.casefold(), options, labelled=labelled)
    return Answer(named.id) if named else Answer(refusing, text)


def _named(folded: str, options: Sequence[Option], *, labelled: bool) -> Option | None:
    for option in options:
        if folded == option.id.casefold():
            return option
    if not labelled:
        return None
    found = [option for option in options if folded == option.label.casefold()]
    return found[0] if len(found) == 1 else None
