"""Who claims what: declared as it came, one entry a claim, and no command to two of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kimiaepd.collector.roster import (
    LONGEST_NAME,
    MOST_DECLARED,
    Refusal,
    Roster,
)
from kimiaepd.mapping.json_value import JSON, JSONObject

RESPOND = "control.attention.respond"
MORE: JSONObject = {"kept": [1, None]}
CONTROL: JSONObject = {"accepts": [RESPOND], "ack_window_ms": 10_000, "x.more": MORE}


def hello(agent: str = "kimi-code", *, role: str = "emitter", **capabilities: JSON) -> JSONObject:
    declared: JSONObject = {"control": CONTROL, "emits": ["session"]}
    return {
        "type": "hello",
        "versions": ["0.1"],
        "role": role,
        "identity": {"agent": agent, "instance": "host/1", "card": None},
        "capabilities": declared | capabilities,
    }


def command(kind: str = RESPOND, session: JSON = "s") -> JSONObject:
    return {"type": kind, "session": session, "id": "c", "source": "test://sender"}


def roster_of(*connections: str, session: str = "s") -> Roster[str]:
    roster: Roster[str] = Roster()
    for name in connections:
        assert roster.joined(name, hello(name))
        assert roster.claimed(name, session)
    return roster


def code(found: str | Refusal) -> str:
    assert isinstance(found, Refusal)
    return found.code


# --- entries -----------------------------------------------------------------------------------


def test_an_entry_says_what_was_declared_and_nothing_else() -> None:
    assert roster_of("one").entries() == [
        {
            "session": "s",
            "agent": "one",
            "instance": "host/1",
            "control": CONTROL,
            "emits": ["session"],
        }
    ]


def test_what_was_not_declared_is_absent() -> None:
    roster: Roster[str] = Roster()
    roster.joined("bare", {"role": "both", "identity": {"agent": "bare"}})
    roster.claimed("bare", "s")
    assert roster.entries() == [{"session": "s", "agent": "bare"}]


@pytest.mark.parametrize("declared", [None, "all", [], {"accepts": None}, {"accepts": "control.*"}])
def test_a_control_block_that_makes_no_sense_is_said_as_it_is_and_accepts_nothing(
    declared: JSON,
) -> None:
    roster: Roster[str] = Roster()
    roster.joined("one", hello(control=declared))
    roster.claimed("one", "s")
    (entry,) = roster.entries()
    assert entry["control"] == declared
    assert code(roster.route(command(), is_authenticated=True)) == "unsupported"


def test_one_entry_for_each_claim_and_a_tie_is_seen() -> None:
    roster = roster_of("one", "two")
    roster.claimed("one", "s")
    roster.claimed("one", "t")
    assert [(entry["session"], entry["agent"]) for entry in roster.entries()] == [
        ("s", "one"),
        ("t", "one"),
        ("s", "two"),
    ]


def test_who_has_left_claims_nothing_and_comes_back_by_a_hello_alone() -> None:
    roster = roster_of("one")
    roster.left("one")
    roster.left("one")
    assert roster.entries() == []
    assert not roster.claimed("one", "s")
    assert code(roster.route(command(), is_authenticated=True)) == "no-route"
    roster.joined("one", hello("again"))
    assert roster.entries() == []
    assert roster.claimed("one", "s")
    assert roster.entries()[0]["agent"] == "again"


@pytest.mark.parametrize("role", ["consumer", "observer", None])
def test_who_is_no_emitter_claims_nothing(role: str | None) -> None:
    roster: Roster[str] = Roster()
    assert not roster.joined("one", hello() | {"role": role})
    assert not roster.claimed("one", "s")
    assert roster.entries() == []


# --- routing -----------------------------------------------------------------------------------


def test_a_command_goes_to_its_only_claimant() -> None:
    roster = roster_of("one")
    roster.joined("two", hello("two"))
    roster.claimed("two", "t")
    assert roster.route(command(), is_authenticated=True) == "one"
    assert roster.route(command(session="t"), is_authenticated=True) == "two"


def test_control_needs_authentication_whatever_else_is_wrong() -> None:
    assert code(roster_of("one").route(command(), is_authenticated=False)) == "unauthorized"
    assert code(roster_of().route(command("control.pause"), is_authenticated=False)) == (
        "unauthorized"
    )


def test_two_claimants_get_nothing_until_one_of_them_is_left() -> None:
    roster = roster_of("one", "two")
    assert code(roster.route(command(), is_authenticated=True)) == "ambiguous"
    roster.left("one")
    assert roster.route(command(), is_authenticated=True) == "two"


def test_only_what_is_listed_is_accepted_word_for_word() -> None:
    roster: Roster[str] = Roster()
    roster.joined("one", hello(control={"accepts": ["control.*", "x.acme.control.go", 7]}))
    roster.claimed("one", "s")
    assert roster.route(command("x.acme.control.go"), is_authenticated=True) == "one"
    assert code(roster.route(command("control.pause"), is_authenticated=True)) == "unsupported"


def test_who_declared_no_control_accepts_nothing() -> None:
    roster: Roster[str] = Roster()
    declared = hello()
    declared["capabilities"] = {}
    roster.joined("one", declared)
    roster.claimed("one", "s")
    assert code(roster.route(command(), is_authenticated=True)) == "unsupported"


@pytest.mark.parametrize("session", [None, 1, ["s"], {"s": 1}, "t"])
def test_a_session_that_nobody_claims_has_no_route(session: JSON) -> None:
    assert code(roster_of("one").route(command(session=session), is_authenticated=True)) == (
        "no-route"
    )


# --- bounds ------------------------------------------------------------------------------------


def test_a_declaration_too_deep_to_write_claims_nothing() -> None:
    deep: JSON = []
    for _ in range(100_000):
        deep = [deep]
    roster: Roster[str] = Roster()
    assert not roster.joined("one", hello(emits=deep))
    while isinstance(deep, list) and deep:  # what is so deep is taken apart with care
        deep = deep.pop()


def sessions(roster: Roster[str]) -> list[JSON]:
    return [entry["session"] for entry in roster.entries()]


def test_too_many_claims_cost_the_connection_its_own_that_is_used_least() -> None:
    roster: Roster[str] = Roster(most_each=2)
    roster.joined("one", hello())
    for session in ("a", "b", "a", "c"):
        assert roster.claimed("one", session)
    assert sessions(roster) == ["a", "c"]
    assert (roster.claims, roster.dropped) == (2, 1)


def test_a_full_roster_takes_from_nobody_but_who_claims() -> None:
    roster: Roster[str] = Roster(most=2)
    for name in ("one", "two"):
        roster.joined(name, hello(name))
    assert [roster.claimed("one", "a"), roster.claimed("one", "b")] == [True, True]
    assert not roster.claimed("two", "c")
    assert roster.claimed("one", "d")
    assert sessions(roster) == ["b", "d"]
    roster.left("one")
    assert roster.claimed("two", "c")


def test_a_name_or_a_declaration_without_measure_claims_nothing() -> None:
    roster = roster_of("one")
    assert not roster.claimed("one", "s" * (LONGEST_NAME + 1))
    assert roster.claimed("one", "s" * LONGEST_NAME)
    assert not roster.joined("two", hello(emits=["x" * MOST_DECLARED]))
    assert not roster.claimed("two", "s")


# --- against a model ---------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
hellos = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("role", "identity", "capabilities"), anything)
)


@given(hellos, anything, anything)
def test_nothing_that_is_said_or_commanded_raises(
    said: JSONObject, kind: JSON, session: JSON
) -> None:
    roster: Roster[str] = Roster()
    roster.joined("one", said | {"role": "emitter"})
    roster.claimed("one", "s")
    for addressed in (session, "s"):
        roster.route({"type": kind, "session": addressed}, is_authenticated=True)
    assert len(roster.entries()) == 1


Model: TypeAlias = dict[str, OrderedDict[str, None]]
names, those = st.sampled_from(["one", "two", "three"]), st.sampled_from("abcd")


class Claiming(RuleBasedStateMachine):
    """Any order of joining, claiming and leaving, beside lists of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.roster: Roster[str] = Roster(most=5, most_each=3)
        self.model: Model = {}

    @rule(name=names)
    def join(self, name: str) -> None:
        self.roster.joined(name, hello(name))
        self.model.pop(name, None)
        self.model[name] = OrderedDict()

    @rule(name=names)
    def leave(self, name: str) -> None:
        self.roster.left(name)
        self.model.pop(name, None)

    @rule(name=names, session=those)
    def claim(self, name: str, session: str) -> None:
        taken = self.roster.claimed(name, session)
        mine = self.model.get(name)
        if mine is None:
            assert not taken
            return
        others = sum(map(len, self.model.values()))
        if session not in mine and (len(mine) == 3 or others == 5) and mine:
            mine.popitem(last=False)
            others -= 1
        if session in mine or others < 5:
            mine[session] = None
            mine.move_to_end(session)
        assert taken == (session in mine)

    @invariant()
    def says_what_the_model_says(self) -> None:
        pairs = [(session, name) for name, mine in self.model.items() for session in mine]
        assert [(entry["session"], entry["agent"]) for entry in self.roster.entries()] == pairs
        assert self.roster.claims == len(pairs)
        for session in "abcd":
            claimants = [name for one, name in pairs if one == session]
            found = self.roster.route(command(session=session), is_authenticated=True)
            if len(claimants) == 1:
                assert found == claimants[0]
            else:
                assert code(found) == ("ambiguous" if claimants else "no-route")


TestClaiming = Claiming.TestCase
