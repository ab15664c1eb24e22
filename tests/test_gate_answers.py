"""What an answer means: an option, or a refusal, or nothing; never consent by accident."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.gate.answers import (
    OPTIONS,
    Answer,
    Option,
    offered,
    offered_by_position,
    read_answer,
)
from kimiaepd.lifecycle.holds import REFUSING
from kimiaepd.mapping.json_value import JSON, JSONObject
from test_rooms import IMPURE, PACKAGE, imports

TWO, FOUR = OPTIONS["two"], OPTIONS["four"]
CONSENTING = {"allow", "allow_session"}
CONSENTING_WORDS = CONSENTING | {"no objection", "no objection for this session"}

anything: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
near_words = st.sampled_from(
    ["allow", "ALLOW", " Allow\n", "allow.", "allow it", "all\u200bow", "a\u0142low",
     "allow_session", "approve", "approved",
     "No objection", "no  objection", "NO OBJECTION", "yes", "y", "ok", "1", "2",
     "deny", "Deny", "cancel", "", " ", "\u00a0", "ALLOW_SESSION ", "no objection for this session",
     "no objection to denying this", "do not allow", "allow\x00", "\uff41llow", "allo\u017f"]
)  # fmt: skip


def said(data: JSON, options: tuple[Option, ...] = FOUR, *, labelled: bool = True) -> Answer | None:
    return read_answer({"answer": data}, options, labelled=labelled)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"option": "allow"}, Answer("allow")),
        ({"option": "allow_session"}, Answer("allow_session")),
        ({"option": "deny"}, Answer("deny")),
        ({"option": "cancel"}, Answer("cancel")),
        ({"option": "deny", "text": " use the test database "},
         Answer("deny", "use the test database")),
        ({"option": "allow", "text": "deny"}, Answer("allow", "deny")),
        ({"option": "allow", "text": "  "}, Answer("allow")),
        ({"option": "deny", "values": {"a": 1}}, Answer("deny")),
        ({"text": "allow"}, Answer("allow")),
        ({"text": " ALLOW_Session\n"}, Answer("allow_session")),
        ({"text": "no OBJECTION"}, Answer("allow")),
        ({"text": "No objection for this session"}, Answer("allow_session")),
        ({"text": "Deny"}, Answer("deny")),
        ({"text": "cancel"}, Answer("cancel")),
        ({"text": "use the staging registry instead"},
         Answer("deny", "use the staging registry instead")),
        ({"text": "yes"}, Answer("deny", "yes")),
        ({"text": "allow!"}, Answer("deny", "allow!")),
    ],
)  # fmt: skip
def test_an_option_decides_and_text_may_name_one(data: JSON, expected: Answer) -> None:
    assert said(data) == expected


@pytest.mark.parametrize(
    "data",
    [
        None, "allow", 1, [], {}, {"text": ""}, {"text": " \n"}, {"text": None}, {"text": 1},
        {"option": None}, {"option": ""}, {"option": "Allow"}, {"option": " allow"}, {"option": 1},
        {"option": ["allow"]}, {"option": {"allow": True}}, {"option": True}, {"option": "yes"},
        {"option": None, "text": "allow"}, {"option": "yes", "text": "allow"},
        {"option": "allow", "text": 1}, {"values": {"decision": "allow"}},
    ],
)  # fmt: skip
def test_what_is_empty_or_of_another_shape_is_no_answer(data: JSON) -> None:
    assert said(data) is None


@pytest.mark.parametrize("data", [{}, {"option": "allow"}, {"text": "allow"}])
def test_an_answer_stands_in_a_member_of_that_name(data: JSONObject) -> None:
    assert read_answer(data, FOUR, labelled=True) is None


def test_what_was_not_offered_cannot_be_chosen() -> None:
    assert said({"option": "allow_session"}, TWO) is None
    refused = Answer("deny", "No objection for this session")
    assert said({"text": "No objection for this session"}, TWO) == refused


def test_labels_that_were_not_shown_match_nothing_and_neither_do_positions() -> None:
    for text in ("No objection", "1", "2"):
        assert said({"text": text}, labelled=False) == Answer("deny", text)
    assert said({"text": "allow"}, labelled=False) == Answer("allow")


def test_a_label_that_two_options_share_names_neither() -> None:
    options = (Option("a", "Go"), Option("b", "go"), Option("deny", "Deny"))
    assert said({"text": "GO"}, options) == Answer("deny", "GO")


def test_an_id_goes_before_a_label() -> None:
    options = (Option("allow", "Yes"), Option("deny", "allow"))
    assert said({"text": "Allow"}, options) == Answer("allow")


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "option": near_words | anything,
            "text": near_words | st.text(max_size=40) | anything,
            "values": anything,
        },
    )
    | anything,
    st.sampled_from([TWO, FOUR]),
    st.booleans(),
)
def test_consent_is_an_option_that_was_offered_or_its_very_name(
    data: JSON, options: tuple[Option, ...], labelled: bool
) -> None:
    answer = said(data, options, labelled=labelled)
    if answer is None:
        return
    assert answer.option in {option.id for option in options}
    assert isinstance(data, dict)
    if answer.option in REFUSING:
        return
    if "option" in data:
        assert data["option"] == answer.option
    else:
        assert answer.text is None
        text = data["text"]
        assert isinstance(text, str)
        assert text.strip().casefold() in CONSENTING_WORDS


def test_every_set_has_a_way_to_refuse_and_a_way_to_consent() -> None:
    for options in OPTIONS.values():
        ids = {option.id for option in options}
        assert ids & REFUSING
        assert ids & CONSENTING
        assert ids <= REFUSING | CONSENTING
        assert len({option.label.casefold() for option in options}) == len(options)


def test_positions_say_nothing_of_what_is_offered() -> None:
    assert offered_by_position(TWO) == [{"id": "allow", "label": "1"}, {"id": "deny", "label": "2"}]
    assert offered(TWO) == [
        {"id": "allow", "label": "No objection"}, {"id": "deny", "label": "Deny"},
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["answers", "wording", "standing"])
def test_what_says_that_it_is_pure_is(name: str) -> None:
    names = set(imports(PACKAGE / "gate" / f"{name}.py"))
    assert {one.partition(".")[0] for one in names} & IMPURE == set()
    own = {one for one in names if one.startswith("kimiaepd")}
    assert all(one.startswith(("kimiaepd.mapping", "kimiaepd.gate")) for one in own)
