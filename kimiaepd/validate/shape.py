"""The shape of one event: its envelope, its type, its payload, in words and with the section.

The schemas decide (`schemas.py`); beside them stands the registry, because a core type must be a
registered one. Which level a payload's members need is `levels.py`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.standard import categories, envelope_schema, payload_schema, registered_types
from kimiaepd.validate.finding import Fault, shown
from kimiaepd.validate.reading import as_object
from kimiaepd.validate.schemas import Refusal, refusals

_ATTRIBUTE_RULES = {
    "type": "AEP-0001 §6",
    "severity": "AEP-0001 §8.1",
    "capture": "AEP-0001 §8.2",
}
"""Where an attribute has a section of its own; section 5.1 defines the others."""


def envelope_faults(event: JSON) -> list[Fault]:
    """What is wrong with an event's envelope (AEP-0001 section 5)."""
    return _distinct(_envelope_faults(event))


def first_envelope_fault(event: JSON) -> Fault | None:
    """One of them, for who only wants to know whether there is any; its cost is bounded."""
    try:
        return next(_envelope_faults(event), None)
    except RecursionError:  # it is refused, and the library cannot even quote it
        return Fault("AEP-0001 §5", "the envelope is refused, and nested too deep to say why")


def _envelope_faults(event: JSON) -> Iterator[Fault]:
    if not isinstance(event, dict):
        yield Fault("AEP-0001 §5", f"an event is a JSON object, not {shown(event)}")
        return
    for refusal in refusals(None, event):
        yield Fault(_envelope_rule(event, refusal), _words("", refusal))


def type_faults(event: JSONObject) -> list[Fault]:
    """Whether a core type is one of those that are registered; the envelope must be valid."""
    name = str(event["type"])
    if name in registered_types() or name.startswith("x."):
        return []
    return [Fault("AEP-0002 §4", f"type: {shown(name)} is not a registered type")]


def payload_faults(event: JSONObject) -> list[Fault]:
    """What is wrong with an event's `data` by its type; the envelope must be valid.

    Absent data is an empty payload, which lacks what the type requires, except at capture none.
    """
    name = str(event["type"])
    if payload_schema(name) is None or event.get("capture") == "none":
        return []
    return _distinct(
        Fault(_payload_rule(name), _words("data", refusal))
        for refusal in refusals(name, event.get("data", {}))
    )


def _distinct(faults: Iterable[Fault]) -> list[Fault]:
    """Each fault once: the library repeats a `required` for every name that is missing."""
    return list(dict.fromkeys(faults))


def _envelope_rule(event: JSONObject, refusal: Refusal) -> str:
    """The section that a refused envelope breaks."""
    category, *rest = str(event.get("type")).split(".")
    if refusal.keyword == "required":
        return "AEP-0001 §5.2" if "allOf" in refusal.branch else "AEP-0001 §5.1"
    if refusal.wanted == []:
        return "AEP-0004 §2.2" if "control" in (category, *rest) else "AEP-0001 §5.2"
    attribute = refusal.path[0] if refusal.path else None
    if attribute == "type" and rest and category not in categories():
        return "AEP-0002 §3"
    if attribute not in as_object(envelope_schema()["properties"]):
        return "AEP-0001 §5.4"
    return _ATTRIBUTE_RULES.get(str(attribute), "AEP-0001 §5.1")


def _payload_rule(name: str) -> str:
    """The section that says what a type's payload holds."""
    if name.startswith("control."):
        return "AEP-0004 §3" if name in {"control.accepted", "control.rejected"} else "AEP-0004 §5"
    return "AEP-0002 §5.3" if registered_types()[name].status == "mandatory" else "AEP-0002 §5.4"


def _words(where: str, refusal: Refusal) -> str:
    """A refusal for people: where, and what should be there."""
    place = ".".join([where, *map(_step, refusal.path)]).strip(".")
    told = _WORDS.get(refusal.keyword)
    words = f"{shown(refusal.value)} is refused" if told is None else told(refusal)
    return f"{place}: {words}" if place else words


def _step(part: str | int) -> str:
    """One step of a path; a name that is not plain text is quoted."""
    name = str(part)
    return name if name.isprintable() else shown(name)


def _list(wanted: JSON) -> list[str]:
    return [str(entry) for entry in (wanted if isinstance(wanted, list) else [wanted])]


def _missing(refusal: Refusal) -> str:
    given = as_object(refusal.value)
    absent = [name for name in _list(refusal.wanted) if name not in given]
    return f"{', '.join(absent)} must be given"


def _kinds(refusal: Refusal) -> str:
    return f"must be of type {' or '.join(_list(refusal.wanted))}, not {shown(refusal.value)}"


def _choices(refusal: Refusal) -> str:
    if not refusal.wanted:
        return "must be left out of an event of this type"
    return f"must be one of {', '.join(_list(refusal.wanted))}, not {shown(refusal.value)}"


def _form(refusal: Refusal) -> str:
    attribute = str(refusal.path[-1]) if refusal.path else ""
    return f"{shown(refusal.value)} is not {_FORMS.get(attribute, _NAME_FORM)}"


def _format(refusal: Refusal) -> str:
    return f"must be {_FORMATS[str(refusal.wanted)]}, not {shown(refusal.value)}"


_FORMS = {
    "type": "category.rest with a category of the standard, in lower case",
    "traceparent": "a W3C traceparent",
}
_NAME_FORM = "a name for an attribute: 1 to 20 of a-z and 0-9"

_FORMATS = {
    "date-time": "an RFC 3339 date and time with a time zone",
    "uri": "a URI: a scheme, and percent-encoding for what it may not hold",
}

_WORDS: dict[str, Callable[[Refusal], str]] = {
    "const": lambda refusal: f"must be {shown(refusal.wanted)}, not {shown(refusal.value)}",
    "enum": _choices,
    "format": _format,
    "maximum": lambda refusal: f"must be at most {refusal.wanted}, not {shown(refusal.value)}",
    "minimum": lambda refusal: f"must be at least {refusal.wanted}, not {shown(refusal.value)}",
    "minLength": lambda _refusal: "must not be empty",
    "pattern": _form,
    "required": _missing,
    "type": _kinds,
}
"""How each keyword that the standard's schemas use tells what it wants."""
