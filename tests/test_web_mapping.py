"""The mapping of the `kimi web` stream: the standard's pins, the real frames, and any JSON."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import shared_folder
from kimiaepd.mapping.capture import Ceilings, gate
from kimiaepd.mapping.event import Capture, Draft
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.own_levels import own_levels
from kimiaepd.mapping.redaction import Redactor
from kimiaepd.mapping.web import Mapped, companion, primary
from kimiaepd.mapping.web_forms import FormField
from kimiaepd.mapping.web_frames import Frame, read_frame
from kimiaepd.mapping.web_memory import OPEN_ASKS, OPEN_CALLS, Ask, Memory, Refusal
from kimiaepd.mapping.web_rows import ROWS, SILENT, WORK_CHANGED, web_type
from kimiaepd.standard import payload_schema, registered_types

REDACTOR = Redactor(home="/home/user", secret_names=frozenset(), secret_values=())
DEFAULT = Ceilings(Capture.METADATA, {"attention": Capture.REDACTED})
LEVELS = tuple(Capture)
PLANTED = "PLANTED-f3a1"
TYPE = re.compile(r"[a-z]+(\.[a-z0-9_]+)+|x\.[a-z0-9_-]+\.[a-z0-9_]+(\.[a-z0-9_]+)+")
CAPTURES = sorted(file.name for file in (shared_folder() / "captures/web").glob("ws-*.jsonl"))


def frame(type_: str, **payload: JSON) -> Frame:
    envelope: JSONObject = {
        "type": type_, "seq": 1, "session_id": "s", "epoch": "ep_1",
        "payload": {"type": type_, "sessionId": "s", "agentId": "main", **payload},
    }  # fmt: skip
    return read_frame(envelope)


def told(frames: Iterable[Frame]) -> list[Mapped]:
    memory, mapped = Memory(), []
    for one in frames:
        mapped.append(primary(one, memory))
        memory = mapped[-1].memory
    return mapped


def drafts(mapped: Iterable[Mapped]) -> list[Draft]:
    return [draft for one in mapped for draft in one.drafts]


def data(draft: Draft, level: Capture) -> JSONObject | None:
    return gate(draft, level, REDACTOR)


# --- the standard's pins ---------------------------------------------------------------------


def pinned(draft: Draft | None) -> JSON:
    if draft is None:
        return None
    shape: JSONObject = {"type": draft.type, "data": data(draft, DEFAULT.of(draft.type))}
    return shape if draft.subject is None else {**shape, "subject": draft.subject}


@pytest.mark.shared
def test_every_pinned_frame_maps_as_the_standard_says_in_both_modes(shared: Path) -> None:
    pins = json.loads((shared / "aep/fixtures/mapping-kimi-code.json").read_text())
    modes = pins["ws_modes"]["modes"]
    assert len(modes) == 15
    for name, entry in modes.items():
        one = read_frame(entry["input"])
        assert pinned(companion(one)) == entry["companion"], name
        mapped = primary(one, Memory())
        first = next(iter(mapped.drafts), None)
        if name == "tool_result":  # null: it names no tool, so alone it is not paired
            assert first == companion(one)
        else:
            assert pinned(first) == entry["primary"], name


@pytest.mark.shared
def test_a_pinned_result_is_paired_by_the_id_of_its_call(shared: Path) -> None:
    pins = json.loads((shared / "aep/fixtures/mapping-kimi-code.json").read_text())
    modes = pins["ws_modes"]["modes"]
    pair = (modes["tool_call_started"]["input"], modes["tool_result"]["input"])
    requested, completed = drafts(told(read_frame(one) for one in pair))
    assert (requested.type, completed.type) == ("tool.requested", "tool.completed")
    assert completed.subject == "Bash"


# --- the real frames -------------------------------------------------------------------------


def captured(file: Path) -> Iterator[JSONObject]:
    """What the server sent, each frame once, as one who reads a journal sees it."""
    seen = set()
    for line in file.read_text().splitlines():
        entry = json.loads(line)
        if entry["dir"] != "in" or "type" not in entry["frame"]:
            continue
        place = (entry["frame"].get("session_id"), entry["frame"].get("seq"))
        is_kept = place[1] is not None and not entry["frame"].get("volatile")
        if not is_kept or place not in seen:
            yield entry["frame"]
        if is_kept:
            seen.add(place)


def sessions(file: Path) -> dict[str, list[Frame]]:
    found: dict[str, list[Frame]] = {}
    for one in map(read_frame, captured(file)):
        if one.is_of_a_journal:
            found.setdefault(one.session, []).append(one)
    return found


def plant(value: JSON, key: str = "") -> JSON:
    """The value with a marker in all that a person, a model or a tool wrote."""
    if isinstance(value, dict):
        return {
            (f"{PLANTED} {name}" if key == "answers" else name): plant(inner, name)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [plant(inner, key) for inner in value]
    return f"{PLANTED} {value}" if isinstance(value, str) and key in CONTENT else value


CONTENT = frozenset(
    (
        *("prompt", "text", "title", "lastPrompt", "output", "command", "cwd", "message", "body"),
        *("action", "description", "feedback", "question", "label", "header", "delta", "answers"),
        *("content", "resultSummary", "instruction", "summary", "detail", "path", "file_path"),
        *("Which env should I use?", "Which checks to run?"),
    )
)


@pytest.mark.shared
@pytest.mark.parametrize("name", CAPTURES or ["every capture"])
def test_every_real_frame_maps_to_valid_data_without_a_leak(shared: Path, name: str) -> None:
    memories: dict[str, Memory] = {}
    for raw in captured(shared / "captures/web" / name):
        one = read_frame(plant(raw))
        mapped = primary(one, memories.get(one.session, Memory()))
        memories[one.session] = mapped.memory
        visible = companion(one)
        assert (visible is None) == (mapped.drafts == ())
        if visible is not None:
            assert visible.fields == ()
        for draft in filter(None, (visible, *mapped.drafts)):
            assert TYPE.fullmatch(draft.type)
            assert data(draft, Capture.NONE) is None
            assert PLANTED not in json.dumps(data(draft, Capture.METADATA))
            for level in (Capture.METADATA, Capture.REDACTED, Capture.FULL):
                if draft.type in registered_types():
                    jsonschema.validate(data(draft, level), payload_schema(draft.type) or {})


CORE = {"run", "tool", "attention"}
ASKED, YES, NO = "attention.requested", "attention.answered=approved", "attention.answered=rejected"
GIVEN = "attention.answered=None"
ANSWERED, DISMISSED = "attention.resolved=answered", "attention.resolved=dismissed"
STORIES = {
    "text": ("run.started", "run.finished"),
    "tool-auto-read": ("run.started", "tool.requested", "tool.completed", "run.finished"),
    "tool-failed": ("run.started", ASKED, YES, ANSWERED, "tool.requested", "tool.failed",
                    "run.finished"),
    "tool-unknown": ("run.started", "tool.requested", "tool.failed", "run.finished"),
    "approval-approved": ("run.started", ASKED, YES, ANSWERED, "tool.requested", "tool.completed",
                          "run.finished"),
    "approval-rejected-feedback": ("run.started", ASKED, NO, ANSWERED, "tool.requested",
                                   "tool.denied", "run.finished"),
    "approval-rejected-bare": ("run.started", ASKED, NO, ANSWERED, "tool.requested",
                               "tool.denied", "run.finished"),
    "approval-cancelled": ("run.started", ASKED, DISMISSED, "tool.requested", "tool.failed",
                           "run.finished"),
    "approval-pending-session-abort": ("run.started", ASKED, "run.cancelled", DISMISSED),
    "approval-two-parallel": ("run.started", ASKED, YES, ANSWERED, "tool.requested", ASKED, NO,
                              ANSWERED, "tool.requested", "tool.denied", "tool.completed",
                              "run.finished"),
    "question-answered": ("run.started", "tool.requested", ASKED, GIVEN, ANSWERED,
                          "tool.completed", "run.finished"),
    "question-dismissed": ("run.started", "tool.requested", ASKED, DISMISSED, "tool.completed",
                           "run.finished"),
    "question-pending-abort": ("run.started", "tool.requested", ASKED, DISMISSED,
                               "tool.completed", "run.cancelled"),
    "turn-failed-err500": ("run.started", "run.failed"),
    "turn-failed-nomodel": ("run.started", "run.failed"),
    "abort-midstream": ("run.started", "run.cancelled"),
    "abort-tool-running": ("run.started", ASKED, YES, ANSWERED, "tool.requested", "tool.failed",
                           "run.cancelled"),
    "subagent": ("run.started", "tool.requested", "tool.completed", "run.finished"),
    "bash-background": ("run.started", ASKED, YES, ANSWERED, "tool.requested", "tool.completed",
                        "run.finished", "run.started", "run.finished"),
    "restart-after-cut-turn": ("run.started",),
}  # fmt: skip


def story(mapped: Iterable[Mapped]) -> list[str]:
    return [detailed(one) for one in drafts(mapped) if one.type.partition(".")[0] in CORE]


def detailed(draft: Draft) -> str:
    shown = data(draft, Capture.METADATA) or {}
    if draft.type == "attention.resolved":
        return f"{draft.type}={shown['resolution']}"
    if draft.type == "attention.answered":
        answer = shown["answer"]
        assert isinstance(answer, dict)
        return f"{draft.type}={answer.get('option')}"
    return draft.type


@pytest.mark.shared
@pytest.mark.parametrize("version", ["0.28.0", "2.1.0"])
@pytest.mark.parametrize("name", STORIES)
def test_a_real_session_tells_its_core_story(shared: Path, version: str, name: str) -> None:
    found = sessions(shared / f"captures/web/ws-{version}-{name}.jsonl")
    stories = [lines for lines in (story(told(frames)) for frames in found.values()) if lines]
    assert stories == [list(STORIES[name])]


@pytest.mark.shared
@pytest.mark.parametrize("version", ["0.28.0", "2.1.0"])
@pytest.mark.parametrize("name", ["subagent", "subagent-failed"])
def test_the_turns_of_a_subagent_open_no_run(shared: Path, version: str, name: str) -> None:
    for frames in sessions(shared / f"captures/web/ws-{version}-{name}.jsonl").values():
        others = [one for one in frames if one.type == "turn.started" and one.agent != "main"]
        mapped = told(frames)
        runs = [one for one in mapped if one.drafts and one.drafts[0].type == "run.started"]
        assert others
        assert len(runs) == 1
        assert len({one.run for one in mapped if one.run}) == 1
        visible = Counter(draft.type for draft in drafts(mapped))
        assert visible["x.kimi-code.web.turn.started"] == len(others)


# --- what the rows say -----------------------------------------------------------------------


def turn(type_: str = "turn.started", **payload: JSON) -> Frame:
    return frame(type_, turnId=3, **payload)


def test_a_run_is_known_by_the_journals_epoch_and_its_turn() -> None:
    begun, ended = told((turn(origin={"kind": "user"}), turn("turn.ended", reason="completed")))
    assert begun.run == ended.run == "ep_1-turn-3"


def test_only_a_persons_turn_is_triggered_by_a_user() -> None:
    for kind, trigger in (("user", {"trigger": "user"}), ("task", {}), (7, {})):
        (draft,) = primary(turn(origin={"kind": kind}, prompt=PLANTED), Memory()).drafts
        assert data(draft, Capture.METADATA) == trigger
        assert data(draft, Capture.REDACTED) == {**trigger, "prompt": PLANTED}


@pytest.mark.parametrize(
    ("payload", "type_", "expected"),
    [
        ({"reason": "completed"}, "run.finished", {}),
        ({"reason": "cancelled"}, "run.cancelled", {}),
        (
            {"reason": "failed", "error": {"code": "provider.api_error", "message": "no"}},
            "run.failed",
            {"reason": "failed", "error": {"type": "provider.api_error", "message": "no"}},
        ),
        ({"reason": "blocked"}, "run.failed", {"reason": "blocked"}),
        ({"reason": 5, "error": [1]}, "run.failed", {"reason": "error"}),
    ],
)
def test_a_turn_ends_its_run(payload: JSONObject, type_: str, expected: JSONObject) -> None:
    (draft,) = primary(turn("turn.ended", **payload), Memory()).drafts
    assert draft.type == type_
    assert data(draft, Capture.REDACTED) == expected


@pytest.mark.parametrize("type_", ["turn.started", "turn.ended"])
def test_a_turn_that_names_no_run_is_visibility(type_: str) -> None:
    for one in (
        frame(type_),
        turn(type_, agentId="agent-0"),
        read_frame({"type": type_, "session_id": "s", "payload": {"turnId": 1}}),
    ):
        mapped = primary(one, Memory())
        assert [draft.type for draft in mapped.drafts] == [f"x.kimi-code.web.{type_}"]
        assert mapped.run is None


def call(type_: str = "tool.call.started", **payload: JSON) -> Frame:
    return turn(type_, **{"toolCallId": "c", **payload})


def test_a_failed_call_says_why_at_redacted() -> None:
    mapped = told((call(name="Bash"), call("tool.result", isError=True, output="exit 3")))
    failed = drafts(mapped)[-1]
    assert (failed.type, failed.severity, mapped[-1].call) == ("tool.failed", "warning", "c")
    tool: JSONObject = {"tool": {"name": "Bash", "call_id": "c"}}
    assert data(failed, Capture.METADATA) == {**tool, "error": {}}
    assert data(failed, Capture.REDACTED) == {**tool, "error": {"message": "exit 3"}}


def test_a_result_ends_its_call_once_and_only_its_own_agents() -> None:
    frames = (
        call(name="Bash"),
        call("tool.result", agentId="agent-0", output="x"),
        call("tool.result", output="x"),
        call("tool.result", output="x"),
    )
    assert [draft.type for draft in drafts(told(frames))] == [
        "tool.requested",
        "x.kimi-code.web.tool.result",
        "tool.completed",
        "x.kimi-code.web.tool.result",
    ]


@pytest.mark.parametrize(
    "one",
    [
        call(),
        frame("tool.result"),
        frame("event.approval.requested", approval_id="a"),
        frame("event.approval.resolved"),
        frame("event.question.requested"),
        frame("event.question.answered"),
        frame("event.question.dismissed"),
    ],
    ids=lambda one: one.type,
)
def test_a_frame_without_what_its_row_needs_is_visibility(one: Frame) -> None:
    mapped = primary(one, Memory())
    assert mapped.drafts == (companion(one),)
    assert mapped.memory == Memory()


def asked(approval: str = "a", **payload: JSON) -> Frame:
    given: JSONObject = {"tool_call_id": "c", "tool_name": "Bash", "action": "Running: ls"}
    return frame("event.approval.requested", approval_id=approval, **{**given, **payload})


def resolved(approval: str = "a", **payload: JSON) -> Frame:
    return frame("event.approval.resolved", approval_id=approval, **payload)


def test_an_ask_says_what_is_asked_and_offers_nothing() -> None:
    display: JSONObject = {"command": "ls -l", "cwd": PLANTED}
    mapped = primary(asked(tool_input_display=display, agent_id="main", turn_id=3), Memory())
    (draft,) = mapped.drafts
    assert (draft.subject, draft.severity, mapped.run) == ("a", "notice", "ep_1-turn-3")
    kind: JSONObject = {"kind": "permission"}
    bare = "kimi-code requests permission: a"
    assert data(draft, Capture.METADATA) == {**kind, "prompt": bare}
    assert data(draft, Capture.REDACTED) == {**kind, "prompt": "Running: ls: ls -l"}
    full = data(draft, Capture.FULL) or {}
    assert full["context"] == {"display": {"command": "ls -l"}}


def test_an_ask_is_of_the_run_where_the_main_agent_asks_and_only_then() -> None:
    """Before 0.42.0 `agentId` alone says who asks."""
    assert primary(asked(turn_id=0), Memory()).run == "ep_1-turn-0"
    assert primary(asked(turn_id=0, agentId="agent-0"), Memory()).run is None
    assert primary(asked(turn_id=0, agent_id="agent-0"), Memory()).run is None
    assert primary(asked(turn_id=0, agentId=None), Memory()).run is None


def test_a_refused_call_is_denied_and_names_the_ask() -> None:
    frames = (
        asked(), resolved(decision="rejected", feedback="no"), call(name="Bash"),
        call("tool.result", isError=True, output="refused"),
    )  # fmt: skip
    mapped = told(frames)
    assert story(mapped) == [ASKED, NO, ANSWERED, "tool.requested", "tool.denied"]
    assert mapped[-1].ask == "a"
    assert data(mapped[-1].drafts[0], Capture.FULL) == {
        "tool": {"name": "Bash", "call_id": "c"},
        "by": "runtime",
    }
    assert mapped[-1].memory == Memory()


@pytest.mark.parametrize("decision", [None, "cancelled", "perhaps", 7])
def test_an_ask_without_a_decision_is_dismissed(decision: JSON) -> None:
    frames = (
        asked(), resolved(decision=decision), call(name="Bash"),
        call("tool.result", isError=True),
    )  # fmt: skip
    assert story(told(frames)) == [ASKED, DISMISSED, "tool.requested", "tool.failed"]


@pytest.mark.parametrize("between", [turn(), asked("b")], ids=["turn", "ask"])
def test_a_refusal_does_not_outlive_its_turn_or_a_new_ask(between: Frame) -> None:
    frames = (
        asked(), resolved(decision="rejected"), between, call(name="Bash"),
        call("tool.result", isError=True),
    )  # fmt: skip
    assert story(told(frames))[-1] == "tool.failed"


def test_a_refusal_is_its_own_agents() -> None:
    frames = (
        asked(agent_id="agent-0"), resolved(decision="rejected"), turn(),
        call(name="Bash"), call(name="Bash", agentId="agent-0"),
        call("tool.result", isError=True),
        call("tool.result", isError=True, agentId="agent-0"),
    )  # fmt: skip
    assert story(told(frames))[-2:] == ["tool.failed", "tool.denied"]


def test_work_changed_says_what_the_session_is_doing_in_primary_alone() -> None:
    one = frame("event.session.work_changed", busy=True, pending_interaction="none", more=PLANTED)
    (draft,) = primary(one, Memory()).drafts
    facts = {"busy": True, "pending_interaction": "none"}
    assert draft.type == WORK_CHANGED
    assert data(draft, Capture.METADATA) == data(draft, Capture.FULL) == facts
    assert companion(one) == Draft(WORK_CHANGED)
    assert own_levels()[WORK_CHANGED] == {(name,): Capture.METADATA for name in facts}


# --- questions -------------------------------------------------------------------------------

QUESTIONS: JSON = [
    {
        "id": "q_0", "question": "Which env?", "header": "Env", "allow_other": True,
        "options": [{"id": "o_0", "label": "dev, or test"}, {"id": "o_1", "label": "prod"}],
    },
    {
        "id": "q_1", "question": "Which checks?", "multi_select": True,
        "options": [{"id": "p_0", "label": "lint"}, {"id": "p_1", "label": "tests, all"}],
    },
    {"id": "q_2", "question": "Why?"},
]  # fmt: skip


def answer(answers: JSON, level: Capture) -> JSON:
    frames = (
        frame("event.question.requested", question_id="q", tool_call_id="c", questions=QUESTIONS),
        frame("event.question.answered", question_id="q", answers=answers),
    )
    mapped = told(frames)
    assert mapped[-1].memory == Memory()
    assert story(mapped) == [ASKED, GIVEN, ANSWERED]
    assert (mapped[-1].ask, mapped[-1].call) == ("q", "c")
    return (data(mapped[-1].drafts[0], level) or {})["answer"]


def test_a_question_is_a_form_and_bare_below_redacted() -> None:
    one = frame("event.question.requested", question_id="q", questions=QUESTIONS)
    (draft,) = primary(one, Memory()).drafts
    shown = data(draft, Capture.REDACTED) or {}
    assert (shown["kind"], shown["prompt"]) == ("form", "Which env?\nWhich checks?\nWhy?")
    assert shown["fields"] == [
        {"id": "q_0", "type": "select", "label": "Which env?", "other": True,
         "choices": [{"id": "o_0", "label": "dev, or test"}, {"id": "o_1", "label": "prod"}]},
        {"id": "q_1", "type": "select", "label": "Which checks?", "multi": True,
         "choices": [{"id": "p_0", "label": "lint"}, {"id": "p_1", "label": "tests, all"}]},
        {"id": "q_2", "type": "string", "label": "Why?"},
    ]  # fmt: skip
    below = data(draft, Capture.METADATA) or {}
    assert below["prompt"] == "kimi-code requests form: q"
    fields = below["fields"]
    assert isinstance(fields, list)
    assert fields[1] == {
        "id": "q_1", "type": "select", "label": "2", "multi": True,
        "choices": [{"id": "p_0", "label": "1"}, {"id": "p_1", "label": "2"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "at_metadata", "at_redacted"),
    [
        ({"Which env?": "prod"}, {"values": {"q_0": "o_1"}}, {"values": {"q_0": "o_1"}}),
        ({"Which env?": "dev, or test"}, {"values": {"q_0": "o_0"}}, {"values": {"q_0": "o_0"}}),
        ({"Which env?": "mine"}, {}, {"values": {"q_0": "mine"}}),
        ({"Which checks?": "tests, all, lint"}, {"values": {"q_1": ["p_1", "p_0"]}},
         {"values": {"q_1": ["p_1", "p_0"]}}),
        ({"Which checks?": "a, b, lint, c"}, {"values": {"q_1": ["p_0"]}},
         {"values": {"q_1": ["a, b", "p_0", "c"]}}),
        ({"Why?": "so"}, {}, {"values": {"q_2": "so"}}),
        ({"Who?": "me"}, {}, {"text": "me"}),
        ({"q_0": {"kind": "single", "option_id": "o_0"}}, {"values": {"q_0": {"option_id": "o_0"}}},
         {"values": {"q_0": {"kind": "single", "option_id": "o_0"}}}),
        ({"q_0": {"kind": "other", "text": "mine"}}, {},
         {"values": {"q_0": {"kind": "other", "text": "mine"}}}),
        ({}, {}, {}),
        (7, {}, {}),
    ],
)  # fmt: skip
def test_an_answer_gets_its_ids_back_and_other_words_are_text(
    answers: JSON, at_metadata: JSON, at_redacted: JSON
) -> None:
    assert answer(answers, Capture.METADATA) == at_metadata
    assert answer(answers, Capture.REDACTED) == at_redacted


def test_the_answer_to_a_form_that_nobody_saw_is_text() -> None:
    one = frame("event.question.answered", question_id="q", answers={PLANTED: "so", "Why?": "no"})
    given = primary(one, Memory()).drafts[0]
    assert data(given, Capture.METADATA) == {"answer": {}, "via": "oob"}
    assert data(given, Capture.FULL) == {"answer": {"text": "so\nno"}, "via": "oob"}


# --- what becomes nothing, and any frame at all ----------------------------------------------


def never_read(_: object) -> None:
    raise AssertionError("the payload of a silent frame was read")


@pytest.mark.parametrize("type_", sorted(SILENT))
def test_a_silent_frame_costs_no_draft_and_is_not_read(
    type_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimiaepd.mapping.web.words", never_read)
    memory = Memory().with_call("main", "c", "Bash")
    for one in (frame(type_), read_frame({"type": type_, "payload": {"session_id": "s"}})):
        assert companion(one) is None
        mapped = primary(one, memory)
        assert mapped.drafts == ()
        assert mapped.memory is memory


def test_what_the_vendor_marks_as_volatile_is_silent_whatever_it_is() -> None:
    one = read_frame({"type": "turn.ended", "seq": 1, "session_id": "s", "volatile": True})
    assert companion(one) is None
    assert primary(one, Memory()).drafts == ()


def test_an_unknown_frame_is_visible_where_it_belongs_to_a_journal() -> None:
    assert companion(frame("goal.Updated", text=PLANTED)) == Draft("x.kimi-code.web.goal.updated")
    assert companion(read_frame({"type": "server_news", "payload": {}})) is None


@pytest.mark.parametrize(
    ("envelope", "payload", "session"),
    [
        ("s", {"sessionId": "other"}, "s"),
        ("__global__", {"sessionId": "s"}, "s"),
        ("__global__", {"sessionId": "__global__"}, "unknown"),
        ("__global__", {}, "unknown"),
        (7, {"sessionId": "s"}, "unknown"),
        ("", {}, "unknown"),
    ],
)
def test_a_frame_belongs_to_its_session(envelope: JSON, payload: JSON, session: str) -> None:
    assert read_frame({"type": "t", "session_id": envelope, "payload": payload}).session == session


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("turn.started", "turn.started"),
        ("..a..", "a"),
        ("A-b c", "a_b_c"),
        ("_._", "unknown"),
        ("?", "unknown"),
        ("x" * 200, "x" * 64),
        ("İ" * 64, "i_" * 32),
    ],
)
def test_any_frame_type_becomes_a_type(name: str, type_: str) -> None:
    assert web_type(name) == f"x.kimi-code.web.{type_}"
    assert TYPE.fullmatch(web_type(name))


def test_memory_is_bounded_and_forgets_the_oldest_first() -> None:
    memory = Memory()
    for number in range(2 * OPEN_CALLS):
        call_id = f"{number}" + "x" * 10_000
        memory = primary(call(toolCallId=call_id, name="n" * 10_000), memory).memory
        memory = primary(asked(call_id, tool_call_id=call_id), memory).memory
    assert (len(memory.calls), len(memory.asks)) == (OPEN_CALLS, OPEN_ASKS)
    for number in range(2 * OPEN_CALLS):
        one = asked(str(number), tool_call_id=str(number))
        memory = primary(one, memory).memory
        memory = primary(resolved(str(number), decision="rejected"), memory).memory
    assert len(memory.refused) == OPEN_CALLS
    assert max(len(part) for key in memory.calls for part in key) <= 128


def test_at_its_worst_a_memory_is_under_seven_megabytes() -> None:
    memory = Memory()
    for number in range(2 * OPEN_CALLS):
        call_id, name = f"{number:\U0001f600<128}", "\U0001f600" * 128
        memory = primary(call(toolCallId=call_id, agentId=name, name=name), memory).memory
        memory = primary(asked(call_id, tool_call_id=call_id, agent_id=name), memory).memory
        memory = primary(resolved(call_id, decision="rejected"), memory).memory
    for number in range(2 * OPEN_ASKS):
        options: JSON = [
            {"id": f"{place:\U0001f600<128}", "label": f"{place:\U0001f600<250}"}
            for place in range(9)
        ]
        questions: JSON = [
            {"question": f"{place:\U0001f600<2000}", "options": options} for place in range(9)
        ]
        one = frame("event.question.requested", question_id=str(number), questions=questions)
        memory = primary(one, memory).memory
    assert 6_000_000 < size(memory) < 7_000_000


def size(thing: object) -> int:
    """Bytes of a memory and all in it; what is there twice counts twice."""
    inner: list[object] = []
    if isinstance(thing, dict):
        inner = [*thing, *thing.values()]
    elif isinstance(thing, tuple):
        inner = [*thing]
    elif isinstance(thing, Memory | Ask | Refusal | FormField):
        inner = [getattr(thing, part.name) for part in attrs.fields(type(thing))]
    return sys.getsizeof(thing) + sum(map(size, inner))


def test_an_absurdly_long_id_is_the_same_one_wherever_it_comes() -> None:
    long = "i" * 10_000
    frames = (
        asked(long, tool_call_id=long), resolved(long, decision="rejected"),
        call(toolCallId=long, name="Bash"), call("tool.result", toolCallId=long, isError=True),
    )  # fmt: skip
    mapped = told(frames)
    assert len({one.call for one in mapped}) == 1
    assert len({one.ask for one in mapped if one.ask}) == 1
    assert story(mapped)[-1] == "tool.denied"
    assert read_frame({"type": "t", "session_id": long}).session != long


def test_a_huge_form_is_neither_remembered_nor_shown_whole() -> None:
    options: JSON = [{"id": "i" * 9999, "label": "l" * 9999} for _ in range(999)]
    questions: JSON = [{"question": "q" * 9999, "options": options} for _ in range(999)]
    mapped = primary(frame("event.question.requested", question_id="q", questions=questions),
                     Memory())  # fmt: skip
    ask = mapped.memory.ask("q")
    assert ask is not None
    assert len(ask.fields) == 8
    assert len(json.dumps(data(mapped.drafts[0], Capture.FULL))) < 10_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=9,
)
names = st.sampled_from(
    (
        *("agentId", "agent_id", "sessionId", "turnId", "turn_id", "origin", "prompt", "reason"),
        *("error", "toolCallId", "tool_call_id", "name", "args", "output", "isError", "tool_name"),
        *("approval_id", "question_id", "action", "tool_input_display", "decision", "feedback"),
        *("selected_label", "questions", "answers", "busy", "pending_interaction"),
    )
)
likely = st.sampled_from(("main", "agent-0", "a", "c", "rejected", "Bash", 0, True, QUESTIONS))
payloads = st.dictionaries(names, likely | json_values, max_size=8)
frames = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from([*sorted({key.partition(" ")[0] for key in ROWS}), "error"])
        | json_values,
        "seq": json_values,
        "session_id": st.sampled_from(("s", "__global__")) | json_values,
        "epoch": st.just("ep_1") | json_values,
        "volatile": json_values,
        "payload": payloads | json_values,
    },
)


@given(st.lists(frames | json_values, max_size=6))
def test_any_json_maps_in_both_modes_and_gates_at_every_level(values: list[JSON]) -> None:
    memory = Memory()
    for value in values:
        one = read_frame(value)
        before = copy.deepcopy(memory)
        mapped = primary(one, memory)
        assert memory == before, "a memory is a value"
        memory = mapped.memory
        for draft in filter(None, (companion(one), *mapped.drafts)):
            assert TYPE.fullmatch(draft.type)
            assert draft.subject != ""
            for level in LEVELS:
                shown = data(draft, level)
                if level is not Capture.NONE and draft.type in registered_types():
                    jsonschema.validate(shown, payload_schema(draft.type) or {})
