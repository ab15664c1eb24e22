"""Questions and their answers: the vendor's words as the fields of a form, and back.

The vendor asks `{id, question, options: [{id, label}], multi_select?, allow_other?}` and reports
`{question text: "label, label"}`. AEP-0006 wants `{field id: choice id}`, so an answer is given the
ids back where its words are a field's and its choices'.

Rules:
- A choice's id is structure (metadata). What matches no choice is a person's text (redacted).
- A question's text and a choice's label are content: below redacted their position stands there.
- The pinned shape `{field id: {kind, option_id}}` passes as it is; below redacted only the ids of
  choices that were offered are left of it.
- At most `MOST_FIELDS` questions of `MOST_CHOICES` choices; of what is more, nothing rides. The
  vendor's tool allows four of each. A text or a label that is too long is its position instead:
  half of it could hide from redaction.

It remembers nothing (`web_memory.py` does), and nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from attrs import frozen

from kimiaepd.mapping.event import Capture, Field
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.web_frames import short

MOST_FIELDS = 8
MOST_CHOICES = 8
LONGEST_QUESTION = 2000
LONGEST_CHOICE = 250
MOST_PARTS = 64
"""Pieces of an answer between commas; a longer one is text, and not looked through."""

_AN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


@frozen
class FormField:
    """One question. `choices` are labels by id; `is_open` says that other words may be answered."""

    id: str
    label: str
    choices: dict[str, str]
    is_multi: bool = False
    is_open: bool = False

    def spec(self, position: int, *, is_bare: bool) -> JSON:
        """The question as a field of attention.requested; bare, as it stands at metadata."""
        spec: JSONObject = {
            "id": self.id,
            "type": "select" if self.choices else "string",
            "label": str(position) if is_bare else self.label,
        }
        if self.is_multi:
            spec["multi"] = True
        if self.is_open:
            spec["other"] = True
        if self.choices:
            spec["choices"] = [
                {"id": choice, "label": str(place) if is_bare else label}
                for place, (choice, label) in enumerate(self.choices.items(), 1)
            ]
        return spec


def read_questions(questions: JSON) -> tuple[FormField, ...]:
    """The questions of a `event.question.requested`; what is no object is none."""
    return tuple(
        FormField(
            id=_id(question, f"q_{index}"),
            label=_label(question, "question", LONGEST_QUESTION) or str(index + 1),
            choices=_choices(question.get("options"), index),
            is_multi=question.get("multi_select") is True,
            is_open=question.get("allow_other") is True,
        )
        for index, question in enumerate(_objects(questions, MOST_FIELDS))
    )


def form_prompt(fields: tuple[FormField, ...]) -> str:
    """What is asked, in the vendor's words; empty where nothing could be read."""
    return "\n".join(field.label for field in fields)


def form_specs(fields: tuple[FormField, ...]) -> tuple[Field, ...]:
    """`fields` of attention.requested; nothing where nothing could be read."""
    if not fields:
        return ()
    full: JSON = [field.spec(place, is_bare=False) for place, field in enumerate(fields, 1)]
    bare: JSON = [field.spec(place, is_bare=True) for place, field in enumerate(fields, 1)]
    return (Field(("fields",), Capture.REDACTED, full, bare),)


def read_answers(answers: JSON, fields: tuple[FormField, ...]) -> tuple[Field, ...]:
    """`answer` of attention.answered, as far as the form is known."""
    members = [Field(("answer",), Capture.METADATA, {})]
    text = []
    by_name = {field.label: field for field in fields} | {field.id: field for field in fields}
    given = answers if isinstance(answers, dict) else {}
    for name, value in islice(given.items(), MOST_FIELDS):
        field = by_name.get(name)
        if field is not None:
            members.append(_valued(field.id, *_known(field, value)))
        elif isinstance(value, dict) and _AN_ID.fullmatch(name):
            members.append(_valued(name, value, None))
        elif isinstance(value, str):
            text.append(value)
    if text:
        members.append(Field(("answer", "text"), Capture.REDACTED, "\n".join(text)))
    return tuple(members)


def _valued(field_id: str, value: JSON, bare: JSON) -> Field:
    path = ("answer", "values", field_id)
    if value == bare:
        return Field(path, Capture.METADATA, value)
    return Field(path, Capture.REDACTED, value, bare)


def _known(field: FormField, value: JSON) -> tuple[JSON, JSON]:
    """The answer to a field, and what of it is structure."""
    if isinstance(value, dict):
        return value, _pinned(field, value)
    if not isinstance(value, str) or not field.choices:
        return value, None
    ids = {label: choice for choice, label in field.choices.items()}
    if not field.is_multi:
        return (ids[value], ids[value]) if value in ids else (value, None)
    parts = list(_parts(value, ids))
    chosen: list[JSON] = [part for part, is_choice in parts if is_choice]
    return [part for part, _ in parts], chosen or None


def _pinned(field: FormField, value: JSONObject) -> JSON:
    """What of the pinned shape names a choice that was offered."""
    choice = value.get("option_id")
    several = value.get("option_ids")
    if isinstance(choice, str) and choice in field.choices:
        return {"option_id": choice}
    if isinstance(several, list) and several:
        offered = [one for one in several if isinstance(one, str) and one in field.choices]
        return {"option_ids": [*offered]} if offered else None
    return None


def _parts(value: str, ids: dict[str, str]) -> Iterator[tuple[str, bool]]:
    """An answer cut at its commas: choices by id, and the text between; a label may hold commas."""
    pieces = value.split(", ")
    if len(pieces) > MOST_PARTS:
        yield value, False
        return
    text: list[str] = []
    at = 0
    while at < len(pieces):
        choice, end = _choice_at(pieces, at, ids)
        if choice is None:
            text.append(pieces[at])
        else:
            if text:
                yield ", ".join(text), False
            text = []
            yield choice, True
        at = end
    if text:
        yield ", ".join(text), False


def _choice_at(pieces: list[str], at: int, ids: dict[str, str]) -> tuple[str | None, int]:
    """The choice whose label begins at a piece, and where it ends; the longest one there is."""
    longest = max(label.count(", ") for label in ids) + 1
    for end in range(min(len(pieces), at + longest), at, -1):
        if choice := ids.get(", ".join(pieces[at:end])):
            return choice, end
    return None, at + 1


def _choices(options: JSON, question: int) -> dict[str, str]:
    return {
        _id(option, f"opt_{question}_{index}"): _label(option, "label", LONGEST_CHOICE)
        or str(index + 1)
        for index, option in enumerate(_objects(options, MOST_CHOICES))
    }


def _id(thing: JSONObject, otherwise: str) -> str:
    given = thing.get("id")
    return short(given) if isinstance(given, str) and given else otherwise


def _label(thing: JSONObject, name: str, longest: int) -> str:
    given = thing.get(name)
    return given if isinstance(given, str) and len(given) <= longest else ""


def _objects(value: JSON, most: int) -> list[JSONObject]:
    entries = value if isinstance(value, list) else []
    return [entry for entry in entries[:most] if isinstance(entry, dict)]
