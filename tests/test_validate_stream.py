"""A stream of events is held to the standard: positions, ids, ends, and answers to forms."""

from __future__ import annotations

import pytest

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.validate import LogChecker
from made_log import Log, ask, session, tool


@pytest.mark.parametrize(
    ("positions", "faulty"),
    [
        ([(0, 0), (0, 1), (0, 7), (3, 0), (3, 1)], []),
        ([(0, 5), (0, 5)], [2]),
        ([(0, 5), (0, 3), (0, 4), (0, 6)], [2, 3]),
        ([(1, 0), (0, 9), (1, 1)], [2]),
    ],
)
def test_positions_rise(positions: list[tuple[int, int]], faulty: list[int]) -> None:
    log = Log()
    for epoch, seq in positions:
        log.add("progress.status", epoch=epoch, seq=seq)
    findings = log.findings()
    assert [finding.line for finding in findings] == faulty
    assert {finding.rule for finding in findings} <= {"AEP-0001 §7.2"}


def test_positions_are_counted_for_each_source_and_session() -> None:
    log = Log().add("run.started", seq=0).add("run.started", seq=0, session="s2")
    assert log.add("run.started", seq=0, source="aep://other/agent/a").findings() == []


def test_an_id_names_one_event_of_a_source() -> None:
    log = Log().add("run.started", id="A").add("run.started", id="A")
    [finding] = log.findings()
    assert (finding.line, finding.rule) == (2, "AEP-0001 §5.1")
    log = Log().add("run.started", id="A").add("run.started", id="A", source="aep://other")
    assert log.findings() == []


def test_a_redelivery_is_no_fault() -> None:
    lines = session().lines()
    assert list(LogChecker().check_lines([*lines, *lines])) == []


FAILED: JSONObject = {"error": {"type": "E"}}


@pytest.mark.parametrize(
    ("log", "faulty", "rule"),
    [
        (
            Log().add("run.finished", run="r").add("run.cancelled", run="r", epoch=4),
            [2],
            "AEP-0002 §2 convention 5",
        ),
        (Log().add("run.finished", run="r").add("run.finished", run="q"), [], ""),
        (Log().add("run.finished").add("run.finished"), [], ""),
        (
            Log().add("session.ended").add("session.ended", epoch=1),
            [2],
            "AEP-0002 §2 convention 5",
        ),
        (Log().add("session.ended").add("session.ended", session="s2"), [], ""),
        (
            Log()
            .add("tool.requested", tool("c"))
            .add("tool.completed", tool("c"))
            .add("tool.failed", tool("c") | FAILED),
            [3],
            "AEP-0002 §2 convention 5",
        ),
        (
            Log()
            .add("tool.requested", tool("c"))
            .add("tool.denied", tool("c") | {"by": "policy"})
            .add("tool.requested", tool("c"))
            .add("tool.completed", tool("c"))
            .add("tool.completed", tool("c")),
            [5],
            "AEP-0002 §2 convention 5",
        ),
        (
            Log().add("tool.failed", tool("c") | FAILED).add("tool.failed", tool("c") | FAILED),
            [],
            "",
        ),
        (
            Log()
            .add("attention.requested", ask(), subject="Bash")
            .add("attention.resolved", {"resolution": "dismissed"}, subject="E0")
            .add("attention.timeout", subject="E0"),
            [3],
            "AEP-0002 §7.2",
        ),
        (
            Log()
            .add("attention.requested", ask(), subject="Bash")
            .add("attention.answered", {"answer": {"option": "yes"}}, subject="E0")
            .add("attention.answered", {"answer": {"option": "yes"}}, subject="E0")
            .add("attention.resolved", {"resolution": "answered"}, subject="E0"),
            [3],
            "AEP-0002 §7.1",
        ),
        (
            Log().add("attention.requested", ask(), subject="Bash").add("session.ended"),
            [2],
            "AEP-0002 §7.2",
        ),
        (
            Log()
            .add("attention.requested", ask(), subject="Bash")
            .add("attention.timeout", subject="E0")
            .add("session.ended"),
            [],
            "",
        ),
        (
            Log()
            .add("control.accepted", cause="C")
            .add("control.rejected", {"reason": "busy"}, cause="C"),
            [2],
            "AEP-0004 §3",
        ),
        (Log().add("control.accepted", cause="C").add("control.accepted", cause="D"), [], ""),
        (Log().add("control.accepted"), [1], "AEP-0004 §3"),
        (Log().add("attention.answered", {"answer": {}}), [1], "AEP-0002 §7.1"),
    ],
)
def test_everything_ends_at_most_once(log: Log, faulty: list[int], rule: str) -> None:
    findings = log.findings()
    assert [finding.line for finding in findings] == faulty
    assert {finding.rule for finding in findings} == ({rule} if rule else set())


