"""What becomes of a call: every mode, decision and matcher, and what tries to trick them."""

from __future__ import annotations

import itertools
import posixpath
from typing import Literal

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from gate_corpus import BAD_PATTERNS, BAD_PREFIXES, HOME, NOT_UNDERSTOOD, PATHS, PLAIN
from kimiaepd.mapping.json_value import JSON
from kimiaepd.mapping.payloads import ABSENT, Absent
from kimiaepd.policy import (
    ALWAYS,
    Call,
    Matcher,
    Mode,
    Outcome,
    Policy,
    Rule,
    SessionPolicy,
    allow_session_rule,
    decide,
    path_argument,
)

Kind = Literal["pass", "hold", "deny"]

PREFIX = Matcher("command_prefix", "git status")
GLOB = Matcher("path_glob", "src/**")
EXACT = Matcher("exact_input", {"command": "git status"})
EXACT_PATH = Matcher("exact_input", {"path": "src/a"})


def bash(command: JSON, **more: JSON) -> Call:
    return Call("Bash", {"command": command, **more}, "s", HOME)


def on_path(path: JSON, real_path: str | None, tool: str = "Write") -> Call:
    real_cwd = HOME if real_path else None  # who cannot look at the one looks at neither
    return Call(tool, {"path": path, "content": "x"}, "s", HOME, real_path, real_cwd)


def rule(decision: Outcome, matcher: Matcher = ALWAYS, tool: str = "*") -> Rule:
    return Rule("r-1", tool, decision, matcher)


def becomes(call: Call, mode: Mode, *rules: Rule, session_rules: tuple[Rule, ...] = ()) -> Kind:
    verdict = decide(Policy(mode=mode, rules=rules), call, session_rules)
    assert verdict.reason.strip()
    return verdict.kind


WITHOUT: dict[Mode, Kind] = {Mode.MANUAL: "hold", Mode.AUTO: "hold", Mode.YOLO: "pass"}
"""What becomes of a gated call that no rule is about."""

MATCHING = {
    "always": (ALWAYS, bash("git status")),
    "command_prefix": (PREFIX, bash("git status -s")),
    "path_glob": (GLOB, on_path("src/a", f"{HOME}/src/a")),
    "exact_input": (EXACT, bash("git status")),
}
NOT_MATCHING = {
    "command_prefix": (PREFIX, bash("git push")),
    "path_glob": (GLOB, on_path("doc/a", f"{HOME}/doc/a")),
    "exact_input": (EXACT, bash("git status -s")),
}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("kind", MATCHING)
def test_a_rejecting_rule_denies_in_every_mode(mode: Mode, kind: str) -> None:
    matcher, call = MATCHING[kind]
    assert becomes(call, mode, rule("rejected", matcher)) == "deny"
    assert becomes(call, mode, session_rules=(rule("rejected", matcher),)) == "deny"


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("kind", MATCHING)
def test_a_stored_approving_rule_lets_pass_in_auto_alone(mode: Mode, kind: str) -> None:
    matcher, call = MATCHING[kind]
    wanted: Kind = "hold" if mode is Mode.MANUAL else "pass"
    assert becomes(call, mode, rule("approved", matcher)) == wanted


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("kind", MATCHING)
def test_what_was_allowed_for_the_session_passes_in_every_mode(mode: Mode, kind: str) -> None:
    matcher, call = MATCHING[kind]
    assert becomes(call, mode, session_rules=(rule("approved", matcher),)) == "pass"


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("kind", NOT_MATCHING)
@pytest.mark.parametrize("decision", ["approved", "rejected"])
def test_a_rule_that_does_not_match_changes_nothing(
    mode: Mode, kind: str, decision: Outcome
) -> None:
    matcher, call = NOT_MATCHING[kind]
    assert becomes(call, mode, rule(decision, matcher)) == WITHOUT[mode]
    assert becomes(call, mode, session_rules=(rule(decision, matcher),)) == WITHOUT[mode]


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("kind", MATCHING)
def test_rejected_wins_whatever_the_order(mode: Mode, kind: str) -> None:
    matcher, call = MATCHING[kind]
    approved, rejected = rule("approved"), rule("rejected", matcher)
    assert becomes(call, mode, approved, rejected) == "deny"
    assert becomes(call, mode, rejected, approved) == "deny"
    assert becomes(call, mode, rejected, session_rules=(approved,)) == "deny"


