"""What a hop takes out of an event: all that the lower level forbids, and nothing that it need not.

The strongest of these tests needs no rule at all: what our own mapping sends at redacted or full,
lowered, is what it would have sent at metadata.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.collector.downlevel import downlevel
from kimiaepd.mapping.capture import gate
from kimiaepd.mapping.event import AGENT, Capture
from kimiaepd.mapping.hooks import map_hook, waiting
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.own_levels import GAP, own_levels
from kimiaepd.mapping.payloads import read_payload
from kimiaepd.mapping.redaction import Redactor
from kimiaepd.setup.events import SINCE
from kimiaepd.standard import payload_schema, registered_types
from kimiaepd.validate.levels import level_faults
from kimiaepd.validate.shape import payload_faults
from made_log import Log, ask

SECRET = "SECRET-8e21"
HOOK: JSONObject = {
    "session_id": "s", "source": "startup", "model": "kimi", "client_type": "terminal",
    "reason": "exit", "prompt": SECRET, "tool_name": "Bash", "tool_call_id": "c1",
    "tool_input": {"command": SECRET}, "tool_output": SECRET, "id": "a1", "agent_id": "main",
    "error": {"code": "internal", "name": "ExecError", "message": SECRET},
    "action": SECRET, "display": SECRET, "turn_id": 3, "decision": "approved",
    "feedback": SECRET, "selected_label": "Approve", "error_type": "api", "error_message": SECRET,
    "agent_name": "explore", "response": SECRET, "trigger": "auto", "token_count": 9,
    "estimated_token_count": 4, "notification_type": "idle", "title": SECRET, "body": SECRET,
    "severity": "info", "queue_length": 2, "origin_kind": "user", "origin_name": "x",
    "task_id": "t", "kind": "bash", "description": SECRET, "status": "running", "detached": True,
    "uptime_ms": 5,
}  # fmt: skip
"""Everything that any hook may say, content marked."""

LEVELS = st.sampled_from(Capture)
TYPES = st.sampled_from([*sorted(registered_types()), *sorted(own_levels()), "x.acme.run.blob"])
NAMES = st.sampled_from(
    (
        *("answer", "values", "fields", "options", "choices", "id", "label", "kind", "prompt"),
        *("text", "tool", "name", "error", "message", "type", "documents", "content", "response"),
        *("trigger", "turn_id", "state", "task", "title", "count"),
    )
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from((SECRET, "permission", "1")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
EVENTS = st.fixed_dictionaries(
    {"type": TYPES, "agent": st.just("kimi-code"), "data": st.dictionaries(NAMES, VALUES)},
    optional={
        "capture": st.sampled_from([level.word for level in Capture]),
        "subject": st.sampled_from(("Bash", "E1")),
    },
)


def event_of(name: str, data: JSONObject | None = None, /, **attributes: JSON) -> JSONObject:
    [event] = Log().add(name, data, **attributes).events
    return event


def bare(name: str, data: JSONObject, /, **attributes: JSON) -> JSON:
    """The data of a redacted event once it is at metadata."""
    lowered = downlevel(event_of(name, data, capture="redacted", **attributes), Capture.METADATA)
    assert lowered["capture"] == "metadata"
    return lowered.get("data")


# --- the standard's corpus ----------------------------------------------------------------------


@pytest.mark.shared
def test_the_standards_corpus_goes_down_as_it_says(shared: Path) -> None:
    cases = json.loads((shared / "aep/fixtures/downlevel.json").read_bytes())["cases"]
    assert cases
    for case in cases:
        event, before = case["event"], copy.deepcopy(case["event"])
        lowered = downlevel(event, Capture[case["ceiling"].upper()])
        expected = before | {"capture": case["expect_capture"], "data": case["expect_data"]}
        if case["expect_data"] is None:
            del expected["data"]
        assert lowered == expected, case["name"]
        assert event == before, case["name"]
        assert (lowered is event) is (expected == before), case["name"]


@pytest.mark.shared
@pytest.mark.parametrize("ceiling", Capture)
def test_the_golden_events_are_clean_at_every_ceiling(shared: Path, ceiling: Capture) -> None:
    lines = (shared / "aep/fixtures/golden.jsonl").read_text(encoding="utf-8").splitlines()
    for event in map(json.loads, lines):
        lowered = downlevel(event, ceiling)
        assert Capture[str(lowered.get("capture", "metadata")).upper()] <= ceiling
        assert [*level_faults(lowered), *payload_faults(lowered)] == []


# --- our own members ----------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["approved", "rejected", "cancelled", "odd"])
@pytest.mark.parametrize("hook", [*SINCE, "SomethingNew"])
@pytest.mark.parametrize("level", [Capture.REDACTED, Capture.FULL])
def test_what_we_send_lowered_is_what_we_would_have_sent(
    hook: str, decision: str, level: Capture
) -> None:
    payload = read_payload(HOOK | {"hook_event_name": hook, "decision": decision})
    for draft in (map_hook(payload), waiting(payload)):
        sent = gate(draft, level, Redactor(home="/home/user"))
        event = event_of(draft.type, sent, subject=draft.subject or "x", capture=level.word)
        at_metadata = gate(draft, Capture.METADATA, Redactor(home="/home/user"))
        if not draft.fields and draft.type not in own_levels() and draft.type.startswith("x."):
            at_metadata = None  # an empty payload of a type that no table names
        assert downlevel(event, Capture.METADATA).get("data") == at_metadata
        assert SECRET not in json.dumps(downlevel(event, Capture.METADATA))


def test_a_subagents_words_go_though_no_schema_names_them() -> None:
    for name, word in (("started", "prompt"), ("stopped", "response")):
        data: JSONObject = {word: SECRET, "agent_type": "explore"}
        assert bare(f"delegation.subagent.{name}", data) == {"agent_type": "explore"}


def test_our_table_and_the_schemas_say_the_same_where_both_speak() -> None:
    unnamed = []
    for name, levels in own_levels().items():
        schema = payload_schema(name)
        if schema is None:
            assert name.startswith(f"x.{AGENT}.")
            continue
        for path, level in levels.items():
            member = _named(schema, path)
            if member is None:
                unnamed.append((name, *path, level.word))
            elif (name, path) != ("attention.requested", ("prompt",)):  # gated by exception
                assert member.get("x-aep-capture", "metadata") == level.word, (name, path)
    assert {one for one in unnamed if one[-1] != "metadata"} == {
        ("delegation.subagent.started", "prompt", "redacted"),
        ("delegation.subagent.stopped", "response", "redacted"),
    }
    assert all(len(one) == 3 for one in unnamed), "validate/levels.py looks at the top alone"


def _named(schema: JSONObject, path: tuple[str, ...]) -> JSONObject | None:
    """What the schema says of the member at a path."""
    for name in path:
        found = cast("JSONObject", schema.get("properties", {})).get(name)
        if not isinstance(found, dict):
            return None
        schema = found
    return schema


def test_of_a_type_of_ours_only_what_the_table_says_stays() -> None:
    data: JSONObject = {"turn_id": 3, "origin_kind": "user", "prompt": SECRET}
    turn = "x.kimi-code.session.turn_started"
    assert bare(turn, data) == {"turn_id": 3, "origin_kind": "user"}
    assert bare(turn, {"turn_id": {"text": SECRET}, "origin_name": [SECRET]}) == {}
    assert bare("x.kimi-code.session.post_tool_use_failure", {
        "tool": {"name": "Bash", "call_id": "c1", "args": SECRET}, "error": SECRET,
    }) == {"tool": {"name": "Bash", "call_id": "c1"}}  # fmt: skip
    assert bare(GAP, {"count": 7, "detail": SECRET}) == {"count": 7}
    assert bare("x.kimi-code.session.something_new", {"count": 7}) is None
    assert bare("x.kimi-code.run.steer_submitted", {"prompt": SECRET}) == {}


def test_a_member_of_ours_goes_by_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = {"x.kimi-code.run.said": {("n",): Capture.METADATA, ("text",): Capture.REDACTED}}
    monkeypatch.setattr("kimiaepd.collector.downlevel.own_levels", lambda: levels)
    assert bare("x.kimi-code.run.said", {"n": 1, "text": SECRET}) == {"n": 1}


# --- what cannot be classified ------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["message.user.submitted", "run.paused", "x.acme.run.blob", "no type"]
)
def test_the_data_of_a_type_without_a_schema_goes(name: str) -> None:
    assert bare(name, {"text": SECRET}) is None


@pytest.mark.parametrize(
    ("name", "data", "kept"),
    [
        ("tool.failed", {"tool": {"name": "a"}, "error": SECRET}, {"tool": {"name": "a"}}),
        ("tool.failed", {"error": [{"message": SECRET}]}, {}),
        ("attention.answered", {"answer": SECRET}, {}),
        ("attention.answered", {"answer": {"values": [SECRET]}}, {"answer": {"values": {}}}),
        (
            "attention.answered",
            {"answer": {"values": {"a": {"b": SECRET}, "c": None, "d": 1.5}}},
            {"answer": {"values": {"d": 1.5}}},
        ),
        ("attention.requested", {"options": SECRET, "fields": {"a": SECRET}},
         {"options": [], "fields": []}),
        ("attention.requested", {"options": [SECRET, {"id": "1", "label": [SECRET]}]},
         {"options": [{"id": "1", "label": "1"}]}),
        ("attention.requested", {"fields": [{"label": SECRET, "choices": SECRET}]},
         {"fields": [{"label": "1", "choices": []}]}),
        ("resource.retrieval.returned",
         {"documents": [SECRET, [SECRET], {"id": "1", "content": SECRET}]},
         {"documents": [{"id": "1"}]}),
        ("resource.retrieval.returned", {"documents": SECRET}, {}),
        ("resource.citation.recorded", {"citations": [{"source": SECRET, "document_index": 1}]},
         {"citations": [{"document_index": 1}]}),
    ],
)  # fmt: skip
def test_a_value_of_another_shape_than_its_schemas_goes(
    name: str, data: JSONObject, kept: JSONObject
) -> None:
    assert bare(name, data) == kept


@pytest.mark.parametrize(
    ("attributes", "data", "prompt"),
    [
        ({"subject": "Bash"}, ask(prompt=SECRET), "kimi-code requests permission: Bash"),
        ({}, ask(prompt=SECRET), "kimi-code requests permission"),
        ({}, {"prompt": SECRET}, "kimi-code requests other"),
        ({}, {"kind": [SECRET], "prompt": {"text": SECRET}}, "kimi-code requests other"),
    ],
)
def test_a_prompt_is_made_again_from_structure(
    attributes: JSONObject, data: JSONObject, prompt: str
) -> None:
    lowered = bare("attention.requested", data, **attributes)
    assert isinstance(lowered, dict)
    assert lowered["prompt"] == prompt


def test_an_ask_without_a_prompt_is_given_none() -> None:
    assert bare("attention.requested", {"kind": "input"}) == {"kind": "input"}


# --- levels -------------------------------------------------------------------------------------


def test_an_event_that_names_no_level_is_at_metadata() -> None:
    event = event_of("run.started", {"trigger": "user"})
    assert downlevel(event, Capture.METADATA) is event
    lowered = downlevel(event, Capture.NONE)
    assert "data" not in lowered
    assert lowered["capture"] == "none"


@pytest.mark.parametrize("capture", ["secret", None, 3, ["full"]])
def test_a_level_that_nobody_knows_is_taken_for_the_highest(capture: JSON) -> None:
    event = event_of("run.started", {"trigger": "user", "prompt": SECRET}, capture=capture)
    lowered = downlevel(event, Capture.REDACTED)
    assert (lowered["capture"], lowered["data"]) == ("metadata", {"trigger": "user"})


def test_the_rest_of_the_envelope_stays_and_capture_and_data_stand_last() -> None:
    event = event_of("run.started", {"prompt": SECRET}, capture="full", acmeregion="eu")
    lowered = downlevel(event, Capture.METADATA)
    kept = [(name, value) for name, value in event.items() if name not in ("capture", "data")]
    assert list(lowered.items()) == [*kept, ("capture", "metadata"), ("data", {})]


@given(EVENTS, LEVELS, LEVELS)
def test_lowering_twice_is_lowering_once_to_the_lower(
    event: JSONObject, first: Capture, second: Capture
) -> None:
    before = copy.deepcopy(event)
    lowered = downlevel(event, first)
    assert downlevel(lowered, first) is lowered
    assert downlevel(lowered, second) == downlevel(event, min(first, second))
    assert event == before


@given(EVENTS, LEVELS)
def test_no_event_rises_and_a_clean_one_stays_clean(event: JSONObject, ceiling: Capture) -> None:
    lowered = downlevel(event, ceiling)
    level = Capture[str(lowered.get("capture", "metadata")).upper()]
    assert level <= ceiling
    assert level <= Capture[str(event.get("capture", "metadata")).upper()]
    if lowered is not event or level_faults(event) == []:
        assert level_faults(lowered) == []


@given(
    st.dictionaries(NAMES | st.sampled_from(("type", "capture", "data", "agent")), VALUES), LEVELS
)
def test_nothing_makes_it_raise(event: JSONObject, ceiling: Capture) -> None:
    downlevel(event, ceiling)


def test_what_is_nested_deep_is_passed_on_or_dropped_without_being_walked() -> None:
    deep: JSON = SECRET
    for _ in range(5_000):
        deep = {"a": [deep]}
    assert bare("tool.completed", {"usage": 1, "result": deep}) == {"usage": 1}
    lowered = bare("run.finished", {"usage": deep})
    assert isinstance(lowered, dict)
    assert lowered["usage"] is deep
