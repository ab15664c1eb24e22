"""The checker against the standard's own fixtures: what is golden is clean, the rest is found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast

import pytest

from judge import judge_log
from kimiaepd import standard
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.validate import Finding, LogChecker, check_file

pytestmark = pytest.mark.shared


def cases(shared: Path, name: str) -> list[JSONObject]:
    file: JSONObject = json.loads((shared / "aep" / "fixtures" / name).read_bytes())
    found = cast("list[JSONObject]", file["cases"])
    assert found
    return found


def check(*events: JSON) -> list[Finding]:
    lines = [json.dumps(event).encode() + b"\n" for event in events]
    return list(LogChecker().check_lines(lines))


def sections(rule: str) -> set[str]:
    """The documents and top sections that a text names: "AEP-0001 §5.1 #2 / §7.4" names two."""
    found: set[str] = set()
    document = ""
    for named, section in re.findall(r"(AEP-\d{4})|§(\d+)", rule):
        document = named or document
        found |= {f"{document} §{section}"} if section else set()
    return found


def test_the_data_files_are_the_standards_own(shared: Path) -> None:
    package = Path(standard.__file__).parent
    ours = {file.relative_to(package): file.read_bytes() for file in package.rglob("*.json")}
    theirs = {
        file.relative_to(shared / "aep"): file.read_bytes()
        for folder in ("payload-schemas", "registry")
        for file in (shared / "aep" / folder).glob("*.json")
    }
    envelope = Path("aep-event.schema.json")
    assert ours == theirs | {envelope: (shared / "aep" / envelope).read_bytes()}


def test_the_golden_log_is_clean_to_all_judges(shared: Path) -> None:
    golden = shared / "aep" / "fixtures" / "golden.jsonl"
    assert check_file(golden) == []
    judge_log(golden)


def test_every_invalid_case_is_refused_for_the_reason_that_it_names(shared: Path) -> None:
    for case in cases(shared, "invalid.json"):
        events = cast("list[JSON]", case.get("events") or [case["event"]])
        findings = check(*events)
        named = sections(str(case["rule"]))
        assert findings, case["name"]
        assert set.union(*(sections(finding.rule) for finding in findings)) <= named, case["name"]
        assert findings[-1].line == len(events), case["name"]


def test_form_answers_are_clean_once_gated_and_found_before(shared: Path) -> None:
    for case in cases(shared, "capture-gating.json"):
        if case["ceiling"] == "none":
            continue  # there the whole of data is absent, answer and all
        gated, whole = _answers(case, case["expect"]), _answers(case, case["values"])
        assert check(*gated) == [], case["name"]
        assert bool(check(*whole)) == (case["values"] != case["expect"]), case["name"]


def _answers(case: JSONObject, values: JSON) -> tuple[JSONObject, JSONObject]:
    """A form, and the answer to it at the ceiling of the case."""
    envelope: JSONObject = {
        "aep": "0.1",
        "time": "2026-07-03T10:00:00Z",
        "source": "aep://h/agent/a",
        "agent": "a",
        "session": "s",
    }
    form: JSONObject = {"kind": "form", "prompt": "Deploy", "fields": case["fields"]}
    asked: JSONObject = {"id": "F", "type": "attention.requested", "seq": 0, "capture": "redacted"}
    told: JSONObject = {"id": "A", "type": "attention.answered", "seq": 1, "subject": "F"}
    return (
        envelope | asked | {"data": form},
        envelope | told | {"capture": case["ceiling"], "data": {"answer": {"values": values}}},
    )


def test_a_lowered_event_is_clean_and_one_that_was_only_relabelled_is_found(shared: Path) -> None:
    for case in cases(shared, "downlevel.json"):
        event = cast("JSONObject", case["event"])
        lowered = event | {"capture": case["expect_capture"], "data": case["expect_data"]}
        if case["expect_data"] is None:
            del lowered["data"]
        assert check(lowered) == [], case["name"]
        relabelled = event | {"capture": case["expect_capture"]}
        dropped = case["expect_data"] != event["data"]
        # A vendor's own payload has no levels that a reader could know.
        known = event["type"] in standard.registered_types()
        assert bool(check(relabelled)) == (dropped and known), case["name"]
