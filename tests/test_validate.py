"""A log is checked line by line, as a stream of bytes, as a file, and by the command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from click.testing import CliRunner

from judge import judge, judge_log
from kimiaepd.cli.validate import validate
from kimiaepd.errors import UsageError
from kimiaepd.storage.log_names import active_name, closed_name
from kimiaepd.validate import Finding, LogChecker, check_file, in_order
from made_log import Log, session


def test_a_session_of_ours_is_clean() -> None:
    log = session()
    assert log.findings() == []
    judge(log.events)


def test_a_clean_log_and_the_command_itself_do_without_jsonschema(tmp_path: Path) -> None:
    log = tmp_path / "s1.jsonl"
    log.write_bytes(b"".join(session().lines()))
    program = (
        "import pathlib, sys, kimiaepd.cli.validate\n"
        f"assert kimiaepd.validate.check_file(pathlib.Path({str(log)!r})) == []\n"
        "assert 'jsonschema' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("line", "rule", "words"),
    [
        (b"\n", "AEP-0003 §3.1", "a blank line"),
        (b"{\n", "AEP-0003 §3.1", "not JSON"),
        (b"\xff\n", "AEP-0003 §3.1", "not JSON: not UTF-8 at byte 0"),
        (b'{"aep":NaN}\n', "AEP-0003 §3.1", "not JSON"),
        (b"[1]\n", "AEP-0001 §5", "an event is a JSON object, not [1]"),
        (b"[" * 100_000 + b"\n", "not checked", "nested too deep"),
        (b'{"aep":"0.1","id', "AEP-0003 §3.1", "a write was cut off here"),
        (b"\0" * 40, "AEP-0003 §3.1", "a write was cut off here"),
        (b"12", "AEP-0003 §3.1", "a write was cut off here"),
    ],
)
def test_a_line_that_holds_no_event_is_found(line: bytes, rule: str, words: str) -> None:
    checker = LogChecker()
    [finding] = checker.check(line)
    assert finding.rule == rule
    assert words in finding.message
    assert checker.events == 0


def test_a_whole_event_without_its_newline_is_torn_and_counts() -> None:
    checker = LogChecker()
    [finding] = checker.check(session().lines()[0].rstrip(b"\n"))
    assert "no newline" in finding.message
    assert checker.events == 1


def test_what_an_event_holds_is_quoted_printable_and_short() -> None:
    name = "\x1b[31m\ud800"
    log = Log().add("run.started", time=name * 400, **{name: []})
    findings = log.findings()
    assert len(findings) == 3
    for finding in findings:
        assert finding.message.isprintable()
        assert len(finding.message) < 200


def test_what_parses_may_be_too_deep_to_check() -> None:
    [line] = Log().add("run.started", severity="notice").lines()

    def check(depth: int) -> Finding:
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        [finding] = LogChecker().check(line.replace(b'"notice"', deep))
        return finding

    fits, fails = 1, 1_000_000
    while fails - fits > 1:
        depth = (fits + fails) // 2
        fits, fails = (fits, depth) if check(depth).rule == "not checked" else (depth, fails)
    # Just here the parser still manages what the library no longer does.
    assert {check(fits + more).rule for more in range(1, 60)} == {"not checked"}


def test_what_is_remembered_for_an_event_is_bounded() -> None:
    checker = LogChecker()
    log = Log()
    for number in range(1500):
        log.add("progress.status", {"phase": "p" * 500}, id=f"01JX9YB0AAAA0000000000{number:04}")
    checker.check(log.lines()[0])
    lines = log.lines()[1:]
    tracemalloc.start()
    for line in lines:
        checker.check(line)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / len(lines) < 200


def test_check_file_reads_a_log_and_names_one_that_it_cannot_read(tmp_path: Path) -> None:
    log = tmp_path / "s1.jsonl"
    log.write_bytes(b"".join(session().lines()) + b"\n")
    assert check_file(log) == [Finding(15, "AEP-0003 §3.1", "a blank line")]
    with pytest.raises(UsageError, match=re.escape(f"cannot read {tmp_path}: Is a directory")):
        check_file(tmp_path)


def run_validate(*arguments: str | Path, stdin: bytes = b"") -> tuple[int, str, str]:
    result = CliRunner().invoke(validate, list(map(str, arguments)), input=stdin)
    if isinstance(result.exception, UsageError):
        return result.exception.status, result.stdout, str(result.exception)
    return result.exit_code, result.stdout, result.stderr


def test_a_clean_log_prints_a_summary_alone(tmp_path: Path) -> None:
    log = tmp_path / "s1.jsonl"
    log.write_bytes(b"".join(session().lines()))
    assert run_validate(log) == (0, "", "14 events, 0 findings\n")


def test_findings_name_the_file_the_line_and_the_rule(tmp_path: Path) -> None:
    log = tmp_path / "s1.jsonl"
    log.write_bytes(b"".join(session().add("session.ended", epoch=2).lines()))
    assert run_validate(log) == (
        1,
        f"{log}:15: AEP-0002 §2 convention 5: session.ended is a second end of session 's1'\n",
        "15 events, 1 finding\n",
    )


def test_standard_input_and_json() -> None:
    status, out, _ = run_validate("--json", "-", stdin=b"\n[]\n")
    assert status == 1
    assert [json.loads(line) for line in out.splitlines()] == [
        {"file": "-", "line": 1, "rule": "AEP-0003 §3.1", "message": "a blank line"},
        {
            "file": "-",
            "line": 2,
            "rule": "AEP-0001 §5",
            "message": "an event is a JSON object, not []",
        },
    ]


def test_the_parts_of_a_log_are_read_as_one_the_oldest_first(tmp_path: Path) -> None:
    lines = session().add("session.ended", epoch=2).lines()
    parts = [tmp_path / closed_name("s1", 9), tmp_path / closed_name("s1", 10)]
    parts.append(tmp_path / active_name("s1"))
    for part, content in zip(parts, [lines[:5], lines[5:14], lines[14:]], strict=True):
        part.write_bytes(b"".join(content))
    assert run_validate(parts[2])[0] == 0
    for named in (parts, parts[::-1]):
        status, out, _ = run_validate(*named)
        assert (status, out.count("\n"), out.partition(": ")[0]) == (1, 1, f"{parts[2]}:1")


def test_logs_stay_in_the_order_in_which_they_are_named() -> None:
    names = ("b.jsonl", "other.log", "a.jsonl", "-", f"elsewhere/{closed_name('b', 1)}")
    paths = list(map(Path, names))
    assert in_order(paths) == paths


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    missing = tmp_path / "none.jsonl"
    assert run_validate(missing) == (64, "", f"cannot read {missing}: No such file or directory")


def test_the_judge_refuses_what_any_of_the_three_refuses(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"line 1: AEP-0001 §6(.|\n)*schema(.|\n)*aep_sdk"):
        judge(Log().add("banana", seq="1").events)
    with pytest.raises(AssertionError, match=r"projection: .*seq-regression"):
        judge(Log().add("run.started", seq=1).add("run.started", seq=0).events)
    log = tmp_path / "s1.jsonl"
    log.write_bytes(session().lines()[0])
    judge_log(log)
    log.write_bytes(session().lines()[0].rstrip())
    with pytest.raises(AssertionError, match="a write was cut off here"):
        judge_log(log)
