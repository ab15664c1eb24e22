"""Where events meet consumers: each gets what it asked for, once, in order, and no more of it."""

from __future__ import annotations

import json
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimiaepd.collector.asked import AskedError, TooMuchError, read_demand, read_query
from kimiaepd.collector.history import Bounds, History
from kimiaepd.collector.hub import LOOKED_BYTES, Demand, Emitter, Hub, Subscription
from kimiaepd.collector.outgoing import Outgoing
from kimiaepd.collector.roster import Refusal
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.storage.journal import Position


def event(session: str = "s", seq: int = 0, **more: JSON) -> JSONObject:
    return {
        "aep": "0.1", "id": f"{session}-{seq}", "type": "progress.status",
        "time": "2026-11-30T00:00:00.000Z", "source": f"aep://host/{session}", "agent": "test",
        "session": session, "seq": seq, "epoch": 1, **more,
    }  # fmt: skip


def command(session: str = "s", kind: str = "control.cancel") -> JSONObject:
    cancel = event(session, type=kind, id="cmd", data={"scope": "run"})
    return {key: value for key, value in cancel.items() if key not in ("seq", "epoch")}


def line(value: JSONObject) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def put(hub: Hub, *events: JSONObject, sender: Emitter | None = None) -> list[object]:
    return [hub.ingest(one, line(one), sender=sender) for one in events]


def subscription(demand: Demand | None = None) -> Subscription:
    return Subscription(
        demand or read_demand(None, None, None),
        Outgoing(),
        lambda _, text: text.decode(),
        lambda session, at: f"exhausted {session} {at}",
    )


def got(wish: Subscription) -> list[str]:
    found = []
    while (message := wish.outgoing.get_nowait()) is not None:
        found += [message] if message else []
    return found


def ids(wish: Subscription) -> list[str]:
    return [one if one.startswith("exhausted") else json.loads(one)["id"] for one in got(wish)]


def test_a_subscriber_gets_what_comes_byte_for_byte() -> None:
    hub, wish = Hub(), subscription()
    hub.subscribe(wish)
    odd = b'{ "aep":"0.1",' + line(event())[13:]
    hub.ingest(json.loads(odd), odd)
    assert got(wish) == [odd.decode()]


def test_redelivery_traverses_the_hop_and_is_held_once() -> None:
    hub, wish = Hub(), subscription()
    hub.subscribe(wish)
    put(hub, event(), event())
    assert ids(wish) == ["s-0", "s-0"]
    late = subscription(Demand(wish.demand.filter, everything=True))
    hub.subscribe(late)
    assert ids(late) == ["s-0"]


def test_what_is_no_event_is_refused_and_goes_nowhere() -> None:
    hub, wish = Hub(), subscription()
    hub.subscribe(wish)
    (fault,) = put(hub, event(seq=-1))
    assert isinstance(fault, str)
    assert hub.ingest([1], b"[1]") is not None
    assert (hub.refused, ids(wish)) == (2, [])


def test_the_agents_own_events_are_live_only() -> None:
    hub, wish = Hub(), subscription()
    hub.subscribe(wish)
    online = {
        key: value
        for key, value in event(type="agent.presence", data={"state": "online"}).items()
        if key not in ("session", "seq", "epoch")
    }
    assert put(hub, online) == [None]
    assert ids(wish) == ["s-0"]
    assert hub.history.sessions() == []


def test_a_ceiling_lowers_and_a_filter_leaves_out() -> None:
    hub = Hub()
    low = subscription(read_demand({"type": "run.*"}, "none", None))
    hub.subscribe(low)
    put(hub, event(type="run.started", capture="full", data={"prompt": "secret"}), event(seq=1))
    (text,) = got(low)
    assert json.loads(text)["capture"] == "none"
    assert "secret" not in text


def test_resume_gives_what_comes_after_a_position_and_then_what_is_live() -> None:
    hub = Hub()
    put(hub, *(event(seq=seq) for seq in range(5)), event("t"))
    wish = subscription(read_demand(None, None, [{"session": "s", "epoch": 1, "seq": 2}]))
    hub.subscribe(wish)
    put(hub, event(seq=5), event("t", 1))
    assert ids(wish) == ["s-3", "s-4", "s-5", "t-1"]


def test_a_position_before_what_is_held_is_said_before_the_events() -> None:
    hub = Hub(History(Bounds(events=3)))
    put(hub, *(event(seq=seq) for seq in range(6)))
    wish = subscription(read_demand(None, None, [{"session": "s", "epoch": 1, "seq": 0}]))
    hub.subscribe(wish, live=False)
    assert ids(wish) == ["exhausted s (1, 3)", "s-3", "s-4", "s-5"]


