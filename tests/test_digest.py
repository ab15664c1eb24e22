"""Digests equal JavaScript's, for any JSON value at any depth."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kimiaepd.mapping.digest import canonical, digest
from kimiaepd.mapping.json_value import JSON, parse
from node_judge import NodeJudge

CANONICAL_IN_JAVASCRIPT = """
(text) => {
  const write = (value) => {
    if (Array.isArray(value)) return "[" + value.map(write).join(",") + "]";
    if (value === null || typeof value !== "object") return JSON.stringify(value);
    const member = (key) => JSON.stringify(key) + ":" + write(value[key]);
    return "{" + Object.keys(value).sort().map(member).join(",") + "}";
  };
  return write(JSON.parse(text));
}
"""


@pytest.fixture(scope="module")
def javascript() -> Iterator[NodeJudge]:
    with NodeJudge(CANONICAL_IN_JAVASCRIPT) as judge:
        yield judge


# JSON texts rather than values, so that each side reads with its own parser.

ODD_NUMBERS = """
    -0 -0.0 0e9 1e400 -1e400 1e21 1e20 123e18 999999999999999999999 1e-6 1e-7 1.5e-6 5e-324 1E5
    9007199254740992 9007199254740993 -9007199254740993 9223372036854775807 18446744073709551616
    1.7976931348623157e308 1.7976931348623159e308 0.1 4.35 2.2250738585072014e-308
"""
numbers = st.one_of(
    st.sampled_from(ODD_NUMBERS.split()),
    st.integers(-(10**25), 10**25).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)
ODD_CHARACTERS = '\x00\x1f\x7f\b\f"\\/\u2028\ud83d\ude00\uffff\U00010000\U0010ffff\ue000\xe9'
strings = st.one_of(
    st.text(st.characters(exclude_categories=())), st.text(ODD_CHARACTERS, max_size=6)
)
# No backslash in a key: once V8 of Node 24 has read {"": 1, "\\\\": 2}, it takes {"": 1, "\\"": 2}
# for the same, and the judge is wrong.
keys = st.one_of(
    strings.map(lambda key: key.replace("\\", "")),
    st.sampled_from(["__proto__", "10", "9", "01", "-1", "constructor", ""]),
)
quoted = st.builds(json.dumps, strings)
scalars = st.one_of(numbers, quoted, st.sampled_from(["null", "true", "false"]))


def _object(members: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{json.dumps(key)} : {text}" for key, text in members) + "}"


texts = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5).map(lambda parts: f"[{' , '.join(parts)}]"),
        st.lists(st.tuples(keys, inner), max_size=6).map(_object),
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@example('{"\\ud83d": 1, "\\ud83d\\ude00": 2, "\\uffff": 3, "\\ue000": 4, "\\udbff": 5}')
@example('{"\\\\": 1, "/": 2, "]": 3}')
@example('{"10": 1, "9": 2, "__proto__": {"b": 1, "a": 2}, "__proto__": 3}')
@given(text=texts)
def test_the_canonical_form_is_javascripts(javascript: NodeJudge, text: str) -> None:
    ours = canonical(parse(text.encode()))
    assert ours.decode() == javascript.ask(text)


@settings(max_examples=300, deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
@example(1e21)
@example(1e-7)
@example(-1.5e-7)
@example(123456789012345680000.0)
def test_a_double_prints_as_in_javascript(javascript: NodeJudge, value: float) -> None:
    assert canonical(value).decode() == javascript.ask(repr(value))


@pytest.mark.parametrize("exponent", range(-9, 24))
@pytest.mark.parametrize("digits", ["1", "1.5", "-1", "-1.2345678901234567", "9.999999999999999"])
def test_the_exponent_begins_where_javascript_begins_it(
    javascript: NodeJudge, digits: str, exponent: int
) -> None:
    text = f"{digits}e{exponent}"
    assert canonical(float(text)).decode() == javascript.ask(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"command": "echo oracle-test"}, "eef5fe32898c894ee12a2d389d4d8096"),
        ("oracle-test\n", "0e6ed1271cd74959ce2d21fed82aa351"),
    ],
)
def test_a_digest_is_half_the_sha_256_of_the_canonical_form(value: JSON, expected: str) -> None:
    assert digest(value) == expected
    assert hashlib.sha256(canonical(value)).hexdigest().startswith(expected)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (10**400, b"null"),  # no text that `parse` read yields one
        (float("nan"), b"null"),
        (float("-inf"), b"null"),
        (2**53 + 1, b"9007199254740992"),
        (["\ud83d", "\ude00"], b'["\\ud83d","\\ude00"]'),
        ("\ud83d\ude00", "\U0001f600".encode().join([b'"', b'"'])),
        ("\ud83d\ud83d\ude00", b'"\\ud83d' + "\U0001f600".encode() + b'"'),
        ([[], {}, [[]], {"": {}}], b'[[],{},[[]],{"":{}}]'),
    ],
)
def test_a_value_built_by_hand_digests_too(value: JSON, form: bytes) -> None:
    assert canonical(value) == form


def test_depth_costs_no_recursion() -> None:
    value: JSON = "bottom"
    for _ in range(50_000):
        value = [{"a": value}]
    form = canonical(value)
    assert form == b'[{"a":' * 50_000 + b'"bottom"' + b"}]" * 50_000


def test_an_output_that_the_vendor_cut_in_an_emoji_digests_as_in_javascript(
    javascript: NodeJudge,
) -> None:
    cut = "a" * 1999 + "\ud83d"
    assert canonical(cut).decode() == javascript.ask(json.dumps(cut))


@pytest.mark.shared
def test_the_standards_fixtures_have_these_digests(shared: Path) -> None:
    fixtures = json.loads((shared / "aep/fixtures/mapping-kimi-code.json").read_bytes())
    checked = 0
    for hook in fixtures["hooks"].values():
        data = hook.get("expected", {}).get("data", {})
        for name, source in (("args_digest", "tool_input"), ("result_digest", "tool_output")):
            if name in data:
                assert digest(hook["input"][source]) == data[name]
                checked += 1
    assert checked >= 2


@pytest.mark.shared
def test_every_captured_payload_digests_as_in_javascript(
    shared: Path, javascript: NodeJudge
) -> None:
    checked = 0
    for file in sorted((shared / "captures/hooks").glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            text = json.dumps(json.loads(line)["stdin"])
            assert canonical(parse(text.encode())).decode() == javascript.ask(text)
            checked += 1
    assert checked