@pytest.mark.parametrize("mode", Mode)
def test_without_rules_the_mode_decides(mode: Mode) -> None:
    assert becomes(bash("ls"), mode) == WITHOUT[mode]


@pytest.mark.parametrize(
    ("tools", "tool", "is_gated"),
    [
        (("*",), "Anything", True),
        (("Bash",), "Bash", True),
        (("Bash",), "bash", False),
        (("Bash",), "BashOutput", False),
        (("Bash", "mcp__*"), "mcp__github__push", True),
        (("mcp__*",), "Bash", False),
        ((), "Bash", False),
    ],
)
def test_only_gated_tools_are_decided_about(
    tools: tuple[str, ...], tool: str, *, is_gated: bool
) -> None:
    call = Call(tool, {}, "s", HOME)
    policy = Policy(tools=tools, rules=(rule("rejected"),))
    assert decide(policy, call).kind == ("deny" if is_gated else "pass")
    assert decide(evolve(policy, rules=()), call).kind == ("hold" if is_gated else "pass")


@pytest.mark.parametrize("tool", ["Bash", "Ba*", "*", "B[a]sh"])
def test_a_rule_names_its_tools_by_a_glob(tool: str) -> None:
    assert becomes(bash("ls"), Mode.YOLO, rule("rejected", tool=tool)) == "deny"
    assert becomes(Call("Xash", {}, "s"), Mode.YOLO, rule("rejected", tool="B*")) == "pass"


def test_a_denial_says_which_rule_and_why() -> None:
    said = evolve(rule("rejected"), reason="  not here ")
    verdict = decide(Policy(rules=(said,)), bash("ls"))
    assert (verdict.rule, verdict.reason) == (said, "not here")
    for nothing in (None, "", " \n"):
        verdict = decide(Policy(rules=(evolve(said, reason=nothing),)), bash("ls"))
        assert "r-1" in verdict.reason


# --- sessions ---


def test_a_session_has_its_own_mode_and_rules() -> None:
    own = SessionPolicy(Mode.AUTO, (rule("approved", PREFIX),))
    policy = Policy(sessions={"s": own})
    assert decide(policy, bash("git status")).kind == "pass"
    assert decide(policy, evolve(bash("git status"), session="t")).kind == "hold"
    assert policy.mode_of("s") is Mode.AUTO
    assert policy.mode_of("t") is Mode.MANUAL


def test_a_session_without_a_mode_of_its_own_has_everybody_s() -> None:
    own = SessionPolicy(rules=(rule("approved", PREFIX),))
    assert decide(Policy(Mode.AUTO, sessions={"s": own}), bash("git status")).kind == "pass"
    assert decide(Policy(Mode.MANUAL, sessions={"s": own}), bash("git status")).kind == "hold"


def test_rules_for_everything_apply_in_a_session_too() -> None:
    policy = Policy(rules=(rule("rejected", PREFIX),), sessions={"s": SessionPolicy(Mode.YOLO)})
    assert decide(policy, bash("git status")).kind == "deny"
    assert decide(policy, bash("git push")).kind == "pass"


@pytest.mark.parametrize("tool", ["Bash", "mcp__[x]?*", "a]b", "", "a\nb"])
def test_allow_session_is_about_this_tool_and_no_other(tool: str) -> None:
    call = Call(tool, {"command": "a; b"}, "s", HOME)
    made = allow_session_rule(call, rule_id="01J", created_at="2026-01-01T00:00:00Z")
    assert (made.created_by, made.decision) == ("allow_session", "approved")
    for mode in Mode:
        assert becomes(call, mode, session_rules=(made,)) == "pass"
    other = evolve(call, tool_name="mcp__xyz")
    assert becomes(other, Mode.MANUAL, session_rules=(made,)) == "hold"


# --- commands ---


@pytest.mark.parametrize(("command", "approved", "rejected"), PLAIN)
def test_whole_words_decide_about_a_plain_command(
    command: str, approved: Kind, rejected: Kind
) -> None:
    assert becomes(bash(command), Mode.AUTO, rule("approved", PREFIX)) == approved
    assert becomes(bash(command), Mode.YOLO, rule("rejected", PREFIX)) == rejected


