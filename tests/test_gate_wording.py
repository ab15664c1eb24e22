"""What is asked, and what is replied: never blind, never a secret, never an empty reason."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kimiaepd.gate import wording
from kimiaepd.gate.answers import OPTIONS
from kimiaepd.mapping.capture import Ceilings, gate
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, parse
from kimiaepd.mapping.payloads import read_payload
from kimiaepd.mapping.redaction import Redactor

REDACTOR = Redactor(home="/home/user", secret_names=frozenset(), secret_values=("hunter2",))
KEY = (
    "-----BEGIN PRIVATE KEY-----\n"
    + "MIIEvQIBADANBgkqhkiG9w0B\n" * 60
    + "-----END PRIVATE KEY-----"
)


def asked(tool: str, given: JSON, path: str | None = None) -> str:
    payload = read_payload({"tool_name": tool, "tool_input": given})
    return wording.prompt(payload, path, REDACTOR)


@pytest.mark.parametrize(
    ("tool", "given", "path", "expected"),
    [
        ("Bash", {"command": "rm -rf build", "timeout": 3}, None, "Bash: rm -rf build"),
        ("Bash", {"command": "cat /home/user/x"}, None, "Bash: cat ~/x"),
        ("Bash", {"command": "login --password=abcdefgh"}, None,
         "Bash: login --password=[REDACTED:secret]"),
        ("Write", {"path": "a.py", "content": "x"}, "a.py", "Write: a.py"),
        ("mcp__x", {"b": 1, "a": [True]}, None, 'mcp__x: {"a":[true],"b":1}'),
        ("Odd", {"command": 7}, None, 'Odd: {"command":7}'),
        ("Odd", {"command": " "}, None, 'Odd: {"command":" "}'),
        ("Odd", [], None, "Odd: []"),
        ("Odd", None, None, "Odd: null"),
        ("Odd", {"z": {"cwd": "/home/user/secret"}, "cwd": "/w"}, None, 'Odd: {"z":{}}'),
        ("Odd", {"token": "abc123456", "to": "x"}, None,
         'Odd: {"to":"x","token":"[REDACTED:secret]"}'),
    ],
)  # fmt: skip
def test_the_prompt_says_what_would_run(
    tool: str, given: JSON, path: str | None, expected: str
) -> None:
    assert asked(tool, given, path) == expected


def test_a_call_without_an_input_is_asked_about_all_the_same() -> None:
    assert wording.prompt(read_payload({"tool_name": "Odd"}), None, REDACTOR) == "Odd: (no input)"
    deep: JSON = 0
    for _ in range(200):
        deep = [deep]
    assert asked("Odd", deep) == "Odd: (an input too deep or too large to show)"


@pytest.mark.parametrize("size", [1_900, 1_994, 1_995, 3_000, 16_384, 30_000, 1_000_000])
def test_a_long_one_is_cut_and_says_how_long_it_is(size: int) -> None:
    command = "echo " + "x" * (size - 5)
    said = asked("Bash", {"command": command})
    assert len(said) <= wording.LONGEST_PROMPT
    if size + 6 <= wording.LONGEST_PROMPT:
        assert said == f"Bash: {command}"
    else:
        assert said.startswith("Bash: echo xxx")
        assert said.endswith(f" [{size + 6} characters in all]")


@given(st.integers(0, 2_100), st.integers(0, 20_000))
def test_no_cut_bares_half_a_secret(before: int, after: int) -> None:
    said = asked("Bash", {"command": f"{'y' * before} {KEY} hunter2 {'z' * after}"})
    assert "MIIEv" not in said
    assert "hunter2" not in said
    assert len(said) <= wording.LONGEST_PROMPT


@given(st.integers(15_000, 17_000))
def test_nor_does_the_end_of_what_is_looked_at(before: int) -> None:
    """What comes before shrinks to nothing, so that the edge is what is shown."""
    shrinks = f"{KEY}\n" * (before // len(KEY))
    assert "MIIEv" not in asked("Bash", {"command": f"{shrinks}{KEY}"})


@given(st.text(max_size=3_000), st.dictionaries(st.text(max_size=5), st.text(max_size=900)))
def test_a_prompt_fits_and_rides_whatever_the_call_is(command: str, other: dict[str, str]) -> None:
    members: dict[str, JSON] = dict(other)
    inputs: list[JSON] = [{"command": command}, members]
    for given_input in inputs:
        payload = read_payload({"tool_name": "T", "tool_input": given_input})
        said = wording.prompt(payload, None, REDACTOR)
        assert said.startswith("T: ")
        draft = wording.request(payload, said, OPTIONS["two"], "2026-01-01T00:00:00.000Z")
        data = gate(draft, Capture.REDACTED, REDACTOR)
        assert data
        assert data["prompt"] == said, "what is redacted twice is redacted once"
        assert len(said) <= wording.LONGEST_PROMPT


def test_below_redacted_nothing_of_the_call_rides() -> None:
    payload = read_payload({"tool_name": "Bash", "tool_input": {"command": "rm -rf build"}})
    draft = wording.request(payload, "Bash: rm -rf build", OPTIONS["four"], "2026-01-01T00:00:00Z")
    ceilings = Ceilings(Capture.METADATA, {})
    assert gate(draft, ceilings.of(draft.type), REDACTOR) == {
        "kind": "permission",
        "prompt": "kimi-code requests permission: Bash",
        "options": [
            {"id": "allow", "label": "1"}, {"id": "allow_session", "label": "2"},
            {"id": "deny", "label": "3"}, {"id": "cancel", "label": "4"},
        ],
        "expires_at": "2026-01-01T00:00:00Z",
        "respond_via": ["control"],
    }  # fmt: skip
    assert gate(draft, Capture.NONE, REDACTOR) is None


def test_a_denial_is_what_the_vendor_understands() -> None:
    assert wording.denial("no \ud800 way") == (
        b'{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny",'
        b'"permissionDecisionReason":"no \xef\xbf\xbd way"}}'
    )


@example(" \n")
@given(st.none() | st.text(max_size=20) | st.text(min_size=4_000, max_size=9_000))
def test_a_denial_has_a_reason_that_is_not_empty(reason: str | None) -> None:
    said = parse(wording.denial(reason))
    assert isinstance(said, dict)
    output = said["hookSpecificOutput"]
    assert isinstance(output, dict)
    words = output["permissionDecisionReason"]
    assert isinstance(words, str)
    assert words.strip()
    assert len(words) <= wording.LONGEST_REASON
    assert b"\n" not in wording.denial(reason)
