"""The inbox as a person works with it: what a key does, what it never does, and what is seen."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.views.asks import Ended, Ending
from kimiaepd.views.desk import Verdict
from kimiaepd.views.inbox import SETTLE_SECONDS, Inbox, Quit, Send
from kimiaepd.views.inbox_page import page
from kimiaepd.views.keys import Key, Pressed, Text
from test_views_asks import NOW, ended, folded, requested

WEB: JSON = [
    {"id": "approved", "label": "Approve"}, {"id": "approved_session", "label": "For this session"},
    {"id": "rejected", "label": "Reject"},
]  # fmt: skip
LATER = 60.0
LONG = "Bash: " + " ".join(f"word{number}" for number in range(200))


def opened(*events: JSONObject) -> Inbox:
    """An inbox that was looked at long enough."""
    inbox = Inbox(folded(*events), is_ready=True)
    inbox.look(NOW, 0.0)
    return inbox


def typed(letters: str) -> list[Pressed]:
    return [Text(one, is_key=True) for one in letters]


def press(inbox: Inbox, *keys: Pressed, at: float = LATER) -> Send | Quit | None:
    """The last thing that is to be done."""
    done = None
    for key in keys:
        done = inbox.press(key, at)
    return done


def answer_of(done: Send | Quit | None) -> tuple[str, JSONObject]:
    assert isinstance(done, Send)
    return done.ask.id, done.answer


def seen(inbox: Inbox, width: int = 80, height: int = 24) -> str:
    lines = page(inbox, NOW, width, height)
    assert len(lines) <= height
    return "\n".join(line.plain.rstrip() for line in lines)


# --- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("letter", "option"), [("a", "allow"), ("d", "deny"), ("1", "allow"), ("2", "deny")]
)
def test_one_key_answers_the_selected_ask(letter: str, option: str) -> None:
    inbox = opened(requested())
    assert answer_of(press(inbox, *typed(letter))) == ("ask", {"option": option})


@pytest.mark.parametrize(
    ("letter", "option"),
    [("a", "approved"), ("s", "approved_session"), ("d", "rejected"), ("3", "rejected")],
)
def test_so_it_does_where_the_options_have_other_names(letter: str, option: str) -> None:
    inbox = opened(requested(options=WEB))
    assert answer_of(press(inbox, *typed(letter))) == ("ask", {"option": option})


@pytest.mark.parametrize("letter", ["A", "0", "3", "9", "x", "s", "c", "²", "\ufffd"])
def test_a_letter_of_no_option_answers_nothing(letter: str) -> None:
    assert press(opened(requested()), *typed(letter)) is None


def test_two_options_of_one_letter_are_told_apart_by_number_alone() -> None:
    both: JSON = [{"id": "allow", "label": "x"}, {"id": "approved", "label": "y"}]
    inbox = opened(requested(options=both))
    assert press(inbox, *typed("a")) is None
    assert answer_of(press(inbox, *typed("2"))) == ("ask", {"option": "approved"})


def test_arrows_and_letters_select() -> None:
    inbox = opened(*(requested(f"ask-{number}", left=number) for number in range(5)))
    for keys, name in ((typed("j"), "1"), ([Key.DOWN], "2"), (typed("k"), "1"), ([Key.END], "4"),
                       (typed("j"), "4"), (typed("g"), "0"), ([Key.UP], "0")):  # fmt: skip
        press(inbox, *keys)
        assert inbox.ask
        assert inbox.ask.id == f"ask-{name}"
    assert answer_of(press(inbox, *typed("jd"), at=0.1))[0] == "ask-1"


def test_a_reason_goes_with_the_option_that_refuses() -> None:
    inbox = opened(requested())
    done = press(inbox, *typed("rnot nox"), Key.BACKSPACE, *typed("w"), Key.ENTER)
    assert answer_of(done) == ("ask", {"option": "deny", "text": "not now"})
    assert inbox.entry is None
    inbox = opened(requested(options=WEB))
    assert answer_of(press(inbox, *typed("r"), Key.ENTER)) == ("ask", {"option": "rejected"})


def test_words_are_an_answer_and_editing_them_sends_nothing() -> None:
    inbox = opened(requested())
    assert press(inbox, *typed("tall"), Key.CLEAR, Key.ENTER) is None
    assert press(inbox, Text("use the test"), *typed(" database"), Key.WORD, *typed("host")) is None
    assert answer_of(press(inbox, Key.ENTER)) == ("ask", {"text": "use the test host"})
    assert press(opened(requested()), *typed("ta"), Key.ESCAPE, *typed("q")) == Quit()


# --- what must not happen ------------------------------------------------------------------------


def test_a_key_for_an_ask_that_has_just_gone_does_not_answer_the_next() -> None:
    inbox = opened(requested("first", left=10), requested("second", left=20))
    inbox.asks.take(ended("timeout", "first"))
    inbox.look(NOW, LATER)
    assert press(inbox, *typed("a"), at=LATER + SETTLE_SECONDS / 2) is None
    assert "something else is selected" in inbox.notices[-1].text
    assert answer_of(press(inbox, *typed("a"), at=LATER + SETTLE_SECONDS))[0] == "second"


def test_a_first_ask_is_not_answered_before_it_was_seen() -> None:
    inbox = opened()
    inbox.asks.take(requested())
    inbox.look(NOW, LATER)
    assert press(inbox, *typed("a"), at=LATER) is None


def test_an_ask_that_comes_above_leaves_the_selected_one_selected() -> None:
    inbox = opened(requested("first", left=30))
    inbox.asks.take(requested("sooner", left=10))
    inbox.look(NOW, LATER)
    assert inbox.place == 1
    assert answer_of(press(inbox, *typed("d"), at=LATER))[0] == "first"


def test_nothing_that_was_pasted_or_typed_ahead_answers() -> None:
    inbox = opened(requested())
    assert press(inbox, Text("a"), Text("dddd")) is None
    assert "pasted" in inbox.notices[-1].text


def test_the_letters_of_a_reason_are_no_keys_though_its_ask_has_gone() -> None:
    inbox = opened(requested("first", left=10), requested("second", left=20))
    press(inbox, *typed("rnot "))
    inbox.asks.take(ended("timeout", "first"))
    inbox.look(NOW, LATER)
    assert "It is over: nothing will be sent" in seen(inbox)
    assert press(inbox, *typed("a good idea"), Key.ENTER, at=2 * LATER) is None
    assert inbox.notices[-1].text == "s Bash: too late: it was let go at its deadline"


def test_an_answer_is_sent_once_and_what_comes_of_it_is_said() -> None:
    inbox = opened(requested())
    done = press(inbox, *typed("d"))
    assert isinstance(done, Send)
    assert press(inbox, *typed("a")) is None
    assert "your answer is on its way" in inbox.notices[-1].text
    assert "  sent  " in seen(inbox)
    inbox.told(done.ask, Verdict("rejected", "not allowed: this token may only look"))
    assert inbox.notices[-1].text == "s Bash: not allowed: this token may only look"
    assert inbox.notices[-1].is_bad
    assert answer_of(press(inbox, *typed("a"))) == ("ask", {"option": "allow"})


def test_what_is_only_looked_at_cannot_be_answered() -> None:
    inbox = opened(requested(respond_via=["oob"], expires_at=None))
    for letter in "adrt":
        assert press(inbox, *typed(letter)) is None
    assert inbox.entry is None
    assert "agent's own screen" in inbox.notices[-1].text


def test_an_ask_that_ends_by_itself_is_said_but_not_one_of_long_ago() -> None:
    inbox = opened(requested())
    (gone,) = inbox.asks.take(ended("timeout"))
    assert isinstance(gone, Ended)
    inbox.is_ready = False
    inbox.ended(gone)
    assert not inbox.notices
    inbox.is_ready = True
    inbox.ended(gone)
    assert inbox.notices[-1].text == "s Bash: let go at its deadline"
    inbox.ended(Ended(gone.ask, Ending("answered", "deny", via="control")))
    assert inbox.notices[-1].text == "s Bash: deny"


# --- what is seen --------------------------------------------------------------------------------


def test_the_screen_says_what_waits_for_how_long_and_what_can_be_done() -> None:
    two = requested("two", "session_31aa9970-09a5", left=125, prompt="Bash: make\nrm -rf /")
    text = seen(opened(requested("one", left=42), two, requested("x", respond_via=["oob"])))
    assert "2 asks wait, 1 more to look at" in text
    assert ">    42 s  s         Bash: rm -rf x" in text
    assert "  2 m 05 s  31aa9970  Bash: make \u23ce rm -rf /" in text
    assert "     look  s         Bash: rm -rf x" in text
    assert "a No objection   d Deny   r deny with a reason   t answer in words" in text
    assert "session s, run r1, until " in text


def test_an_empty_inbox_says_so_and_a_lost_relay_too() -> None:
    inbox = opened()
    assert "nothing waits" in seen(inbox)
    assert "kimiaepd status" in seen(inbox)
    inbox.lost = "the connection broke\x1b"
    assert "connection lost, trying again: the connection broke\ufffd" in seen(inbox)
    inbox.lost, inbox.is_ready = None, False
    assert "nothing waits" not in seen(inbox)


def test_a_long_prompt_is_shown_whole_by_scrolling() -> None:
    inbox = opened(requested(prompt=LONG))
    found = ""
    for _ in range(30):
        found += seen(inbox)
        press(inbox, *typed(" "))
    assert "more lines: space" in found
    assert all(f"word{number}" in found for number in range(200))
    assert "more lines: space" not in seen(inbox)
    press(inbox, *typed("b"), Key.PAGE_UP)
    assert "more lines: space" in seen(inbox)


def test_labels_that_say_a_position_only_are_shown_as_what_they_are() -> None:
    below: JSON = [{"id": "allow", "label": "1"}, {"id": "deny", "label": "2"}]
    assert "a allow   d deny   r deny" in seen(opened(requested(options=below)))


def test_content_is_shown_and_never_obeyed() -> None:
    odd = "\x1b[2J\u202ex\x9b\n\x07"
    asked = requested(odd, odd, prompt=odd, options=[{"id": odd, "label": odd}])
    asked["subject"] = asked["run"] = odd
    inbox = opened(asked)
    done = press(inbox, *typed("1"))
    assert isinstance(done, Send)
    inbox.told(done.ask, Verdict("accepted", "accepted"))
    press(inbox, *typed("t"), Text(odd))
    assert all(letter.isprintable() or letter == "\n" for letter in seen(inbox))


NARROWEST, LOWEST = 40, 12
"""Columns and lines of a terminal in which a person can still see what is selected."""


@given(
    size=st.tuples(st.integers(1, 200), st.integers(1, 60)),
    count=st.integers(0, 30),
    place=st.integers(0, 30),
    mode=st.sampled_from(["", "r", "t"]),
    prompt=st.text() | st.just(LONG),
)
def test_it_fits_any_terminal_and_the_selected_ask_is_in_sight(
    *, size: tuple[int, int], count: int, place: int, mode: str, prompt: str
) -> None:
    width, height = size
    asked = [requested(f"{n}", left=n, prompt=f"{n} {prompt}") for n in range(1, count + 1)]
    inbox = opened(*asked)
    press(inbox, *[Key.DOWN] * place, *typed(mode), Text(prompt))
    for number in range(5):
        inbox.say(f"{number}")
    lines = page(inbox, NOW + timedelta(seconds=1), width, height)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)
    if inbox.ask and height >= LOWEST and width >= NARROWEST and not inbox.entry:
        (selected,) = [line.plain for line in lines if line.plain.startswith("> ")]
        assert f"  {inbox.ask.id} " in selected