@pytest.mark.parametrize("command", NOT_UNDERSTOOD, ids=lambda command: ascii(command)[:40])
def test_a_command_that_cannot_be_read_is_held(command: str) -> None:
    call = bash(command)
    for approving in (PREFIX, ALWAYS, Matcher("command_prefix", "git")):
        assert becomes(call, Mode.AUTO, rule("approved", approving)) == "hold"
    assert becomes(call, Mode.YOLO) == "pass"
    for mode in Mode:
        assert becomes(call, mode, rule("rejected", PREFIX)) == "hold"
        assert becomes(call, mode, rule("rejected", PREFIX, tool="Bash")) == "hold"
    other = evolve(call, tool_name="Run")
    assert becomes(other, Mode.YOLO, rule("rejected", PREFIX)) == "pass"


def test_only_the_exact_input_lets_a_command_pass_that_cannot_be_read() -> None:
    call = bash("git status && git push")
    exact = rule("approved", Matcher("exact_input", {"command": "git status && git push"}))
    assert becomes(call, Mode.AUTO, exact) == "pass"
    assert becomes(call, Mode.AUTO, exact, rule("rejected", PREFIX)) == "hold"


def test_a_denial_comes_before_a_doubt() -> None:
    rules = (rule("rejected", PREFIX), rule("rejected", ALWAYS))
    assert becomes(bash("a; b"), Mode.YOLO, *rules) == "deny"


@pytest.mark.parametrize("command", [None, 3, ["git", "status"], {"git": "status"}, True])
def test_a_command_that_is_no_text_cannot_be_read(command: JSON) -> None:
    assert becomes(bash(command), Mode.AUTO, rule("approved", PREFIX)) == "hold"
    assert becomes(bash(command), Mode.YOLO, rule("rejected", PREFIX)) == "hold"


def test_the_same_words_in_another_directory_are_another_command() -> None:
    approved = rule("approved", PREFIX)
    assert becomes(bash("git status", cwd="/evil"), Mode.AUTO, approved) == "hold"
    assert becomes(bash("git status", cwd=HOME), Mode.AUTO, approved) == "pass"
    assert becomes(bash("git status", cwd="/evil"), Mode.YOLO, rule("rejected", PREFIX)) == "deny"


# --- paths ---


@pytest.mark.parametrize(
    ("pattern", "path", "real_path", "approved", "rejected"),
    PATHS,
    ids=lambda value: ascii(value)[:30],
)
def test_a_path_lies_where_a_pattern_says_or_does_not(
    pattern: str, path: str, real_path: str | None, approved: Kind, rejected: Kind
) -> None:
    matcher = Matcher("path_glob", pattern)
    for tool in ("Read", "Write", "Edit"):
        call = on_path(path, real_path, tool)
        assert becomes(call, Mode.AUTO, rule("approved", matcher)) == approved
        assert becomes(call, Mode.YOLO, rule("rejected", matcher)) == rejected


@pytest.mark.parametrize("cwd", [None, "", "relative"])
def test_without_a_directory_only_absolute_is_understood(cwd: str | None) -> None:
    far = Matcher("path_glob", "/etc/**")
    known = evolve(on_path("/etc/x", "/etc/x"), cwd=cwd, real_cwd=None)
    assert becomes(known, Mode.AUTO, rule("approved", far)) == "pass"
    assert becomes(known, Mode.AUTO, rule("approved", GLOB)) == "hold"
    assert becomes(known, Mode.YOLO, rule("rejected", GLOB)) == "hold"
    relative = evolve(on_path("x", "/etc/x"), cwd=cwd, real_cwd=None)
    assert becomes(relative, Mode.AUTO, rule("approved", far)) == "hold"


def test_a_directory_s_name_is_no_pattern() -> None:
    odd = "/w/[a]*"
    call = evolve(on_path("src/a", "/w/ab/src/a"), cwd=odd, real_cwd=odd)
    assert becomes(call, Mode.AUTO, rule("approved", GLOB)) == "hold"
    there = evolve(call, real_path="/w/[a]*/src/a")
    assert becomes(there, Mode.AUTO, rule("approved", GLOB)) == "pass"