def test_replay_all_says_nothing_of_what_is_gone() -> None:
    hub = Hub(History(Bounds(events=2)))
    put(hub, *(event(seq=seq) for seq in range(4)), event("t"))
    wish = subscription(read_demand(None, None, "all"))
    hub.subscribe(wish, live=False)
    put(hub, event("t", 1))
    assert ids(wish) == ["s-2", "s-3", "t-0"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["event", "read"]), max_size=60), st.integers(0, 20))
def test_between_replay_and_live_nothing_is_missed_and_nothing_comes_twice(
    steps: list[str], before: int
) -> None:
    """Whatever comes while the consumer still reads what was held."""
    hub = Hub()
    put(hub, *(event(seq=seq) for seq in range(before)))
    wish = subscription(read_demand(None, None, "all"))
    hub.subscribe(wish)
    seq, found = before, []
    for step in steps:
        if step == "event":
            put(hub, event(seq=seq))
            seq += 1
        elif (message := wish.outgoing.get_nowait()) is not None:
            found.append(json.loads(message)["seq"])
    found += [json.loads(message)["seq"] for message in got(wish)]
    assert found == list(range(seq))


def test_what_is_held_is_looked_through_a_piece_at_a_time() -> None:
    hub = Hub()
    for seq in range(1_000):
        put(hub, event(seq=seq, data={"x": "y" * 100}))
    nothing = subscription(read_demand({"type": "no.such"}, None, "all"))
    hub.subscribe(nothing)
    looks = 0
    while nothing.outgoing.get_nowait() is not None:
        looks += 1
    assert looks >= hub.history.size // (LOOKED_BYTES + 4_096)
    # As much of it, no more, where every event is wanted.
    everything = subscription(read_demand(None, None, "all"))
    hub.subscribe(everything)
    pieces: list[list[str]] = [[]]
    while (message := everything.outgoing.get_nowait()) is not None:
        if message:
            pieces[-1].append(message)
        else:
            pieces.append([])
    assert len(pieces) > looks - 2
    assert sum(map(len, pieces)) == 1_000


def test_after_the_end_of_a_subscription_nothing_comes_not_even_of_what_is_held() -> None:
    hub = Hub()
    put(hub, *(event(seq=seq) for seq in range(3)))
    wish = subscription(read_demand(None, None, "all"))
    hub.subscribe(wish)
    assert json.loads(wish.outgoing.get_nowait() or "")["seq"] == 0
    hub.unsubscribe(wish)
    assert got(wish) == []


def test_what_was_asked_for_is_forgotten_with_the_subscription() -> None:
    hub = Hub()
    put(hub, event())
    wish = subscription(read_demand(None, None, "all"))
    demand = weakref.ref(wish)
    outgoing = wish.outgoing
    hub.subscribe(wish)
    hub.unsubscribe(wish)
    del wish
    assert demand() is None
    assert outgoing.get_nowait() is None


def test_after_the_end_of_a_subscription_nothing_comes() -> None:
    hub, wish = Hub(), subscription()
    hub.subscribe(wish)
    hub.unsubscribe(wish)
    hub.unsubscribe(wish)
    put(hub, event())
    assert (ids(wish), hub.subscriptions) == ([], 0)


# --- commands ------------------------------------------------------------------------------------


def joined(hub: Hub, *accepts: str) -> Emitter:
    emitter = Emitter(Outgoing())
    said: JSONObject = {
        "role": "emitter",
        "identity": {"agent": "a"},
        "capabilities": {"control": {"accepts": list(accepts)}},
    }
    hub.roster.joined(emitter, said)
    return emitter


def test_a_command_has_no_place_in_the_order_of_a_session_that_is_not_its_senders() -> None:
    hub = Hub()
    put(hub, event(), sender=joined(hub, "control.cancel"))
    assert put(hub, {**command(), "epoch": 1, "seq": 1}) != [None]


def test_a_command_goes_to_the_one_claimant_and_to_those_who_watch() -> None:
    hub, wish = Hub(), subscription()
    hub.subscribe(wish)
    emitter = joined(hub, "control.cancel")
    put(hub, event(), sender=emitter)
    assert put(hub, command()) == [None]
    assert json.loads(emitter.outgoing.get_nowait() or "")["id"] == "cmd"
    assert ids(wish) == ["s-0", "cmd"]


def replayed(hub: Hub, capture: JSON = None, since: JSON = "all") -> list[str]:
    late = subscription(read_demand(None, capture, since))
    hub.subscribe(late, live=False)
    return got(late)


