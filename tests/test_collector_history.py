"""What the relay holds: each event once, in order, bounded, and honest about what is missing."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.collector.history import (
    BEGINNING,
    EVENT_BYTES,
    SESSION_BYTES,
    Bounds,
    History,
    own_place,
)
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.storage.journal import Position

AMPLE = Bounds(bytes=1 << 40)


def event(session: str, seq: int | None, *, epoch: int = 0, **more: JSON) -> JSONObject:
    made: JSONObject = {
        "id": f"{session}/{epoch}/{seq}",
        "source": "test://one",
        "session": session,
        "epoch": epoch,
        "seq": seq,
    }
    if seq is None:
        del made["seq"], made["epoch"]
    return made | more


def line(made: JSONObject) -> bytes:
    return json.dumps(made).encode()


def holding(*events: JSONObject, bounds: Bounds = AMPLE) -> History:
    history = History(bounds)
    for made in events:
        history.admit(made, line(made))
    return history


def seqs(history: History, session: str = "s", after: Position = BEGINNING) -> list[JSON]:
    return [held.event.get("seq") for held in history.after(session, after).held]


# --- resume ------------------------------------------------------------------------------------


def test_resume_is_strictly_after_the_position_and_byte_for_byte() -> None:
    history = History()
    as_sent = [
        f'{{"id":"{seq}",  "seq":{seq}, "session":"s","source":"x"}}'.encode() for seq in range(3)
    ]
    for sent in as_sent:
        assert history.admit(json.loads(sent), sent)
    replay = history.after("s", (0, 0))
    assert [held.line for held in replay.held] == as_sent[1:]
    assert [held.at for held in replay.held] == [(0, 1), (0, 2)]
    assert replay.exhausted is None
    assert history.after("s", (0, 2)).held == []
    assert history.after("another", (0, 0)).held == []


def test_replay_all_begins_with_the_earliest_and_nothing_is_missing() -> None:
    history = holding(*(event("s", seq) for seq in range(9)), bounds=Bounds(events=3))
    replay = history.after("s", BEGINNING)
    assert [held.at for held in replay.held] == [(0, 6), (0, 7), (0, 8)]
    assert replay.exhausted is None


@pytest.mark.parametrize(
    ("asked", "exhausted"),
    [
        ((1, 0), (1, 6)),
        ((1, 4), (1, 6)),
        ((1, 5), None),
        ((1, 6), None),
        ((1, 99), None),
        ((0, 5), (1, 6)),
        ((2, 0), None),
    ],
)
def test_a_position_before_what_is_held_is_told_of(
    asked: Position, exhausted: Position | None
) -> None:
    history = holding(*(event("s", seq, epoch=1) for seq in range(9)), bounds=Bounds(events=3))
    assert history.after("s", asked).exhausted == exhausted


def test_a_relay_that_was_not_there_from_the_beginning_says_so_too() -> None:
    assert holding(event("s", 500, epoch=2)).after("s", (2, 100)).exhausted == (2, 500)


def test_the_last_epoch_comes_last_and_one_that_is_not_said_is_zero() -> None:
    unsaid = event("s", 7)
    del unsaid["epoch"]
    history = holding(event("s", 0, epoch=2), event("s", 9, epoch=1), unsaid)
    assert [held.at for held in history.after("s", BEGINNING).held] == [(0, 7), (1, 9), (2, 0)]


# --- bit by bit --------------------------------------------------------------------------------


def ids(history: History, asked: Position, *, most: int, session: str = "s") -> list[JSON]:
    pieces = history.pieces(session, asked, until=history.taken, most=most)
    return [held.event["id"] for piece in pieces for held in piece.held]


def test_foreign_events_at_one_place_come_once_each_and_come_to_an_end() -> None:
    foreign = [event("s", None, id=f"foreign {number}") for number in range(7)]
    history = holding(event("s", 0), *foreign, event("s", 1))
    expected = [made["id"] for made in [*foreign, event("s", 1)]]
    assert ids(history, (0, 0), most=2) == expected
    assert ids(history, BEGINNING, most=3) == ["s/0/0", *expected]
    assert ids(history, (0, 1), most=2) == []


def test_a_session_of_foreign_events_alone_is_replayed_too() -> None:
    foreign = [event("s", None, id=f"foreign {number}") for number in range(3)]
    history = holding(*foreign)
    assert ids(history, BEGINNING, most=1) == [made["id"] for made in foreign]


def test_what_comes_while_it_is_read_is_left_to_those_who_listen() -> None:
    history = holding(*(event("s", seq) for seq in (0, 2, 4)))
    pieces = history.pieces("s", BEGINNING, until=history.taken, most=1)
    assert [held.at for held in next(pieces).held] == [(0, 0)]
    for seq in (1, 3, 5):
        history.admit(event("s", seq), line(event("s", seq)))
    assert [held.at for piece in pieces for held in piece.held] == [(0, 2), (0, 4)]


def test_what_is_let_go_before_it_was_read_is_told_of() -> None:
    history = holding(*(event("s", seq) for seq in range(4)), bounds=Bounds(events=4))
    pieces = history.pieces("s", BEGINNING, until=history.taken, most=1)
    next(pieces)
    for seq in (4, 5):
        history.admit(event("s", seq), line(event("s", seq)))
    gap, *rest = pieces
    assert (gap.exhausted, [held.at for held in gap.held]) == ((0, 2), [(0, 2)])
    assert [(piece.exhausted, piece.held[0].at) for piece in rest] == [(None, (0, 3))]


def test_a_session_that_is_evicted_before_it_was_read_ends_its_replay() -> None:
    history = holding(event("s", 0), event("s", 1), bounds=Bounds(sessions=1))
    pieces = history.pieces("s", BEGINNING, until=history.taken, most=1)
    next(pieces)
    history.admit(event("t", 0), b"{}")
    assert list(pieces) == []


# --- what comes in -----------------------------------------------------------------------------


def test_an_event_is_held_once_by_source_and_id() -> None:
    history = holding(event("s", 0))
    assert not history.admit(event("s", 0), b"{}")
    assert history.admit(event("s", 1, id="s/0/0", source="test://two"), b"{}")
    assert history.counters()["duplicates"] == 1
    assert history.events == 2


def test_a_source_and_an_id_do_not_run_into_each_other() -> None:
    history = holding(event("s", 0, source="ab", id="c"))
    assert history.admit(event("s", 1, source="a", id="bc"), b"{}")


def test_backfill_is_put_in_its_place_and_what_was_let_go_comes_in_no_more() -> None:
    history = holding(event("s", 5), event("s", 9), event("s", 7), bounds=Bounds(events=3))
    assert seqs(history) == [5, 7, 9]
    history.admit(event("s", 10), b'{"seq":10}')
    assert seqs(history) == [7, 9, 10]
    assert not history.admit(event("s", 5), b"{}")
    assert not history.admit(event("s", 4), b"{}")
    assert not history.admit(event("s", 6), b"{}"), "there is no room before the oldest"
    assert seqs(history) == [7, 9, 10]
    assert history.counters()["late"] == 2


def test_an_event_of_no_session_is_not_held() -> None:
    assert not History().admit({"type": "agent.presence", "id": "1", "source": "x"}, b"{}")


def test_a_foreign_emitters_event_stays_behind_the_one_it_came_after() -> None:
    routed = event("s", None, id="routed")
    history = holding(event("s", 0), event("s", 1), routed, event("s", 2))
    assert seqs(history) == [0, 1, None, 2]
    assert seqs(history, after=(0, 0)) == [1, None, 2]
    assert seqs(history, after=(0, 1)) == [None, 2], "whether the consumer had it nobody knows"
    assert seqs(history, after=(0, 2)) == []
    assert not history.admit(routed, line(routed))


def test_a_foreign_emitters_event_is_no_place_to_begin_at() -> None:
    made = [event("s", 0), event("s", 1), event("s", None), event("s", 2), event("s", 3)]
    history = holding(*made, bounds=Bounds(events=3))
    replay = history.after("s", (0, 0))
    assert seqs(history, after=(0, 0)) == [None, 2, 3]
    assert replay.exhausted == (0, 2)


def test_a_place_of_which_one_event_is_held_and_another_was_let_go_is_told_of() -> None:
    twins = [event("s", 1), event("s", 1, id="of another"), event("s", 2)]
    history = holding(event("s", 0), *twins, bounds=Bounds(events=2))
    assert history.after("s", (0, 0)).exhausted == (0, 1)
    assert history.after("s", (0, 1)).exhausted is None


def test_where_foreign_events_alone_are_held_what_went_before_them_is_told_of() -> None:
    made = [event("s", 0), event("s", 1), event("s", None), event("s", None, id="more")]
    history = holding(*made, bounds=Bounds(events=2))
    replay = history.after("s", (0, 0))
    assert len(replay.held) == 2
    assert replay.exhausted == (0, 1)
    assert history.after("s", (0, 1)).exhausted is None


@pytest.mark.parametrize("seq", [True, "1", 1.5, -1, 2**60, 1e300, None, [], {}])
def test_what_is_no_place_is_none(seq: JSON) -> None:
    assert own_place({"seq": seq}) is None
    assert own_place({"seq": 1, "epoch": seq}) is None
    assert own_place({"seq": 1.0}) == (0, 1)


# --- bounds ------------------------------------------------------------------------------------


def test_the_session_that_was_not_written_to_goes_first_and_a_duplicate_writes_nothing() -> None:
    history = holding(event("a", 0), event("b", 0), event("a", 1), bounds=Bounds(sessions=2))
    history.admit(event("b", 0), b"{}")
    history.admit(event("c", 0), b"{}")
    assert history.sessions() == ["a", "c"]
    assert history.after("b", (0, 0)).held == []
    assert history.counters()["evicted_sessions"] == 1


def weight(*events: JSONObject) -> int:
    return sum(len(line(made)) + EVENT_BYTES for made in events)


def test_too_many_bytes_evict_whole_sessions_and_then_the_oldest_events_of_the_last() -> None:
    a, b = [event("a", 0), event("a", 1)], [event("b", seq) for seq in range(4)]
    room = SESSION_BYTES + 4 + weight(*b[1:])
    history = holding(*a, *b, bounds=Bounds(bytes=room))
    assert history.sessions() == ["b"]
    assert seqs(history, "b") == [1, 2, 3]
    assert history.size == room
    counters = history.counters()
    assert (counters["evicted_sessions"], counters["evicted_events"]) == (1, 1)


def test_a_line_larger_than_all_there_is_leaves_nothing() -> None:
    history = holding(event("s", 0), bounds=Bounds(bytes=8_192))
    assert not history.admit(event("s", 1), b" " * 10_000)
    assert history.sessions() == []
    assert (history.events, history.size) == (0, 0)


@pytest.mark.parametrize("padding", [0, 4_000])
def test_what_is_reckoned_covers_what_is_used(padding: int) -> None:
    def admit_many(history: History) -> None:
        for number in range(20_000):
            made = event(f"s{number % 97}", number, epoch=number, pad="x" * padding)
            made["id"] = f"id-{number}"
            history.admit(made, line(made))

    history = History(Bounds(bytes=8 << 20))
    tracemalloc.start()
    try:
        admit_many(history)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert history.counters()["evicted_sessions"] > 0
    assert used < history.bounds.bytes
    assert history.size <= history.bounds.bytes


def test_a_session_costs_no_more_than_is_reckoned_for_it() -> None:
    history = History(Bounds(sessions=2_000))
    tracemalloc.start()
    try:
        for number in range(2_000):
            history.admit(event(f"session-{number}", 0), b"{}")
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < history.size


# --- against a model ---------------------------------------------------------------------------


@define
class Model:
    """The same, as one would say it: lists, and looking at everything each time."""

    bounds: Bounds
    held: dict[str, list[tuple[Position, str]]] = field(factory=dict)
    lost: dict[str, Position] = field(factory=dict)

    def admit(self, session: str, at: Position, name: str) -> bool:
        mine = self.held.get(session, [])
        if any(name == other for _, other in mine) or at <= self.lost.get(session, BEGINNING):
            return False
        self.held.pop(session, None)
        everything = sorted([*mine, (at, name)], key=lambda one: one[0])
        self.held[session] = everything[-self.bounds.events :]
        for gone, _ in everything[: -self.bounds.events]:
            self.lost[session] = max(gone, self.lost.get(session, BEGINNING))
        while len(self.held) > self.bounds.sessions:
            oldest = next(iter(self.held))
            del self.held[oldest]
            self.lost.pop(oldest, None)
        return (at, name) in self.held[session]

    def after(self, session: str, asked: Position) -> list[str]:
        return [name for at, name in self.held.get(session, []) if at > asked]

    def is_missing(self, session: str, asked: Position) -> bool:
        """Whether there may have been a place that is not held, after the one that is asked."""
        if session not in self.held:
            return False
        first = self.held[session][0][0]
        was_let_go = asked < self.lost.get(session, BEGINNING)
        return was_let_go or (asked < first and first != (asked[0], asked[1] + 1))


places = st.tuples(st.integers(0, 2), st.integers(0, 6))
arrivals = st.lists(st.tuples(st.sampled_from("abc"), places, st.integers(0, 3)), max_size=60)


@given(arrivals, st.integers(1, 5), st.integers(1, 3), places)
def test_it_holds_what_the_model_holds(
    arrived: list[tuple[str, Position, int]], events: int, sessions: int, asked: Position
) -> None:
    bounds = Bounds(events=events, sessions=sessions)
    history, model = History(bounds), Model(bounds)
    for session, (epoch, seq), copy in arrived:
        name = f"{epoch}/{seq}" if copy else f"{epoch}/{seq} of another"
        made = event(session, seq, epoch=epoch, id=name)
        assert history.admit(made, line(made)) == model.admit(session, (epoch, seq), name)
    assert history.sessions() == list(model.held)
    for session in "abc":
        replay = history.after(session, asked)
        whole = [held.event["id"] for held in replay.held]
        assert ids(history, asked, most=2, session=session) == whole
        assert ids(history, BEGINNING, most=2, session=session) == model.after(session, BEGINNING)
        assert [held.event["id"] for held in replay.held] == model.after(session, asked)
        assert (replay.exhausted is not None) == model.is_missing(session, asked)
        if replay.exhausted is not None:
            assert replay.exhausted == model.held[session][0][0] > asked
    assert history.events == sum(map(len, model.held.values()))


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 9), st.integers(0, 3_000)),
        max_size=40,
    )
)
def test_it_never_holds_more_than_its_bounds_and_its_sums_are_right(
    arrived: list[tuple[str, int | None, int]],
) -> None:
    history = History(Bounds(events=4, sessions=2, bytes=9_000))
    for number, (session, seq, size) in enumerate(arrived):
        history.admit(event(session, seq, id=str(number)), b" " * size)
        held = {name: history.after(name, BEGINNING).held for name in history.sessions()}
        assert all(1 <= len(events) <= 4 for events in held.values())
        lines = [one for events in held.values() for one in events]
        assert history.events == len(lines)
        sessions = len(held) * (SESSION_BYTES + 4)
        assert history.size == sum(one.weight for one in lines) + sessions <= 9_000
        for events in held.values():
            assert [one.at for one in events] == sorted(one.at for one in events)