@pytest.mark.parametrize(
    ("pattern", "path", "approved", "rejected"),
    [
        ("secret/**", "secret/x", "pass", "deny"),
        ("/link/secret/**", "secret/x", "hold", "deny"),
        ("/link/secret/**", "/link/secret/x", "hold", "deny"),
        ("/link/**", f"{HOME}/secret/x", "hold", "pass"),
        (f"{HOME}/secret/**", "secret/x", "pass", "deny"),
        (f"{HOME}/secret/**", "/link/secret/x", "hold", "deny"),
        ("secret/**", f"{HOME}/secret/x", "pass", "deny"),
        ("secret/**", "/link/secret/x", "pass", "deny"),
        ("other/**", "secret/x", "hold", "pass"),
    ],
)
def test_a_directory_that_is_a_link_has_two_names(
    pattern: str, path: str, approved: Kind, rejected: Kind
) -> None:
    """A denial goes by either; an approval by where the path really leads as well."""
    call = evolve(on_path(path, f"{HOME}/secret/x"), cwd="/link")
    matcher = Matcher("path_glob", pattern)
    assert becomes(call, Mode.AUTO, rule("approved", matcher)) == approved
    assert becomes(call, Mode.YOLO, rule("rejected", matcher)) == rejected


def test_a_tool_without_a_path_is_none_of_a_path_rule_s_business() -> None:
    assert becomes(bash("cat src/a"), Mode.YOLO, rule("rejected", GLOB)) == "pass"
    assert becomes(bash("cat src/a"), Mode.AUTO, rule("approved", GLOB)) == "hold"


def test_a_search_without_a_path_is_in_the_session_s_directory() -> None:
    search = Call("Grep", {"pattern": "x"}, "s", HOME, HOME, HOME)
    assert path_argument(search) == "."
    assert becomes(search, Mode.YOLO, rule("rejected", Matcher("path_glob", "**"))) == "deny"
    assert becomes(search, Mode.YOLO, rule("rejected", GLOB)) == "pass"


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (on_path("a", None), "a"),
        (on_path("../a", None), "../a"),
        (on_path(3, None), None),
        (on_path(None, None), None),
        (Call("Write", ABSENT, "s"), None),
        (Call("Write", ["a"], "s"), None),
        (bash("ls"), None),
        (Call("mcp__x", {"path": "a"}, "s"), None),
    ],
)
def test_which_path_a_caller_must_look_at(call: Call, path: str | None) -> None:
    assert path_argument(call) == path


# --- inputs ---


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": True}, {"a": 1}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": None}, {}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": "é"}, {"a": "e\u0301"}, False),
        ({"a": "x"}, {"a": "x "}, False),
        ("null", None, False),
        (None, None, True),
        (None, ABSENT, False),
    ],
)
def test_an_input_is_exactly_this_one(one: JSON, other: JSON | Absent, *, is_equal: bool) -> None:
    call, matcher = Call("T", other, "s"), Matcher("exact_input", one)
    assert becomes(call, Mode.AUTO, rule("approved", matcher)) == ("pass" if is_equal else "hold")
    assert becomes(call, Mode.YOLO, rule("rejected", matcher)) == ("deny" if is_equal else "pass")


# --- rules that could not work ---


@pytest.mark.parametrize("prefix", [*BAD_PREFIXES, None, 3, ["git"]])
def test_a_prefix_is_plain_words(prefix: JSON) -> None:
    with pytest.raises(ValueError, match="must be plain words"):
        Matcher("command_prefix", prefix)


@pytest.mark.parametrize("pattern", [*BAD_PATTERNS, None, 3, ["a"]], ids=lambda x: ascii(x)[:20])
def test_a_pattern_is_a_path(pattern: JSON) -> None:
    with pytest.raises(ValueError, match=r"must be|cannot have"):
        Matcher("path_glob", pattern)


def test_always_has_no_value() -> None:
    with pytest.raises(ValueError, match="has no value"):
        Matcher("always", "x")


