"""One event is held to the standard: envelope, payload, capture level."""

from __future__ import annotations

import pytest

from kimiaepd import standard
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.validate.formats import is_date_time, is_uri
from made_log import Log, ask, tool


@pytest.mark.parametrize(
    ("attributes", "rule", "words"),
    [
        ({"aep": "0.2"}, "AEP-0001 §5.1", "aep: must be '0.1', not '0.2'"),
        ({"id": ""}, "AEP-0001 §5.1", "id: must not be empty"),
        ({"id": "(absent)"}, "AEP-0001 §5.1", "id must be given"),
        ({"agent": "(absent)", "time": "(absent)"}, "AEP-0001 §5.1", "time, agent must be given"),
        ({"time": "2026-07-03 10:00:00Z"}, "AEP-0001 §5.1", "RFC 3339"),
        ({"source": "host/kimi code"}, "AEP-0001 §5.1", "a scheme"),
        ({"subject": None}, "AEP-0001 §5.1", "subject: must be of type string, not None"),
        ({"seq": True}, "AEP-0001 §5.1", "seq: must be of type integer, not True"),
        ({"epoch": -1}, "AEP-0001 §5.1", "epoch: must be at least 0, not -1"),
        ({"session": "(absent)"}, "AEP-0001 §5.2", "session must be given"),
        ({"type": "agent.idle"}, "AEP-0001 §5.2", "session: must be left out"),
        ({"type": "attention.routed", "subject": "E"}, "AEP-0001 §5.2", "seq: must be left out"),
        ({"type": "control.pause"}, "AEP-0004 §2.2", "seq: must be left out"),
        ({"type": "x.me.control.poke"}, "AEP-0004 §2.2", "seq: must be left out"),
        ({"type": "run.started\n"}, "AEP-0001 §6", "is not category.rest"),
        ({"type": "Run.started"}, "AEP-0002 §3", "is not category.rest"),
        ({"type": "run.paused"}, "AEP-0002 §4", "'run.paused' is not a registered type"),
        ({"severity": "fatal"}, "AEP-0001 §8.1", "must be one of debug, info"),
        ({"capture": "some"}, "AEP-0001 §8.2", "must be one of none, metadata"),
        ({"extra": 1.5}, "AEP-0001 §5.4", "extra: must be of type string or integer"),
        ({"an_extra": 1}, "AEP-0001 §5.4", "'an_extra' is not a name"),
        ({"traceparent": "00-0-0-0"}, "AEP-0001 §5.1", "a W3C traceparent"),
        ({"data": []}, "AEP-0001 §5.1", "data: must be of type object, not []"),
    ],
)
def test_a_broken_envelope_is_found_with_its_section(
    attributes: JSONObject, rule: str, words: str
) -> None:
    findings = Log().add("run.started", **attributes).findings()
    assert (findings[0].line, findings[0].rule) == (1, rule)
    assert words in findings[0].message


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("2026-07-03T10:00:00Z", True),
        ("2026-07-03t10:00:00.123456789z", True),
        ("2024-02-29T23:59:60+05:30", True),
        ("0000-02-29T00:00:00-00:00", True),
        ("2026-02-29T10:00:00Z", False),
        ("2026-13-01T10:00:00Z", False),
        ("2026-07-03T24:00:00Z", False),
        ("2026-07-03T10:00:00", False),
        ("2026-07-03T10:00Z", False),
        ("2026-07-03T10:00:00.Z", False),
        ("2026-07-03T10:00:00+0530", False),
        ("20260703T100000Z", False),
        ("\u0662026-07-03T10:00:00Z", False),
        ("2026-07-03T10:00:00Z\n", False),
    ],
)
def test_date_time_is_rfc_3339_and_a_day_that_exists(text: str, valid: bool) -> None:
    assert is_date_time(text) is valid


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("aep://host/agent/kimi-code/session/a%20b", True),
        ("urn:x", True),
        ("//host/path", False),
        ("aep://host/a b", False),
        ("aep://host/\u00fc", False),
        ("aep://host/%2", False),
        ("1ep://host", False),
    ],
)
def test_a_uri_has_a_scheme_and_is_percent_encoded(text: str, valid: bool) -> None:
    assert is_uri(text) is valid


@pytest.mark.parametrize(
    ("name", "data", "rule", "words"),
    [
        ("run.failed", {}, "AEP-0002 §5.3", "data: reason must be given"),
        ("run.failed", None, "AEP-0002 §5.3", "data: reason must be given"),
        ("run.cancelled", {"by": "me"}, "AEP-0002 §5.3", "data.by: must be one of user"),
        ("tool.requested", {"tool": {}}, "AEP-0002 §5.3", "data.tool: name must be given"),
        ("run.finished", {"duration_ms": -1}, "AEP-0002 §5.3", "must be at least 0"),
        ("progress.status", {"percent": 101}, "AEP-0002 §5.4", "must be at most 100"),
        ("control.rejected", {"reason": "timeout"}, "AEP-0004 §3", "one of unsupported, "),
        ("control.cancel", {"scope": "all"}, "AEP-0004 §5", "data.scope: must be one of run"),
    ],
)
def test_a_broken_payload_is_found(
    name: str, data: JSONObject | None, rule: str, words: str
) -> None:
    command: JSONObject = {"seq": "(absent)"} if name == "control.cancel" else {"cause": "C1"}
    [finding] = Log().add(name, data, **command).findings()
    assert finding.rule == rule
    assert words in finding.message