def test_who_comes_later_sees_the_command_and_then_its_answer() -> None:
    hub = Hub()
    put(hub, event(), sender=joined(hub, "control.cancel"))
    odd = line(command()).replace(b'"aep":', b' "aep" : ')
    hub.ingest(json.loads(odd), odd)
    put(hub, event(type="control.accepted", seq=1, cause="cmd"), event("t"))
    whole = [line(event()), odd, line(event(type="control.accepted", seq=1, cause="cmd"))]
    assert replayed(hub)[:3] == [one.decode() for one in whole]
    after_the_first: JSON = [{"session": "s", "epoch": 1, "seq": 0}]
    assert replayed(hub, since=after_the_first) == [one.decode() for one in whole[1:]]
    after_the_answer: JSON = [{"session": "s", "epoch": 1, "seq": 1}]
    assert replayed(hub, since=after_the_answer) == []


def test_a_command_that_is_sent_again_is_routed_again_and_held_once() -> None:
    hub, wish = Hub(), subscription()
    emitter = joined(hub, "control.cancel")
    put(hub, event(), sender=emitter)
    hub.subscribe(wish)
    put(hub, command(), command())
    assert ids(wish) == ["cmd", "cmd"]
    assert [emitter.outgoing.get_nowait() for _ in range(2)] == [line(command()).decode()] * 2
    assert [json.loads(one)["id"] for one in replayed(hub)] == ["s-0", "cmd"]


def test_a_held_command_is_lowered_for_who_may_not_see_all_of_it() -> None:
    hub = Hub()
    put(hub, event(), sender=joined(hub, "control.cancel"))
    put(hub, {**command(), "capture": "redacted", "data": {"scope": "run", "reason": "secret"}})
    (_, lowered) = replayed(hub, "metadata")
    assert json.loads(lowered)["capture"] == "metadata"
    assert json.loads(lowered)["data"] == {"scope": "run"}
    assert "secret" in replayed(hub)[1]


@pytest.mark.parametrize(
    ("claimants", "accepts", "may", "code"),
    [
        (1, ("control.cancel",), False, "unauthorized"),
        (0, (), True, "no-route"),
        (2, ("control.cancel",), True, "ambiguous"),
        (1, ("control.pause",), True, "unsupported"),
    ],
)
def test_a_command_that_cannot_go_is_refused_and_nobody_sees_it(
    claimants: int, accepts: tuple[str, ...], may: bool, code: str
) -> None:
    hub, wish = Hub(), subscription()
    emitters = [joined(hub, *accepts) for _ in range(claimants)]
    for emitter in emitters:
        put(hub, event(), sender=emitter)
    hub.subscribe(wish)
    cancel = command()
    refusal = hub.ingest(cancel, line(cancel), is_authenticated=may)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code
    assert ids(wish) == []
    assert all(emitter.outgoing.get_nowait() is None for emitter in emitters)
    assert "cmd" not in "".join(replayed(hub))


def test_anothers_word_on_a_session_claims_nothing() -> None:
    hub = Hub()
    emitter = joined(hub)
    routed = event(type="attention.routed", subject="x", data={"to": "phone"})
    put(hub, {key: routed[key] for key in routed if key not in ("seq", "epoch")}, sender=emitter)
    assert hub.roster.entries() == []


# --- what is asked for ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filter_", "capture", "since", "kind"),
    [
        ([1], None, None, AskedError),
        ({"data": "x"}, None, None, AskedError),
        (None, "everything", None, AskedError),
        (None, 7, None, AskedError),
        (None, None, {"session": "s"}, AskedError),
        (None, None, "some", AskedError),
        (None, None, [7], AskedError),
        (None, None, [{"session": "s", "seq": True}], AskedError),
        (None, None, [{"session": "s", "epoch": "1", "seq": 1}], AskedError),
        (None, None, [{"session": "s", "seq": 1}] * 501, TooMuchError),
        ({"session": ["x"] * 9_999}, None, None, TooMuchError),
    ],
)
def test_what_cannot_be_understood_is_refused(
    filter_: JSON, capture: JSON, since: JSON, kind: type[AskedError]
) -> None:
    with pytest.raises(kind) as refused:
        read_demand(filter_, capture, since)
    assert type(refused.value) is kind
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("query", "last", "since"),
    [
        ({}, None, ()),
        ({}, "a:b:3:4", (("a:b", (3, 4)),)),
        ({}, "nonsense", ()),
        ({"from": '[{"session":"s","seq":5}]'}, "t:1:1", (("s", (0, 5)),)),
    ],
)
def test_a_query_is_read_as_the_standard_says(
    query: dict[str, str], last: str | None, since: tuple[tuple[str, Position], ...]
) -> None:
    assert read_query(query, last).since == since


def test_a_query_may_ask_for_everything_lowered() -> None:
    demand = read_query({"from": "all", "capture": "metadata", "filter": '{"agent":"x"}'}, None)
    assert (demand.everything, demand.ceiling) == (True, Capture.METADATA)


@pytest.mark.parametrize("query", [{"filter": "{"}, {"from": "x"}, {"filter": "x" * 70_000}])
def test_a_query_that_is_no_json_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(AskedError):
        read_query(query, None)
