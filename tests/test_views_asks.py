"""The open asks, folded from events: what waits, until when, and how each one ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.gate.answers import ALLOW, DENY
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.views import asks as asks_room
from kimiaepd.views.asks import FORGOTTEN, Ask, Asked, Asks, Ended, Ending
from test_collector_hub import event

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
OFFERED: JSON = [{"id": "allow", "label": "No objection"}, {"id": "deny", "label": "Deny"}]


def requested(
    name: str = "ask", session: str = "s", *, left: float = 50, **more: JSON
) -> JSONObject:
    """What the gate asks."""
    asked: JSONObject = {
        "kind": "permission", "prompt": "Bash: rm -rf x", "options": OFFERED,
        "expires_at": (NOW + timedelta(seconds=left)).isoformat(), "respond_via": ["control"],
    }  # fmt: skip
    return event(
        session, type="attention.requested", id=name, subject="Bash", cause="called", run="r1",
        time=NOW.isoformat(), data={**asked, **more},
    )  # fmt: skip


def ended(how: str, name: str = "ask", session: str = "s", **more: JSON) -> JSONObject:
    return event(session, type=f"attention.{how}", subject=name, cause="why", data=more)


def folded(*events: JSONObject) -> Asks:
    asks = Asks()
    for one in events:
        asks.take(one)
    return asks


def only(asks: Asks) -> Ask:
    (ask,) = asks.listed(NOW)
    return ask


def test_an_ask_says_all_that_the_capture_level_lets_be_seen() -> None:
    called: JSONObject = {
        "tool": {"name": "Bash", "call_id": "c1"},
        "args_redacted": {"command": "rm -rf x\x1b[2J"},
    }
    ask = only(folded(event(type="tool.requested", id="called", data=called), requested()))
    assert (ask.session, ask.id, ask.run, ask.tool, ask.call) == ("s", "ask", "r1", "Bash", "c1")
    assert (ask.prompt, ask.given) == ("Bash: rm -rf x", "rm -rf x\ufffd[2J")
    assert ask.options == (ALLOW, DENY)
    assert ask.is_answerable
    assert ask.left(NOW) == 50
    assert ask.requested_at == NOW


def test_what_is_answered_elsewhere_is_only_looked_at_and_has_no_deadline() -> None:
    seen = requested(respond_via=["oob"], options=None, expires_at=None)
    ask = only(folded(seen))
    assert (ask.is_answerable, ask.options, ask.left(NOW)) == (False, (), None)


@pytest.mark.parametrize(
    ("end", "ending"),
    [
        (ended("answered", answer={"option": "deny"}, via="control"),
         Ending("answered", "deny", "why", "control")),
        (ended("timeout", after_ms=50_000), Ending("timeout", cause="why")),
        (ended("resolved", resolution="dismissed"), Ending("dismissed", cause="why")),
        (ended("resolved", resolution="answered"), Ending("answered", cause="why")),
        (event(type="session.ended"), Ending("dismissed")),
    ],
)  # fmt: skip
def test_an_ask_that_ended_leaves_and_is_not_opened_again(end: JSONObject, ending: Ending) -> None:
    asks = folded(requested())
    ask = only(asks)
    assert asks.take(end) == [Ended(ask, ending)]
    assert asks.take(ended("resolved", resolution="dismissed")) == []
    assert asks.take(requested()) == []
    assert (asks.listed(NOW), asks.find_ended("as"), asks.find_ended("sk")) == (
        [],
        [ending],
        [ending],
    )


def test_an_end_that_comes_before_its_request_counts() -> None:
    asks = folded(ended("timeout"))
    assert asks.take(requested()) == []
    assert asks.find_ended("ask") == [Ending("timeout", cause="why")]


def test_another_session_ends_nothing_here() -> None:
    asks = folded(requested(), ended("timeout", session="t"), event("t", type="session.ended"))
    assert only(asks).id == "ask"
    assert asks.take(requested(session="t")) == []
    assert isinstance(asks.take(requested("other", session="t"))[0], Asked)


def test_what_can_be_answered_comes_first_by_its_deadline_and_what_is_long_over_not_at_all() -> (
    None
):
    gone = -FORGOTTEN.total_seconds()
    asks = folded(
        requested("look", respond_via=["oob"], expires_at=None),
        requested("later", left=40),
        requested("over", left=-3),
        requested("sooner", left=20),
        requested("gone", left=gone - 1),
    )
    assert [ask.id for ask in asks.listed(NOW)] == ["over", "sooner", "later", "look"]


def test_an_ask_is_meant_by_its_beginning_its_end_or_its_call() -> None:
    called: JSONObject = {"tool": {"name": "Bash", "call_id": "c1"}}
    asks = folded(event(type="tool.requested", id="called", data=called), requested("01AB"))
    asks.take(requested("01CD", session="t"))
    assert [ask.id for ask in asks.find("01")] == ["01AB", "01CD"]
    assert [ask.id for ask in asks.find("D")] == ["01CD"]
    assert asks.find("") == asks.find("1") == []
    assert [ask.id for ask in asks.find_call("c1")] == ["01AB"]


def test_nothing_grows_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_OPEN", "MOST_ENDED", "MOST_CALLS"):
        monkeypatch.setattr(asks_room, name, 3)
    asks = Asks()
    for number in range(9):
        asks.take(event(type="tool.requested", id=f"call-{number}"))
        asks.take(requested(f"ask-{number}", prompt="x" * 9_000))
        asks.take(ended("timeout", f"gone-{number}"))
    assert [ask.id for ask in asks.open.values()] == ["ask-6", "ask-7", "ask-8"]
    assert asks.dropped == 6
    assert all(len(ask.prompt) == asks_room.LONGEST_PROMPT for ask in asks.open.values())
    assert (len(asks.ended), len(asks._calls)) == (3, 3)


ODD_TIMES = ("9999-12-31T23:59:59.999-23:59", "0001-01-01T00:00+23:59")
KINDS = ("requested", "answered", "timeout", "resolved")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | st.sampled_from(["s", "ask", "control", *ODD_TIMES]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)  # fmt: skip
payloads = json_values | st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("options", "respond_via", "expires_at", "prompt", "kind", "answer", "via", "tool", "args"),
        json_values | st.lists(st.fixed_dictionaries({"id": json_values, "label": json_values})),
    ),
)
events = st.fixed_dictionaries(
    {
        "type": st.sampled_from([f"attention.{kind}" for kind in KINDS])
        | st.sampled_from(["tool.requested", "session.ended"])
        | json_values,
    },
    optional={
        **dict.fromkeys(("id", "subject", "session", "cause", "run", "time"), json_values),
        "data": payloads,
    },
)  # fmt: skip


@given(st.lists(events, max_size=6))
def test_no_event_is_too_odd(odd: list[JSONObject]) -> None:
    asks = Asks()
    for one in odd:
        for came in asks.take(one):
            assert came.ask.session
            came.ask.left(NOW)
    asks.listed(NOW)
    asks.find("a")
    assert not asks.open.keys() & asks.ended.keys()
