"""Form answers (AEP-0006): what a form's fields allow, and which answers are free text.

What an answer must be, and at which level it may ride, depends on the field that it answers, so
open forms are remembered. An answer to a form that was not seen, or is closed, is not judged; nor
is a command's answer but for its level, because the emitter may reject it.

Below redacted an answer has lost its free text, so nothing that is required is missed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.validate.finding import Fault, shown
from kimiaepd.validate.reading import as_object, data_of, level_of, objects

_RULE = "AEP-0002 §5.3"


class Forms:
    """The forms that wait for an answer; one for each log.

    It holds the field specs of open forms: at most the bytes of the events that asked.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[JSON, JSON], dict[str, JSONObject]] = {}

    def check(self, event: JSONObject) -> list[Fault]:
        """Remember a form, judge an answer, forget what is closed."""
        asked = (event.get("session"), event.get("subject"))
        match event["type"]:
            case "attention.requested":
                if data_of(event).get("kind") == "form":
                    self._open[event.get("session"), event["id"]] = _fields(event)
            case "attention.answered" | "control.attention.respond":
                if asked in self._open:
                    return list(_answer_faults(self._open[asked], event))
            case "attention.resolved" | "attention.timeout":
                self._open.pop(asked, None)
        return []


def _fields(event: JSONObject) -> dict[str, JSONObject]:
    """The field specs of a form, by id."""
    return {str(field.get("id")): field for _, field in objects(data_of(event), "fields")}


def _answer_faults(fields: dict[str, JSONObject], event: JSONObject) -> Iterator[Fault]:
    values = as_object(data_of(event).get("answer")).get("values")
    if not isinstance(values, dict):
        return
    bare = level_of(event) == "metadata"
    if bare:
        yield from _leaks(fields, values)
    if event["type"] != "attention.answered":
        return
    for name, value in values.items():
        field = fields.get(name)
        if field is None:
            yield _fault(name, "answers no field of the form")
        elif (what := _misfit(field, value)) is not None:
            yield _fault(name, f"must be {what}, not {shown(value)}")
    if not bare:
        for name, field in fields.items():
            if field.get("required") is True and name not in values:
                yield _fault(name, "is required by the form")


def _leaks(fields: dict[str, JSONObject], values: JSONObject) -> Iterator[Fault]:
    for name, value in values.items():
        if name in fields and _is_free_text(fields[name], value):
            yield _fault(name, "is free text and needs capture redacted")


def _fault(name: str, message: str) -> Fault:
    return Fault(_RULE, f"data.answer.values: {shown(name)} {message}")


def _is_free_text(field: JSONObject, value: JSON) -> bool:
    """Whether an answer is text that its author wrote, rather than a choice or a number."""
    kind = field.get("type")
    return kind == "string" or (kind == "select" and not _are_choices(field, _entries(value)))


def _misfit(field: JSONObject, value: JSON) -> str | None:
    """What an answer to this field must be, where it is not."""
    expected = _EXPECTED.get(str(field.get("type")))
    if expected is None:
        return None
    what, fits = expected
    return None if fits(field, value) else what


def _is_selection(field: JSONObject, value: JSON) -> bool:
    if isinstance(value, list) != (field.get("multi") is True):
        return False
    entries = _entries(value)
    if field.get("other") is True:
        return all(isinstance(entry, str) for entry in entries)
    return _are_choices(field, entries)


def _entries(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else [value]


def _are_choices(field: JSONObject, entries: list[JSON]) -> bool:
    ids = [choice.get("id") for _, choice in objects(field, "choices")]
    return all(isinstance(entry, str) and entry in ids for entry in entries)


def _is_number(_field: JSONObject, value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_EXPECTED: dict[str, tuple[str, Callable[[JSONObject, JSON], bool]]] = {
    "string": ("text", lambda _field, value: isinstance(value, str)),
    "number": ("a number", _is_number),
    "boolean": ("true or false", lambda _field, value: isinstance(value, bool)),
    "select": ("what the field's choices allow", _is_selection),
}
"""What the answer to each type of field must be: in words, and as a test."""
