"""The AEP 0.1 data files, read from the package: the envelope, the payloads, the registry.

The JSON files beside this module are the standard's own, unchanged (see NOTICE); nothing here
interprets them. Each is read once a process, and what these functions return is shared: read it,
do not change it.
"""

from __future__ import annotations

import functools
import importlib.resources
import json

from attrs import frozen

from kimiaepd.mapping.json_value import JSONObject


@frozen
class RegisteredType:
    """One entry of the type registry (AEP-0002 section 4).

    Attributes:
        name: the type as the wire writes it, "tool.completed".
        status: "mandatory", "optional" or "reserved".
        scope: "session", "agent" or "command".
        schema: the file name of its payload schema; None where the payload is free-form.
    """

    name: str
    status: str
    scope: str
    schema: str | None


def envelope_schema() -> JSONObject:
    """The JSON Schema of an event's envelope (AEP-0001 section 5)."""
    return _read("aep-event.schema.json")


def payload_schema(event_type: str) -> JSONObject | None:
    """The JSON Schema of a core type's `data`; None for a type that has none."""
    entry = registered_types().get(event_type)
    if entry is None or entry.schema is None:
        return None
    return _read("payload-schemas", entry.schema)


@functools.cache
def registered_types() -> dict[str, RegisteredType]:
    """Every core type that is registered for 0.1, by name."""
    entries = _read("registry", "types.json")["types"]
    assert isinstance(entries, list)
    return {entry.name: entry for entry in map(_registered, entries)}


@functools.cache
def categories() -> frozenset[str]:
    """The closed set of categories (AEP-0002 section 3), "x" among them."""
    entries = _read("registry", "categories.json")["categories"]
    assert isinstance(entries, list)
    return frozenset(str(entry["name"]) for entry in entries if isinstance(entry, dict))


@functools.cache
def nack_reasons() -> tuple[str, ...]:
    """What a control.rejected may give as its reason (AEP-0004 section 3)."""
    return _words("nack-reasons.json", "reasons")


@functools.cache
def capture_levels() -> tuple[str, ...]:
    """The capture levels, lowest first (AEP-0001 section 8.2)."""
    return _words("capture.json", "order")


def _registered(entry: object) -> RegisteredType:
    assert isinstance(entry, dict)
    return RegisteredType(entry["type"], entry["status"], entry["scope"], entry["schema"])


def _words(file: str, key: str) -> tuple[str, ...]:
    words = _read("registry", file)[key]
    assert isinstance(words, list)
    return tuple(map(str, words))


@functools.cache
def _read(*path: str) -> JSONObject:
    text = importlib.resources.files(__name__).joinpath(*path).read_text(encoding="utf-8")
    value: JSONObject = json.loads(text)
    return value
