"""Whether an event's data keeps to the capture level that the event declares.

Every member of a payload has a lowest level at which it may ride (AEP-0002 section 5.1): the
schemas say it as `x-aep-capture`, and what they do not name is of level metadata, but for what
this project's own mapping adds (`mapping/own_levels.py`). A few members of attention.requested are
of level metadata by exception, as long as what they say below redacted is made from structure
alone.

Form answers are of several levels at once; `forms.py` knows those. Whether text that rides at
redacted was really redacted cannot be seen from an event, and is not judged.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import cast

from attrs import frozen

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.own_levels import own_levels
from kimiaepd.standard import capture_levels, payload_schema, registered_types
from kimiaepd.validate.finding import Fault, shown
from kimiaepd.validate.reading import level_of, objects


def level_faults(event: JSONObject) -> list[Fault]:
    """What rides in an event's data above its level; the envelope must be valid."""
    data = event.get("data")
    if data is None:
        return []
    level = level_of(event)
    if level == "none":
        return [Fault("AEP-0001 §8.2", "data: must be absent at capture none")]
    name = str(event["type"])
    if name not in registered_types():
        return []  # a vendor's own payload is of level metadata throughout
    faults = [
        Fault("AEP-0002 §5.1", f"data{path}: needs capture {needed}, the event declares {level}")
        for path, needed in _above(gate_of(name, level), data, "")
    ]
    if name == "attention.requested" and level == "metadata":
        faults += _unstructured(event, cast("JSONObject", data))
    return faults


@frozen
class Gate:
    """What a level forbids in one value, and below it.

    Attributes:
        forbidden: members that need a higher level, and which.
        members: the gates of members that may ride but hold something forbidden.
        items: the gate of each item, where the value is an array.
    """

    forbidden: dict[str, str]
    members: dict[str, Gate]
    items: Gate | None

    def __bool__(self) -> bool:
        return bool(self.forbidden or self.members or self.items)


@functools.cache
def gate_of(event_type: str, level: str) -> Gate:
    """What a level forbids in the data of a registered type."""
    schema = payload_schema(event_type) or {}
    gate = _schema_gate(schema, level)
    gate.forbidden.update(_too_high(_unnamed(event_type, schema), level))
    return gate


def _unnamed(event_type: str, schema: JSONObject) -> dict[str, str]:
    """What our own mapping adds to a payload, which the standard's schema does not name.

    A subagent's prompt and response are free text, so metadata, the level of a member without an
    annotation, would be a leak.
    """
    named = cast("JSONObject", schema.get("properties", {}))
    own = own_levels().get(event_type, {})
    return {path[0]: level.word for path, level in own.items() if path[0] not in named}


def _schema_gate(schema: JSONObject, level: str) -> Gate:
    named = cast("dict[str, JSONObject]", schema.get("properties", {}))
    levels = {name: str(member.get("x-aep-capture", "metadata")) for name, member in named.items()}
    inner = {name: _schema_gate(member, level) for name, member in named.items()}
    items = schema.get("items")
    return Gate(
        forbidden=_too_high(levels, level),
        members={name: gate for name, gate in inner.items() if gate},
        items=(_schema_gate(items, level) or None) if isinstance(items, dict) else None,
    )


def _too_high(levels: dict[str, str], level: str) -> dict[str, str]:
    rank = capture_levels().index
    return {name: needed for name, needed in levels.items() if rank(needed) > rank(level)}


def _above(gate: Gate, value: JSON, path: str) -> Iterator[tuple[str, str]]:
    """The paths at which a value holds what its gate forbids, with the level they need."""
    if isinstance(value, list) and gate.items is not None:
        for index, item in enumerate(value):
            yield from _above(gate.items, item, f"{path}.{index}")
    if not isinstance(value, dict):
        return
    for name, needed in gate.forbidden.items():
        if name in value:
            yield f"{path}.{name}", needed
    for name, inner in gate.members.items():
        if name in value:
            yield from _above(inner, value[name], f"{path}.{name}")


def _unstructured(event: JSONObject, data: JSONObject) -> Iterator[Fault]:
    """What an ask says at capture metadata that was not made from structure."""
    kind, prompt = data.get("kind"), data.get("prompt")
    if isinstance(kind, str) and isinstance(prompt, str) and not _is_bare(prompt, kind, event):
        yield Fault(
            "AEP-0003 §9.2",
            f"data.prompt: {shown(prompt)} is not '(agent) requests (kind): (subject)', which is"
            " all that capture metadata allows",
        )
    for path, label in _content_labels(data):
        yield Fault(
            "AEP-0002 §5.3",
            f"data{path}.label: must be the id or the position at capture metadata,"
            f" not {shown(label)}",
        )


def _is_bare(prompt: str, kind: str, event: JSONObject) -> bool:
    """Whether a prompt is the form that AEP-0003 section 9.2 makes from structure."""
    bare = f"{event['agent']} requests {kind}"
    if "subject" in event:
        return prompt == f"{bare}: {event['subject']}"
    # An emitter may name a subject that its envelope leaves out: then one word, and no text.
    return re.fullmatch(re.escape(bare) + r"(: \S+)?", prompt) is not None


def _content_labels(data: JSONObject) -> Iterator[tuple[str, str]]:
    """The labels of options, fields and choices that are neither an id nor a position."""
    labelled = [*objects(data, "options"), *objects(data, "fields")]
    for path, field in objects(data, "fields"):
        labelled += [(path + inner, choice) for inner, choice in objects(field, "choices")]
    for path, entry in labelled:
        label = entry.get("label")
        position = int(path.rpartition(".")[2]) + 1
        if isinstance(label, str) and label not in (entry.get("id"), str(position)):
            yield path, label
