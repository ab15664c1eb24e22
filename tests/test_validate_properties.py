"""Whatever the bytes are: the checker never raises, and its fast path agrees with the library."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kimiaepd import standard
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.validate import LogChecker, schemas
from kimiaepd.validate.predicate import UnknownKeywordError, compile_schema
from made_log import SOURCE, session

NAMES = sorted(standard.registered_types())
TEXT = st.text(st.characters(categories=("L", "N", "P", "Z", "C")), max_size=8)
WORDS = (
    *("answer", "values", "fields", "options", "choices", "id", "type", "label", "multi", "other"),
    *("kind", "form", "select", "string", "prompt", "tool", "call_id", "name", "error", "message"),
    *("metadata", "redacted", "E0", "E1"),
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
    | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(WORDS) | TEXT, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
SPOILED_EVENTS = st.fixed_dictionaries(
    {
        "aep": st.just("0.1"),
        "id": st.sampled_from(["E0", "E1", "E2"]),
        "type": st.sampled_from(NAMES),
        "time": st.just("2026-07-03T10:00:00Z"),
        "source": st.sampled_from([SOURCE, "aep://other"]),
        "agent": st.just("kimi-code"),
        "session": st.just("s1"),
        "seq": st.integers(0, 9) | st.just(1.0) | st.just(2**80),
    },
    optional={
        "data": st.dictionaries(st.sampled_from(WORDS), JSON_VALUES, max_size=5),
        "capture": st.sampled_from(standard.capture_levels()),
        "subject": st.sampled_from(["E0", "E1", "E2"]),
        "cause": st.sampled_from(["E0", "E1", "E2"]),
        "epoch": st.integers(0, 2),
        "run": st.sampled_from(["r1", "r2"]) | JSON_VALUES,
    },
)


@given(st.lists(st.binary(max_size=60), max_size=4))
@example([b"{}"])
def test_no_bytes_make_the_checker_raise(lines: list[bytes]) -> None:
    found = [f.line for f in LogChecker().check_lines(lines)]
    assert [*dict.fromkeys(found)] == list(range(1, len(lines) + 1))  # `{}` has three faults


@given(st.lists(SPOILED_EVENTS | JSON_VALUES, max_size=6))
def test_no_events_make_the_checker_raise_and_every_message_is_printable(
    events: list[JSON],
) -> None:
    checker = LogChecker()
    for event in events:
        for finding in checker.check(json.dumps(event).encode() + b"\n"):
            assert finding.message.isprintable()


@given(st.data())
def test_bytes_changed_in_a_clean_log_never_make_the_checker_raise(data: st.DataObject) -> None:
    log = b"".join(session().lines())
    start = data.draw(st.integers(0, len(log)))
    end = start + data.draw(st.integers(0, 20))
    spoiled = log[:start] + data.draw(st.binary(max_size=20)) + log[end:]
    list(LogChecker().check_lines(spoiled.splitlines(keepends=True)))


def values_of(schema: JSON) -> st.SearchStrategy[JSON]:
    """Values that fit a schema, but for numbers, which may be out of range."""
    if not isinstance(schema, dict):
        return JSON_VALUES
    if "properties" in schema:
        return objects_of(schema)
    if "items" in schema:
        return st.lists(values_of(schema["items"]), max_size=3)
    for keyword, fitting in FITTING.items():
        if keyword in schema:
            return fitting(schema[keyword])
    return BASIC.get(str(schema.get("type")), JSON_VALUES)


def objects_of(schema: JSONObject) -> st.SearchStrategy[JSON]:
    """Objects with the members that the schema names."""
    members = cast("JSONObject", schema["properties"])
    fitting = {name: values_of(member) for name, member in members.items()}
    required = cast("list[str]", schema.get("required", []))
    return st.fixed_dictionaries(
        {name: fitting[name] for name in fitting if name in required},
        optional={name: fitting[name] for name in fitting if name not in required},
    )


FORMATTED = {
    "date-time": st.datetimes(timezones=st.timezones()).map(datetime.isoformat),
    "uri": st.sampled_from([SOURCE, "urn:a%20b", "urn:a b", "no-scheme"]),
}
FITTING: dict[str, Callable[[Any], st.SearchStrategy[JSON]]] = {
    "const": st.just,
    "enum": st.sampled_from,
    "pattern": st.from_regex,
    "format": FORMATTED.__getitem__,
}
BASIC: dict[str, st.SearchStrategy[JSON]] = {
    "string": TEXT,
    "integer": st.integers(-1, 5) | st.just(2.0),
    "number": st.floats(-1, 101) | st.sampled_from([0, 100, 101, True]),
    "boolean": st.booleans(),
}


RIGHT_EVENTS = (
    session()
    .add("control.pause", seq="(absent)")
    .add("x.me.control.poke", seq="(absent)", step="1", run="r1")
    .add("attention.routed", seq="(absent)", subject="E3")
    .events
)
SCHEMAS: dict[str | None, JSONObject] = {
    None: standard.envelope_schema(),
    **{name: schema for name in NAMES if (schema := standard.payload_schema(name)) is not None},
}


@pytest.mark.parametrize("name", SCHEMAS, ids=str)
@given(data=st.data())
@settings(max_examples=25)
def test_the_predicate_and_the_library_agree(name: str | None, data: st.DataObject) -> None:
    value = cast("JSONObject", data.draw(values_of(SCHEMAS[name])))
    if data.draw(st.booleans()):
        member = data.draw(st.sampled_from(sorted(value)) if value else TEXT)
        value[member] = data.draw(JSON_VALUES)
    accepted = schemas._predicate(name)(value)
    assert accepted == schemas._library(name).is_valid(value)
    if accepted:  # what was changed in the schemas for Python made none of them laxer
        assert jsonschema.Draft202012Validator(SCHEMAS[name]).is_valid(value)


@given(st.data())
def test_they_agree_on_events_that_are_nearly_right(data: st.DataObject) -> None:
    attributes = cast("JSONObject", standard.envelope_schema()["properties"])
    event = dict(data.draw(st.sampled_from(RIGHT_EVENTS)))
    for name in data.draw(st.lists(st.sampled_from([*attributes, "extra"]), max_size=2)):
        event.pop(name, None)
        if data.draw(st.booleans()):
            event[name] = data.draw(values_of(attributes.get(name, True)))
    assert schemas._predicate(None)(event) == schemas._library(None).is_valid(event)


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "#"}, {"format": "email"}, {"enum": [1]}, {"properties": {"a": {"not": {}}}}, 3],
)
def test_a_schema_that_the_predicate_does_not_know_is_refused(schema: JSON) -> None:
    with pytest.raises(UnknownKeywordError):
        compile_schema(schema)
