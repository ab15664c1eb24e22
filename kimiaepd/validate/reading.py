"""How the checks read an event whose envelope is valid and whose data may be anything.

Each function gives the value or its absence, and never fails on a payload of another shape: what
is wrong with the shape is a fault of its own, which `schemas.py` reports.
"""

from __future__ import annotations

from typing import TypeAlias

from kimiaepd.mapping.json_value import JSON, JSONObject

Stream: TypeAlias = tuple[str, str]
"""A session as one emitter knows it: session names are unique within a source (AEP-0001 §5.2)."""


def stream_of(event: JSONObject) -> Stream | None:
    """The (source, session) that an event belongs to; None for an agent's own event."""
    session = event.get("session")
    return None if session is None else (str(event["source"]), str(session))


def level_of(event: JSONObject) -> str:
    """The capture level that an event declares, the default where it declares none."""
    return str(event.get("capture", "metadata"))


def data_of(event: JSONObject) -> JSONObject:
    """An event's payload; an empty one where it has none."""
    return as_object(event.get("data"))


def as_object(value: JSON) -> JSONObject:
    """The value, or an empty object where it is something else."""
    return value if isinstance(value, dict) else {}


def objects(data: JSONObject, name: str) -> list[tuple[str, JSONObject]]:
    """The objects in an array member of a payload, each with its path."""
    entries = data.get(name)
    return [
        (f".{name}.{index}", entry)
        for index, entry in enumerate(entries if isinstance(entries, list) else [])
        if isinstance(entry, dict)
    ]
