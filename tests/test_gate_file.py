"""Edits of the gate in config.toml: what is not meant stays byte for byte, or nothing is done."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd import gate_file
from kimiaepd.gate_file import GateFileError
from kimiaepd.policy import Matcher, Rule

RULE = Rule(
    id="r-1",
    tool_name="Bash",
    decision="rejected",
    matcher=Matcher("command_prefix", "rm -rf"),
    reason='say "why"\nnot',
    created_at="2026-01-01T00:00:00Z",
    created_by="cli",
)
PLAIN = Rule(id="r-2", tool_name="mcp__*", decision="approved")
TABLE = {
    "id": "r-1",
    "tool_name": "Bash",
    "matcher": {"kind": "command_prefix", "value": "rm -rf"},
    "decision": "rejected",
    "reason": 'say "why"\nnot',
    "created_at": "2026-01-01T00:00:00Z",
    "created_by": "cli",
}

FILES = {
    "empty": "",
    "comment alone": "# mine\n",
    "no newline at the end": 'socket = "/tmp/x"',
    "foreign keys": 'kimi_home = "/k"  # here\n\n# the log\n[log]\nsync = "os"   # fast\n',
    "a gate": '[gate]  # the gate\nenabled = true # on\n\n# about the log\n[log]\nsync = "os"\n',
    "rules split by other tables": (
        '[[gate.rules]]\nid = "a"\ntool_name = "*"\ndecision = "rejected"\n\n# log\n[log]\n'
        'keep_days = 1\n\n[[gate.rules]]\nid = "b"\ntool_name = "*"\ndecision = "rejected"\n# end\n'
    ),
    "a table for a matcher": (
        '[[gate.rules]]\nid = "a"\ntool_name = "Bash"\ndecision = "rejected"\n'
        '[gate.rules.matcher]\nkind = "command_prefix"\nvalue = "ls"\n\n# log\n[log]\nkeep_days=1\n'
    ),
    "windows lines": '# a\r\n[gate]\r\nmode = "auto"  # b\r\n\r\n[log]\r\nkeep_days = 3\r\n',
    "dotted": 'gate.mode = "auto"\ngate.tools = ["Bash"]\n[log]\nkeep_days = 3\n',
    "odd spelling": '[ gate ]\n  "mode"   =   \'auto\'   # spaced\n[ "log" ]\nkeep_days=3\n',
    "many lines": '[gate]\ntools = [\n  "Bash", # one\n  "Read",\n]\nmode = "yolo"\n',
    "strings like headers": '[capture]\nredact_names = ["""\n[gate]\nmode = "x"\n"""]\n',
}

files = pytest.mark.parametrize("text", FILES.values(), ids=FILES)
sessions = pytest.mark.parametrize("session", [None, "s-1", 'od d."x"'])


def rules_of(raw: bytes, session: str | None) -> object:
    gate = tomllib.loads(raw.decode())["gate"]
    return (gate if session is None else gate["sessions"][session]).get("rules")


@files
@sessions
def test_a_rule_is_appended_and_taken_out_again_to_the_byte(text: str, session: str | None) -> None:
    raw = text.encode()
    new = gate_file.with_rule(raw, RULE, session)
    assert new.startswith(raw)
    found = rules_of(new, session)
    assert isinstance(found, list)
    assert found[-1] == TABLE
    again = gate_file.with_rule(new, PLAIN, session)
    assert again.startswith(new)
    assert gate_file.without_rule(again, "r-2") == new
    ended = raw if not raw or raw.endswith(b"\n") else raw + b"\n"
    assert gate_file.without_rule(new, "r-1") == ended
    assert gate_file.without_rule(gate_file.without_rule(again, "r-1"), "r-2") == ended


@files
@sessions
@pytest.mark.parametrize(("key", "value"), [("mode", "manual"), ("tools", ["Bash", "mcp__*"])])
def test_a_value_is_set_and_every_other_line_stays(
    text: str, session: str | None, key: str, value: str | list[str]
) -> None:
    raw = text.encode()
    new = gate_file.with_value(raw, key, value, session)
    gate = tomllib.loads(new.decode())["gate"]
    assert (gate if session is None else gate["sessions"][session])[key] == value
    assert gate_file.with_value(new, key, value, session) == new
    assert (b"\r\n" in raw) == (b"\r\n" in new)
    assert b"\r\n" not in raw or new.count(b"\n") == new.count(b"\r\n")
    lines = iter(new.splitlines())
    gone = [line for line in raw.splitlines() if line.strip() and line not in lines]
    if session is None and f"{key}" in text and text is not FILES["strings like headers"]:
        return  # the line of the key itself is another now; see the next test
    assert gone == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('[gate]\nmode = "yolo" #x\nhold_ms = 1\n', '[gate]\nmode = "auto" #x\nhold_ms = 1\n'),
        ('gate.mode = "yolo"#x\n', 'gate.mode = "auto"#x\n'),
        ("[gate] # c\n# d\nhold_ms = 1\n", '[gate] # c\nmode = "auto"\n# d\nhold_ms = 1\n'),
        ("[gate]", '[gate]\nmode = "auto"\n'),
        ("[log]\n", '[log]\n\n[gate]\nmode = "auto"\n'),
        ('gate = { mode = "yolo", hold_ms = 1 }\n', 'gate = { mode = "auto", hold_ms = 1 }\n'),
        ("", '[gate]\nmode = "auto"\n'),
    ],
)  # fmt: skip
def test_the_mode_changes_where_it_stands(old: str, new: str) -> None:
    assert gate_file.with_value(old.encode(), "mode", "auto").decode() == new


def test_a_session_s_mode_is_its_own() -> None:
    raw = b'[gate]\nmode = "manual"\n[gate.sessions.s]\nmode = "yolo"\n'
    new = gate_file.with_value(raw, "mode", "auto", "s")
    assert new == b'[gate]\nmode = "manual"\n[gate.sessions.s]\nmode = "auto"\n'


def test_the_comment_above_what_follows_a_rule_stays() -> None:
    """tomlkit takes it away with the entry."""
    raw = FILES["rules split by other tables"].encode()
    without = gate_file.without_rule(raw, "a")
    assert without.startswith(b"\n# log\n[log]\nkeep_days = 1\n")
    assert b"# end" in gate_file.without_rule(without, "b")
    nested = FILES["a table for a matcher"].encode()
    assert gate_file.without_rule(nested, "a") == b"\n# log\n[log]\nkeep_days=1\n"


def test_a_rule_that_is_not_there_changes_nothing() -> None:
    raw = FILES["a gate"].encode()
    assert gate_file.without_rule(raw, "nope") == raw
    assert gate_file.without_rule(b"", "nope") == b""


INLINE = b'[gate]\nrules = [{id = "a", tool_name = "*", decision = "rejected"}]\n'


@pytest.mark.parametrize("raw", [INLINE, b"gate = {rules = []}\n", b"[gate]\nrules = []\n"])
def test_rules_in_an_inline_array_are_left_as_they_are(raw: bytes) -> None:
    """tomlkit would write TOML that nobody can read."""
    with pytest.raises(GateFileError, match=r"write the rules .* under \[\[gate.rules\]\]"):
        gate_file.with_rule(raw, RULE)


def test_a_rule_in_an_inline_array_is_not_taken_out() -> None:
    with pytest.raises(GateFileError, match="take the rule a out of it by hand"):
        gate_file.without_rule(INLINE, "a")


def test_a_gate_in_one_line_is_not_added_to() -> None:
    with pytest.raises(GateFileError, match=r"set gate\.mode by hand"):
        gate_file.with_value(b"gate = {enabled = true}\n", "mode", "auto")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(max_size=20))
def test_any_reason_and_any_session_come_back(reason: str, session: str) -> None:
    session = session.encode("utf-8", "replace").decode()
    rule = Rule(id="r-9", tool_name="Bash", decision="rejected", reason=reason)
    new = gate_file.with_rule(b"# c\n", rule, session)
    found = rules_of(new, session)
    assert isinstance(found, list)
    assert found[0].get("reason", "") == reason
    assert gate_file.without_rule(new, "r-9") == b"# c\n"