def test_a_matcher_needs_a_tool_that_has_what_it_looks_at() -> None:
    with pytest.raises(ValueError, match="command_prefix is for Bash"):
        Rule("r", "Write", "approved", PREFIX)
    with pytest.raises(ValueError, match="path_glob is for Read, Write"):
        Rule("r", "Bash", "approved", GLOB)


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 65, "ä", "a\n"])
def test_an_id_is_short_and_plain(name: str) -> None:
    with pytest.raises(ValueError, match="id must be"):
        Rule(name, "*", "approved")


# --- any JSON ---

JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("git status"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["command", "path", "cwd", "x"]), inner, max_size=4)
    ),
    max_leaves=6,
)
DECISIONS: tuple[Outcome, ...] = ("approved", "rejected")
RULES = tuple(
    Rule(f"r-{number}", "*", decision, matcher)
    for number, (decision, matcher) in enumerate(
        itertools.product(DECISIONS, (PREFIX, GLOB, EXACT, EXACT_PATH, Matcher("path_glob", "/**")))
    )
)


@given(
    tool=st.sampled_from(["Bash", "Write", "Grep", "X"]) | st.text(),
    given_input=JSONS | st.just(ABSENT),
    cwd=st.none() | st.text() | st.just(HOME),
    real_path=st.none() | st.text() | st.just(f"{HOME}/src/a"),
    mode=st.sampled_from(Mode),
    rules=st.lists(st.sampled_from(RULES), unique_by=lambda one: one.id),
    asked=st.lists(st.sampled_from(RULES), max_size=2),
)
def test_any_call_has_a_verdict(
    *,
    tool: str,
    given_input: JSON | Absent,
    cwd: str | None,
    real_path: str | None,
    mode: Mode,
    rules: list[Rule],
    asked: list[Rule],
) -> None:
    call = Call(tool, given_input, "s", cwd, real_path)
    verdict = decide(Policy(mode=mode, rules=tuple(rules)), call, asked)
    assert verdict.reason
    if verdict.kind == "deny":
        assert verdict.rule
        assert verdict.rule.decision == "rejected"
    if verdict.kind == "pass" and mode is not Mode.YOLO:
        assert verdict.rule
        assert verdict.rule.decision == "approved"
        assert mode is Mode.AUTO or verdict.rule in asked


@given(st.text("ab*?[]!-^&|~/.", max_size=12), st.text("ab/.-[]*", max_size=12))
def test_any_pattern_can_be_held_against_any_path(pattern: str, path: str) -> None:
    """Without an error or a warning, whatever stands in its brackets."""
    becomes(Call(path, {}, "s"), Mode.AUTO, rule("rejected", tool=pattern))
    try:
        matcher = Matcher("path_glob", pattern)
    except ValueError:
        return
    real = f"{HOME}/{path}"
    denied = becomes(on_path(path, real), Mode.YOLO, rule("rejected", matcher))
    passed = becomes(on_path(path, real), Mode.AUTO, rule("approved", matcher))
    assert passed == "hold" or denied == "deny"


@given(st.lists(st.sampled_from(["a", "..", ".", "", "b.py", ".x"]), max_size=8))
def test_a_pattern_that_matches_everything_below_matches_nothing_above(parts: list[str]) -> None:
    path = "/".join(parts)
    call = on_path(path, posixpath.normpath(f"{HOME}/{path}"))
    below = call.real_path == HOME or f"{call.real_path}".startswith(f"{HOME}/")
    verdict = becomes(call, Mode.AUTO, rule("approved", Matcher("path_glob", "**")))
    assert verdict == "hold" or below


def test_an_input_nested_beyond_all_reason_has_a_verdict() -> None:
    deep: JSON = 1
    for _ in range(50_000):
        deep = [deep]
    call = Call("Bash", {"command": deep}, "s", HOME)
    assert becomes(call, Mode.AUTO, rule("approved", EXACT)) == "hold"


@given(st.text("git status;|&\n`$()<>*?'\"\\ \t=~#", max_size=20))
def test_no_command_beyond_plain_words_passes_by_prefix(rest: str) -> None:
    call = bash(f"git status{rest}")
    verdict = decide(Policy(Mode.AUTO, rules=(rule("approved", PREFIX),)), call)
    quoted = "'" in rest or '"' in rest
    if verdict.kind == "pass" and not quoted:
        assert not set(rest) & set(";|&\n`$()<>*?\\#")
