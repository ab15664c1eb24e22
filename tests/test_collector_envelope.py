"""A collector takes what has an envelope, says why it takes nothing else, and stays quick."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import ValidationError

from kimiaepd.collector.envelope import envelope_fault, is_command
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.standard import envelope_schema, registered_types
from kimiaepd.validate import schemas
from kimiaepd.validate.reading import as_object
from kimiaepd.validate.shape import envelope_faults
from made_log import Log

OF_THE_ENVELOPE = re.compile(r"AEP-0001 §(5\.[124]|6|8\.)|AEP-0002 §3|AEP-0004 §2")
"""The sections whose breach makes one event no event at all."""

WORD = st.text("az09_-", min_size=1, max_size=3)
TYPES = (
    st.sampled_from(sorted(registered_types()))
    | st.sampled_from(("control.poke", "control", "control.cancel.all", "x.acme.control"))
    | st.lists(WORD | st.just("control"), min_size=2, max_size=5).map(lambda w: ".".join(["x", *w]))
)
NAMES = sorted(as_object(envelope_schema()["properties"]))
ATTRIBUTES = st.sampled_from([*NAMES, "extra", "an_extra", ""])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | TYPES
    | st.text(max_size=5) | st.sampled_from(("0.1", "metadata", "2026-07-03T10:00:00Z", "aep://h")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ATTRIBUTES, inner, max_size=9),
    max_leaves=12,
)  # fmt: skip


def event(name: str = "run.started", **attributes: JSON) -> JSONObject:
    return Log().add(name, **attributes).events[0]


@pytest.mark.shared
def test_every_golden_event_is_taken(shared: Path) -> None:
    lines = (shared / "aep/fixtures/golden.jsonl").read_text(encoding="utf-8").splitlines()
    assert lines
    assert [envelope_fault(json.loads(line)) for line in lines] == [None] * len(lines)


def invalid_events(shared: Path) -> Iterator[tuple[JSONObject, bool]]:
    """The standard's invalid events, and whether it is the envelope that is broken."""
    for case in json.loads((shared / "aep/fixtures/invalid.json").read_bytes())["cases"]:
        is_alone = "event" in case
        broken = is_alone and OF_THE_ENVELOPE.search(case["rule"]) is not None
        yield from ((one, broken) for one in ([case["event"]] if is_alone else case["events"]))


@pytest.mark.shared
def test_what_breaks_the_envelope_is_refused_and_the_rest_carried(shared: Path) -> None:
    """What a payload holds, and in which order events come, is not for a relay to judge."""
    refused = [broken for _, broken in invalid_events(shared)]
    assert (refused.count(True), refused.count(False)) == (17, 31)
    for one, broken in invalid_events(shared):
        assert (envelope_fault(one) is not None) is broken, one["id"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "an event is a JSON object, not None (AEP-0001 §5)"),
        ([], "an event is a JSON object, not [] (AEP-0001 §5)"),
        (event(seq=-1), "seq: must be at least 0, not -1 (AEP-0001 §5.1)"),
        (event(subject=None), "subject: must be of type string, not None (AEP-0001 §5.1)"),
        (event("control.cancel"), "seq: must be left out of an event of this type (AEP-0004 §2.2)"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_where_it_is_written(value: JSON, told: str) -> None:
    assert envelope_fault(value) == told


@given(ANY_JSON | st.dictionaries(ATTRIBUTES, ANY_JSON, max_size=12))
def test_any_json_is_refused_exactly_where_the_checker_finds_a_fault(value: JSON) -> None:
    faults = envelope_faults(value)
    told = envelope_fault(value)
    if told is None:
        assert faults == []
    else:
        assert told == f"{faults[0].message} ({faults[0].rule})"
        assert told.isprintable()


@pytest.mark.parametrize("name", [*NAMES, "extra", "AN_EXTRA"])
def test_a_value_nested_deep_is_refused_where_it_may_not_be_and_else_not_walked(name: str) -> None:
    deep: JSON = []
    for _ in range(5_000):
        deep = [deep]
    assert envelope_fault(event() | {name: deep}) is not None
    assert envelope_fault(event() | {"data": {name: deep}}) is None


def test_an_event_in_order_never_asks_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library takes ten times as long, and its import holds a loop up for 50 ms."""
    monkeypatch.setattr(schemas, "_library", None)
    assert envelope_fault(event(severity="notice", acmeregion="eu") | {"data": {"a": 1}}) is None


def test_of_many_faults_one_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[ValidationError] = []
    one_refusal = schemas._refusal

    def look(error: ValidationError) -> schemas.Refusal:
        looked.append(error)
        return one_refusal(error)

    monkeypatch.setattr(schemas, "_refusal", look)
    assert envelope_fault({f"A{n}": None for n in range(1_000)}) is not None
    assert len(looked) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("control.attention.respond", True),
        ("control.cancel", True),
        ("control.pause", True),
        ("control.resume", True),
        ("x.acme.control.restart", True),
        ("x.kimi-code.control.a.b", True),
        ("control.accepted", False),
        ("control.rejected", False),
        ("control.poke", False),
        ("attention.routed", False),
        ("x.acme.run.control.a", False),
        ("x.acme.controls.a", False),
        ("x.control.run.a", False),
        ("x.acme.control.", False),
        ("x.acme.control.a\n", False),
        ("tool.completed", False),
    ],
)
def test_a_command_is_one_by_its_type(name: str, expected: bool) -> None:
    assert is_command(name) is expected


@given(TYPES)
def test_commands_are_the_events_that_name_a_session_and_no_place_in_it(name: str) -> None:
    placed, unplaced = event(name), event(name, seq="(absent)")
    if envelope_fault(placed) is None:
        assert not is_command(name)
    elif envelope_fault(unplaced) is None:
        assert is_command(name) is (name != "attention.routed")