def test_an_expiry_is_a_date_time() -> None:
    data = ask(expires_at="tomorrow")
    [finding] = Log().add("attention.requested", data, subject="Bash").findings()
    assert "data.expires_at: must be an RFC 3339" in finding.message


def test_a_payload_may_be_a_vendors_own_or_at_its_limit_or_at_none_absent() -> None:
    log = Log().add("x.kimi-code.session.anything", {"what": [{"ever": None}]})
    log.add("progress.status", {"percent": 100})
    assert log.add("run.failed", capture="none").findings() == []


@pytest.mark.parametrize("reason", standard.nack_reasons())
def test_the_registered_reasons_are_the_ones_that_pass(reason: str) -> None:
    assert Log().add("control.rejected", {"reason": reason}, cause="C1").findings() == []


@pytest.mark.parametrize(
    ("name", "data", "path", "needed"),
    [
        ("run.started", {"prompt": "hi"}, "data.prompt", "redacted"),
        ("tool.requested", tool("c") | {"args": {}}, "data.args", "full"),
        ("tool.requested", tool("c") | {"args_redacted": {}}, "data.args_redacted", "redacted"),
        ("tool.completed", tool("c") | {"result": "x"}, "data.result", "full"),
        (
            "tool.failed",
            tool("c") | {"error": {"message": "x"}},
            "data.error.message",
            "redacted",
        ),
        (
            "resource.retrieval.returned",
            {"documents": [{"id": "1"}, {"content": "x"}]},
            "data.documents.1.content",
            "full",
        ),
        ("attention.requested", ask(context={}), "data.context", "full"),
        ("delegation.subagent.started", {"prompt": "x"}, "data.prompt", "redacted"),
        ("delegation.subagent.stopped", {"response": "x"}, "data.response", "redacted"),
    ],
)
def test_a_member_rides_at_its_level_and_not_below(
    name: str, data: JSONObject, path: str, needed: str
) -> None:
    levels = standard.capture_levels()
    for level in levels[1:]:
        findings = Log().add(name, data, subject="Bash", capture=level).findings()
        if levels.index(level) >= levels.index(needed):
            assert findings == []
        else:
            [finding] = findings
            assert finding.rule == "AEP-0002 §5.1"
            assert finding.message == f"{path}: needs capture {needed}, the event declares {level}"


def test_an_event_without_capture_is_at_metadata() -> None:
    [finding] = Log().add("run.started", {"prompt": "hi"}).findings()
    assert "the event declares metadata" in finding.message


@pytest.mark.parametrize("name", ["run.started", "x.kimi-code.session.any"])
def test_no_data_at_all_rides_at_none(name: str) -> None:
    [finding] = Log().add(name, {}, capture="none").findings()
    assert finding.rule == "AEP-0001 §8.2"


@pytest.mark.parametrize(
    ("subject", "prompt", "clean"),
    [
        ("Bash", "kimi-code requests permission: Bash", True),
        ("Bash", "kimi-code requests permission: Bash rm -rf build", False),
        ("Bash", "kimi-code requests permission", False),
        ("Bash", "Run `rm -rf build`?", False),
        ("(absent)", "kimi-code requests permission", True),
        ("(absent)", "kimi-code requests permission: Bash", True),
        ("(absent)", "kimi-code requests permission: rm -rf", False),
    ],
)
def test_below_redacted_a_prompt_is_made_from_structure(
    subject: str, prompt: str, clean: bool
) -> None:
    data = ask(prompt=prompt)
    found = [f.rule for f in Log().add("attention.requested", data, subject=subject).findings()]
    assert found == ([] if clean else ["AEP-0003 §9.2"])
    aloud = Log().add("attention.requested", data, subject=subject, capture="redacted")
    assert aloud.findings() == []


def test_below_redacted_labels_are_ids_or_positions() -> None:
    options: JSON = [{"id": "allow", "label": "1"}, {"id": "deny", "label": "deny"}]
    data = ask(options=options)
    assert Log().add("attention.requested", data, subject="Bash").findings() == []


def test_below_redacted_labels_of_content_are_found_wherever_they_are() -> None:
    choices: JSON = [{"id": "a", "label": "1"}, {"id": "b", "label": "PostgreSQL"}]
    data = ask(
        options=[{"id": "allow", "label": "Allow rm -rf"}],
        fields=[{"id": "db", "type": "select", "label": "Which?", "choices": choices}],
    )
    findings = Log().add("attention.requested", data, subject="Bash").findings()
    assert {finding.rule for finding in findings} == {"AEP-0002 §5.3"}
    assert [finding.message.partition(":")[0] for finding in findings] == [
        "data.options.0.label",
        "data.fields.0.label",
        "data.fields.0.choices.1.label",
    ]
    log = Log().add("attention.requested", data, subject="Bash", capture="redacted")
    assert log.findings() == []
