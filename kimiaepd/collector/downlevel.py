"""An event at a lower capture level: what a hop takes out before it passes an event on.

Rules (AEP-0001 section 8.2, AEP-0002 section 5.1, AEP-0003 section 6.4):
- An event goes down or stays the very object that it is; it never goes up.
- It goes down to metadata or to none. `redacted` says that text has passed the redaction pipeline,
  which taking members out cannot bring about: a full event under that ceiling goes to metadata.
- At metadata a member stays that its schema, or our own mapping's table, lets ride there.
- What cannot be classified goes: the data of a type without a schema, and a value of another shape
  than the schema's where the schema has levels inside it.
- Members that the standard gates by exception are made again from structure: an ask's prompt, the
  labels of what can be chosen. Of a form's answers the numbers and the booleans stay, because which
  texts are choices the form alone could tell.

What an event that already is at its ceiling should not hold is its emitter's fault, and rides on.
"""

from __future__ import annotations

from kimiaepd.mapping.capture import put
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.own_levels import own_levels
from kimiaepd.standard import payload_schema
from kimiaepd.validate.levels import Gate, gate_of

_LEVELS: dict[JSON, Capture] = {level.word: level for level in Capture}


def downlevel(event: JSONObject, ceiling: Capture) -> JSONObject:
    """The event as a subscriber with this ceiling may see it.

    The same object where nothing has to go; else a new one, which shares with the old what stays.
    """
    if _level_of(event) <= ceiling:
        return event
    level = min(ceiling, Capture.METADATA)
    lowered = {name: value for name, value in event.items() if name not in ("capture", "data")}
    lowered["capture"] = level.word
    data = event.get("data")
    if level is Capture.METADATA and isinstance(data, dict):
        bare = _bare(event, data)
        if bare is not None:
            lowered["data"] = bare
    return lowered


def _level_of(event: JSONObject) -> Capture:
    """The level that an event declares; one that nobody knows counts as the highest."""
    declared = event.get("capture", "metadata")
    return _LEVELS.get(declared, Capture.FULL) if isinstance(declared, str) else Capture.FULL


def _bare(event: JSONObject, data: JSONObject) -> JSONObject | None:
    """What of a payload may ride at metadata; None where that is not known of anything."""
    name = event.get("type")
    if not isinstance(name, str):
        return None
    if payload_schema(name) is None:
        return _own(name, data)
    kept = _members(gate_of(name, "metadata"), data)
    if name == "attention.requested":
        _ask_from_structure(event, kept)
    elif name in ("attention.answered", "control.attention.respond"):
        _bare_answer(kept)
    return kept


def _members(gate: Gate, data: JSONObject) -> JSONObject:
    """The members of an object that its gate lets through."""
    kept: JSONObject = {}
    for name, value in data.items():
        if name in gate.forbidden:
            continue
        inner = gate.members.get(name)
        if inner is None:
            kept[name] = value
        elif (bare := _through(inner, value)) is not None:
            kept[name] = bare
    return kept


def _through(gate: Gate, value: JSON) -> JSON:
    """A value with levels inside it, without what is above; None where its shape is another."""
    if gate.items is None:
        return _members(gate, value) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return None
    entries = (_through(gate.items, entry) for entry in value)
    return [entry for entry in entries if entry is not None]


def _own(name: str, data: JSONObject) -> JSONObject | None:
    """The facts that our own table puts in a type of ours; None for another type."""
    levels = own_levels().get(name)
    if levels is None:
        return None
    kept: JSONObject = {}
    for path, level in levels.items():
        value = _at(data, path)
        if level is Capture.METADATA and isinstance(value, str | int | float):
            put(kept, path, value)
    return kept


def _at(data: JSON, path: tuple[str, ...]) -> JSON:
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _ask_from_structure(event: JSONObject, data: JSONObject) -> None:
    """An ask's prompt and labels as AEP-0003 section 9.2 makes them; changes `data`."""
    if "prompt" in data:
        kind, subject = data.get("kind"), event.get("subject")
        bare = f"{event.get('agent')} requests {kind if isinstance(kind, str) else 'other'}"
        data["prompt"] = bare if subject is None else f"{bare}: {subject}"
    for name in ("options", "fields"):
        if name in data:
            data[name] = [_with_bare_choices(entry) for entry in _labelled(data[name])]


def _with_bare_choices(field: JSONObject) -> JSONObject:
    if "choices" in field:
        field["choices"] = list[JSON](_labelled(field["choices"]))
    return field


def _labelled(entries: JSON) -> list[JSONObject]:
    """Copies of what can be chosen or filled in, each labelled with its id, else its position."""
    if not isinstance(entries, list):
        return []
    objects = [entry for entry in entries if isinstance(entry, dict)]
    return [
        entry | {"label": _label(entry, position)} if "label" in entry else dict(entry)
        for position, entry in enumerate(objects, 1)
    ]


def _label(entry: JSONObject, position: int) -> str:
    name = entry.get("id")
    return name if isinstance(name, str) else str(position)


def _bare_answer(data: JSONObject) -> None:
    """An answer without the texts among its values; changes `data`."""
    answer = data.get("answer")
    if isinstance(answer, dict) and "values" in answer:
        data["answer"] = answer | {"values": _numbers(answer["values"])}


def _numbers(values: JSON) -> JSONObject:
    """The answers that are numbers or booleans, and so no text."""
    if not isinstance(values, dict):
        return {}
    return {name: value for name, value in values.items() if isinstance(value, int | float)}