FIELDS: JSON = [
    {"id": "name", "type": "string", "label": "1", "required": True},
    {"id": "count", "type": "number", "label": "2"},
    {"id": "sure", "type": "boolean", "label": "3"},
    {"id": "one", "type": "select", "label": "4", "choices": [{"id": "a", "label": "1"}]},
    {
        "id": "many",
        "type": "select",
        "label": "5",
        "multi": True,
        "other": True,
        "choices": [{"id": "a", "label": "1"}],
    },
]


def answered(values: JSON, capture: str, fields: JSON = FIELDS) -> list[str]:
    """What is said about an answer to a form."""
    data: JSONObject = {"kind": "form", "prompt": "Fill in", "fields": fields}
    log = Log().add("attention.requested", data, capture="redacted")
    log.add("attention.answered", {"answer": {"values": values}}, subject="E0", capture=capture)
    findings = log.findings()
    assert {finding.rule for finding in findings} <= {"AEP-0002 §5.3"}
    return [finding.message.removeprefix("data.answer.values: ") for finding in findings]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "x", "count": 1.5, "sure": False, "one": "a", "many": ["a", "free"]}, None),
        ({"count": 1}, "'name' is required by the form"),
        ({"name": "x", "extra": 1}, "'extra' answers no field of the form"),
        ({"name": 1}, "'name' must be text, not 1"),
        ({"name": "x", "count": True}, "'count' must be a number, not True"),
        ({"name": "x", "sure": "yes"}, "'sure' must be true or false, not 'yes'"),
        ({"name": "x", "one": "b"}, "'one' must be what the field's choices allow, not 'b'"),
        ({"name": "x", "one": ["a"]}, "'one' must be what the field's choices allow, not ['a']"),
        ({"name": "x", "many": "a"}, "'many' must be what the field's choices allow, not 'a'"),
        ({"name": "x", "many": [{}]}, "'many' must be what the field's choices allow, not [{}]"),
    ],
)
def test_an_answer_fits_the_form(values: JSON, words: str | None) -> None:
    assert answered(values, "redacted") == ([] if words is None else [words])


def test_free_text_in_an_answer_needs_redacted() -> None:
    values: JSON = {"name": "x", "count": 1, "sure": True, "one": "a", "many": ["a", "free"]}
    assert answered(values, "metadata") == [
        "'name' is free text and needs capture redacted",
        "'many' is free text and needs capture redacted",
    ]


def test_the_command_with_the_answer_is_held_to_its_level_alone() -> None:
    data: JSONObject = {"kind": "form", "prompt": "Fill in", "fields": FIELDS}
    log = Log().add("attention.requested", data, capture="redacted")
    command: JSONObject = {"answer": {"values": {"name": "x", "one": "no choice"}}}
    log.add(
        "control.attention.respond", command, subject="E0", seq="(absent)", source="aep://other"
    )
    assert [finding.message for finding in log.findings()] == [
        "data.answer.values: 'name' is free text and needs capture redacted",
        "data.answer.values: 'one' is free text and needs capture redacted",
    ]
    log.events[-1]["capture"] = "redacted"
    assert log.findings() == []


def test_an_answer_to_a_form_that_is_closed_or_unknown_is_not_judged() -> None:
    data: JSONObject = {"kind": "form", "prompt": "Fill in", "fields": FIELDS}
    late: JSONObject = {"answer": {"values": {"extra": 1}}}
    log = Log().add("attention.requested", data, capture="redacted")
    log.add("attention.timeout", subject="E0").add("attention.answered", late, subject="E0")
    assert log.add("attention.answered", late, subject="unknown").findings() == []
