"""The mapping is the standard's pins, at the default posture, and the vendor's real payloads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from daemon_room import Room, opened
from judge import judge
from kimiaepd.mapping.capture import MAX_TEXT, Ceilings, gate
from kimiaepd.mapping.event import Capture, Draft
from kimiaepd.mapping.hooks import fallback_type, map_hook
from kimiaepd.mapping.json_value import JSON, JSONObject, dump, parse
from kimiaepd.mapping.payloads import read_payload
from kimiaepd.mapping.redaction import SECRET, Redactor
from kimiaepd.setup.events import SINCE

REDACTOR = Redactor(home="/home/user", secret_names=frozenset(), secret_values=())
DEFAULT = Ceilings(Capture.METADATA, {"attention": Capture.REDACTED})
REDACTED = Ceilings(Capture.REDACTED, {})
PLANTED = "PLANTED-f3a1"


def mapped(payload: JSON, ceilings: Ceilings = DEFAULT) -> tuple[Draft, JSONObject | None]:
    draft = map_hook(read_payload(payload))
    return draft, gate(draft, ceilings.of(draft.type), REDACTOR)


def everywhere(level: Capture) -> Ceilings:
    return Ceilings(level, {})


@pytest.mark.shared
def test_every_pinned_hook_maps_as_the_standard_says(shared: Path) -> None:
    pins = json.loads((shared / "aep/fixtures/mapping-kimi-code.json").read_text())
    entries = {**pins["hooks"], "fallback": pins["fallback"]}
    assert len(entries) == 21
    for name, entry in entries.items():
        expected = {k: v for k, v in entry["expected"].items() if k != "$comment"}
        draft, data = mapped(entry["input"])
        got = {"type": draft.type, "data": data}
        if draft.subject is not None:
            got["subject"] = draft.subject
        assert got == expected, name


@pytest.mark.parametrize(
    ("event", "fields", "expected"),
    [
        ("UserPromptQueued", {"prompt_id": "p", "prompt": PLANTED, "queue_length": 2},
         {"queue_length": 2}),
        ("TurnStarted", {"turn_id": 3, "origin_kind": "system_trigger", "origin_name": "subagent",
                         "prompt": PLANTED},
         {"turn_id": 3, "origin_kind": "system_trigger", "origin_name": "subagent"}),
        ("TaskStarted", {"task_id": "t", "kind": "process", "description": PLANTED,
                         "status": "running", "detached": True, "started_at": 1},
         {"task_id": "t", "kind": "process", "status": "running", "detached": True}),
        ("SessionHeartbeat", {"uptime_ms": 60029}, {"uptime_ms": 60029}),
    ],
)  # fmt: skip
def test_the_four_newer_events_carry_structural_facts_alone(
    event: str, fields: JSONObject, expected: JSONObject
) -> None:
    for level in (Capture.METADATA, Capture.FULL):
        draft, data = mapped({"hook_event_name": event, **fields}, everywhere(level))
        assert draft.type.startswith("x.kimi-code.session.")
        assert data == expected


def test_a_real_failure_has_a_code_where_the_pin_has_a_name() -> None:
    error: JSONObject = {"code": "internal", "message": "exit 3", "retryable": False}
    payload: JSONObject = {
        "hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "tool_call_id": "c",
        "error": error,
    }  # fmt: skip
    draft, data = mapped(payload)
    assert data == {"tool": {"name": "Bash", "call_id": "c"}, "error": {"type": "internal"}}
    assert draft.severity == "warning"
    _, data = mapped(payload, everywhere(Capture.REDACTED))
    assert data is not None
    assert data["error"] == {"type": "internal", "message": "exit 3"}


def ask(**fields: JSON) -> JSONObject:
    return {"hook_event_name": "PermissionRequest", "tool_name": "Bash", **fields}


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({"display": "Run it?"}, "Run it?"),
        ({"action": "Running: ls", "display": {"command": "ls"}}, "Running: ls"),
        ({"action": "Running", "display": {"command": "ls"}}, "Running: ls"),
        ({"display": {"command": "ls"}}, "ls"),
        ({"action": "Editing x"}, "Editing x"),
        ({"display": 5}, "kimi-code requests permission: Bash"),
        ({}, "kimi-code requests permission: Bash"),
    ],
)
def test_an_ask_says_what_the_vendor_asks(fields: JSONObject, prompt: str) -> None:
    _, data = mapped(ask(**fields))
    assert data is not None
    assert data["prompt"] == prompt


def test_below_redacted_an_ask_is_synthesised_from_structure() -> None:
    _, data = mapped(ask(action=PLANTED, display=PLANTED), everywhere(Capture.METADATA))
    assert data is not None
    assert data["prompt"] == "kimi-code requests permission: Bash"


def test_the_context_of_an_ask_rides_at_full_without_the_directory() -> None:
    payload = ask(
        tool_input={"command": "ls", "nested": [{"cwd": "/secret"}]},
        display={"kind": "command", "cwd": "/secret"},
    )
    _, data = mapped(payload, everywhere(Capture.FULL))
    assert data is not None
    assert data["context"] == {
        "tool_input": {"command": "ls", "nested": [{}]},
        "display": {"kind": "command"},
    }
    _, data = mapped(payload)
    assert data is not None
    assert "context" not in data


def test_an_input_that_is_no_object_has_its_digest_only() -> None:
    payload: JSONObject = {
        "hook_event_name": "PreToolUse", "tool_name": "T", "tool_input": [1], "tool_call_id": "c",
    }  # fmt: skip
    _, data = mapped(payload, everywhere(Capture.FULL))
    assert data is not None
    assert set(data) == {"tool", "args_digest"}


def test_a_value_too_deep_keeps_its_digest_alone() -> None:
    deep: JSON = "x"
    for _ in range(500):
        deep = [deep]
    payload: JSONObject = {
        "hook_event_name": "PreToolUse", "tool_name": "T", "tool_input": {"deep": deep},
    }  # fmt: skip
    _, data = mapped(payload, everywhere(Capture.FULL))
    assert data is not None
    assert set(data) == {"tool", "args_digest"}


def test_a_value_of_too_many_parts_keeps_its_digest_alone() -> None:
    payload: JSONObject = {
        "hook_event_name": "PreToolUse", "tool_name": "T", "tool_input": {"many": [0] * 60_000},
    }  # fmt: skip
    _, data = mapped(payload, everywhere(Capture.FULL))
    assert data is not None
    assert set(data) == {"tool", "args_digest"}


def test_what_passes_the_pipeline_is_cut_between_words_and_marked() -> None:
    secret = "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    text = "word " * 13_105 + secret + " the end"
    assert len(text) > MAX_TEXT > text.index(secret)
    _, data = mapped(ask(action=text))
    assert data is not None
    prompt = data["prompt"]
    assert isinstance(prompt, str)
    assert prompt.endswith(f"word [{len(text) - 65_525} characters more]")
    assert "ghp_" not in prompt
    _, data = mapped(ask(action="x" * 100_000))
    assert data is not None
    assert data["prompt"] == "[100000 characters more]"


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse", "PermissionRequest"])
def test_a_tool_hook_without_a_tool_takes_the_fallback(event: str) -> None:
    draft, data = mapped({"hook_event_name": event, "tool_name": 7})
    assert draft.type.startswith("x.kimi-code.session.")
    assert data == {}


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("SomeNewKimiHook", "some_new_kimi_hook"),
        ("MCPServerUp", "mcp_server_up"),
        ("a-b c", "a_b_c"),
        ("", "unknown"),
        ("???", "unknown"),
        ("x" * 200, "x" * 64),
        ("İstanbul", "i_stanbul"),
    ],
)
def test_any_event_name_becomes_a_type(name: str, snake: str) -> None:
    assert fallback_type(name) == f"x.kimi-code.session.{snake}"


@given(st.text())
def test_a_fallback_type_is_always_well_formed(name: str) -> None:
    rest = fallback_type(name).removeprefix("x.kimi-code.session.")
    assert 0 < len(rest) <= 64
    assert set(rest) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
EVERY_EVENT = (*SINCE, "SomethingNew")
EVENTS = st.sampled_from(EVERY_EVENT)
EVERY_FIELD = (
    *("source", "model", "prompt", "is_steer", "tool_name", "tool_input", "tool_call_id",
     "tool_output", "error", "id", "agent_id", "action", "display", "decision", "feedback",
     "error_message", "response", "title", "body", "turn_id", "queue_length", "cwd", "agent_name",
     "session_title", "severity", "trigger", "token_count", "estimated_token_count"),
)  # fmt: skip
FIELDS = st.sampled_from(EVERY_FIELD)


@given(EVENTS, st.dictionaries(FIELDS, ANY_JSON, max_size=8), st.sampled_from(list(Capture)))
def test_any_payload_maps_and_can_be_written(
    event: str, fields: JSONObject, level: Capture
) -> None:
    draft, data = mapped({"hook_event_name": event, **fields}, everywhere(level))
    assert draft.type
    assert (data is None) == (level is Capture.NONE)
    assert b"\n" not in dump(data)


CONTENT = ["prompt", "action", "display", "feedback", "error_message", "response", "title", "body",
           "cwd", "session_title"]  # fmt: skip
WRAPPED = st.recursive(
    st.just(PLANTED),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "command", "text", "cwd"]), inner, min_size=1)
    ),
    max_leaves=4,
)


@given(
    EVENTS,
    st.dictionaries(st.sampled_from([*CONTENT, "tool_input", "tool_output"]), WRAPPED, min_size=1),
    st.sampled_from([Capture.NONE, Capture.METADATA]),
)
def test_content_never_rides_below_redacted(event: str, fields: JSONObject, level: Capture) -> None:
    payload: JSONObject = {
        "hook_event_name": event, "tool_name": "Bash", "tool_call_id": "c",
        "decision": "rejected", "error": {"code": "e", "message": PLANTED}, **fields,
    }  # fmt: skip
    _, data = mapped(payload, everywhere(level))
    assert PLANTED.encode() not in dump(data)


@given(EVENTS, st.dictionaries(FIELDS, WRAPPED), st.sampled_from(list(Capture)))
def test_the_directory_and_the_title_never_ride(
    event: str, fields: JSONObject, level: Capture
) -> None:
    payload: JSONObject = {"hook_event_name": event, **fields, "tool_name": "T"}
    marked = parse(dump(payload).replace(PLANTED.encode(), b"ordinary"))
    assert isinstance(marked, dict)
    marked["cwd"] = marked["session_title"] = PLANTED
    _, data = mapped(marked, everywhere(level))
    assert PLANTED.encode() not in dump(data)
    assert b'"cwd"' not in dump(data)


def test_secrets_are_gone_from_what_rides_as_redacted() -> None:
    payload = ask(action="curl -H 'Authorization: Bearer abc123.DEF-456_ghi~789'")
    _, data = mapped(payload)
    assert b"abc123" not in dump(data)


SECRET_KEY = "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
ONLY_AT_FULL = ("args", "result", "context")
TEXT = st.sampled_from([SECRET_KEY, f"use {SECRET_KEY} now", f"TOKEN={SECRET_KEY}", "nothing"])
HIDING = st.recursive(
    TEXT,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "command", "text", "type"]), inner, min_size=1)
    ),
    max_leaves=6,
)
HIDERS = st.dictionaries(
    st.sampled_from([*CONTENT, "tool_input", "tool_output", "error"]), HIDING, min_size=1
)


@given(EVENTS, HIDERS, st.sampled_from(["approved", "rejected", "cancelled"]), st.booleans())
def test_a_secret_is_only_where_full_allows_it(
    event: str, fields: JSONObject, decision: str, full: bool
) -> None:
    payload: JSONObject = {
        "error": {"code": "e", "message": SECRET_KEY}, "prompt": SECRET_KEY, **fields,
        "hook_event_name": event, "tool_name": "Bash", "tool_call_id": "c", "decision": decision,
    }  # fmt: skip
    ceilings = Ceilings(Capture.FULL, {"attention": Capture.REDACTED}) if full else REDACTED
    draft, data = mapped(payload, ceilings)
    assert data is not None
    if ceilings.of(draft.type) is Capture.FULL:
        for name in ONLY_AT_FULL:
            data.pop(name, None)
    else:
        assert not set(ONLY_AT_FULL) & set(data)
    assert SECRET_KEY.encode() not in dump(data)


@pytest.mark.parametrize(
    ("event", "name", "plain"),
    [
        ("PreToolUse", "args_redacted", "args"),
        ("PostToolUse", "result_redacted", "result"),
        ("PermissionRequest", "prompt", "context"),
    ],
)
def test_at_full_the_redacted_member_stays_redacted_beside_the_plain_one(
    event: str, name: str, plain: str
) -> None:
    value: JSONObject = {"command": f"curl -H 'X: {SECRET_KEY}'"}
    payload: JSONObject = {
        "hook_event_name": event, "tool_name": "Bash", "tool_call_id": "c",
        "tool_input": value, "tool_output": value, "display": value,
    }  # fmt: skip
    _, data = mapped(payload, everywhere(Capture.FULL))
    assert data is not None
    assert SECRET_KEY.encode() in dump(data[plain])
    assert SECRET.encode() in dump(data[name])
    assert SECRET_KEY.encode() not in dump(data[name])
    _, data = mapped(payload, REDACTED)
    assert data is not None
    assert plain not in data


# --- whatever a payload says, what is logged is valid -------------------------------------------

ODD: list[JSON] = [
    *(None, True, -1, 1 << 70, 1.5, "", "word", "\0 \n", "ü\ud83d", "x" * 70_000),
    ["a", None, 1], {"a": {"b": []}}, [{"type": "text", "text": 5}], {"name": 1, "message": {}},
]  # fmt: skip
LEVELS = [pytest.param(everywhere(level), id=level.word) for level in Capture]


async def sweep(room: Room, event: str) -> None:
    """Each odd value in every field at once, once as it is and once where the event has a tool."""
    for index, value in enumerate(ODD):
        fields: JSONObject = dict.fromkeys(EVERY_FIELD, value)
        session = f"{event}-{index}"
        for known in ({}, {"tool_name": "Bash"}, {"tool_name": "Bash", "tool_call_id": "c"}):
            assert await room.hook(event, {**fields, **known}, session=session) == b""


@pytest.mark.parametrize("ceilings", [*LEVELS, pytest.param(DEFAULT, id="default")])
async def test_odd_values_in_any_field_make_valid_events(
    tmp_path: Path, autojump_clock: MockClock, ceilings: Ceilings
) -> None:
    with opened(tmp_path, ceilings=ceilings) as room:
        async with trio.open_nursery() as nursery:
            await nursery.start(room.observer.run)
            for event in EVERY_EVENT:
                await sweep(room, event)
            await trio.sleep(10)  # what waits is decided
            nursery.cancel_scope.cancel()
        for session in list(room.book):
            judge(room.events(session.id))
        assert len(room.book) == len(EVERY_EVENT) * len(ODD)
        assert room.observer.bad == {}
