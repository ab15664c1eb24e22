"""The order of delivery: in any order of events, answers and losses, nothing is skipped."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kimiaepd.relay.backlog import Extent, Item
from kimiaepd.relay.outbox import Outbox, Turn, Window
from kimiaepd.storage.journal import Position

SESSIONS = ("a", "b", "c")
SMALL = Window(events=4, bytes=200)


def item(session: str, at: Position, size: int = 10) -> Item:
    return Item(session, at, b'{"id":"%b-%d"}' % (session.encode(), at[1]) + b" " * size)


class Delivery(RuleBasedStateMachine):
    """A log as lists, a relay that takes what is sent in order, and an outbox between them.

    `sent_now` is what was sent on this connection; the relay answers pings in order, and may lose
    what came after the last answer when the connection is lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: dict[str, list[Item]] = {session: [] for session in SESSIONS}
        self.proven: dict[str, Position | None] = dict.fromkeys(SESSIONS)
        self.outbox = Outbox(SMALL)
        self.got: dict[str, list[Position]] = {session: [] for session in SESSIONS}
        self.sent_now: list[Item] = []
        self.pings: list[tuple[int, int]] = []
        self.turn: Turn | None = None
        self.piece: list[Item] = []

    def _sent(self, items: list[Item]) -> None:
        for one in items:
            last = self.got[one.session][-1] if self.got[one.session] else None
            after = self.sent_by_session().get(one.session, self.proven[one.session])
            expected = [
                each.at for each in self.log[one.session] if after is None or each.at > after
            ]
            assert one.at == expected[0], f"skipped something of {one.session}: {last}"
            self.sent_now.append(one)

    def sent_by_session(self) -> dict[str, Position]:
        return {one.session: one.at for one in self.sent_now}

    @rule(session=st.sampled_from(SESSIONS), sizes=st.lists(st.integers(0, 120), max_size=6))
    def events_are_logged(self, session: str, sizes: list[int]) -> None:
        for size in sizes:
            one = item(session, (1, len(self.log[session])), size)
            self.log[session].append(one)
            self.outbox.offer(one, self.proven[session])

    @rule()
    def one_is_sent_from_memory(self) -> None:
        if one := self.outbox.take():
            self._sent([one])

    @precondition(lambda self: self.turn is None)
    @rule(most=st.integers(1, 5))
    def a_piece_is_read_from_disk(self, most: int) -> None:
        self.turn = self.outbox.next_behind()
        if self.turn:
            after = self.turn.after
            rest = [one for one in self.log[self.turn.session] if after is None or one.at > after]
            self.piece = rest[:most]

    @rule()
    def the_piece_is_sent(self) -> None:
        if self.turn:
            self._sent(self.outbox.read_back(self.turn, self.piece))
        self.turn = None

    @precondition(lambda self: self.turn is not None)
    @rule()
    def the_disk_does_not_answer(self) -> None:
        assert self.turn
        self.outbox.put_off(self.turn.session)
        self.turn = None

    @rule()
    def the_disk_is_tried_again(self) -> None:
        self.outbox.resume()

    @rule()
    def a_ping_goes_out(self) -> None:
        self.pings.append((self.outbox.barrier(), len(self.sent_now)))

    @precondition(lambda self: self.pings)
    @rule(data=st.data())
    def the_relay_answers(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.pings) - 1))
        t, count = self.pings[index]
        del self.pings[: index + 1]
        for one in self.sent_now[:count]:
            if not self.got[one.session] or one.at > self.got[one.session][-1]:
                self.got[one.session].append(one.at)
        for session, at in self.outbox.prove(t).items():
            before = self.proven[session]
            assert before is None or at > before, "a position moved back"
            self.proven[session] = at

    @rule()
    def an_answer_to_nothing_proves_nothing(self) -> None:
        assert self.outbox.prove(10**6) == {}

    @rule()
    def the_connection_is_lost(self) -> None:
        self.outbox.lost({session: self.proven[session] for session in self.outbox.unproven()})
        self.sent_now = []
        self.pings = []

    @rule()
    def everything_is_delivered_in_the_end(self) -> None:
        """A healthy relay: whatever happened before, it gets the rest."""
        self.turn = None
        self.outbox.resume()
        for _ in range(1_000):
            if self.outbox.is_settled:
                break
            self.one_is_sent_from_memory()
            self.turn = None
            self.a_piece_is_read_from_disk(3)
            self.the_piece_is_sent()
            self.a_ping_goes_out()
            t, count = self.pings[-1]
            self.pings.clear()
            for one in self.sent_now[:count]:
                if not self.got[one.session] or one.at > self.got[one.session][-1]:
                    self.got[one.session].append(one.at)
            self.proven.update(self.outbox.prove(t))
        assert self.outbox.is_settled
        assert self.outbox.lag == Extent(0, 0)
        for session in SESSIONS:
            assert self.got[session] == [one.at for one in self.log[session]]

    @invariant()
    def what_is_proven_the_relay_has(self) -> None:
        for session, at in self.proven.items():
            if at is not None:
                assert self.got[session][-1] >= at

    @invariant()
    def the_lag_is_what_is_not_proven(self) -> None:
        waiting = [
            one
            for session in SESSIONS
            for one in self.log[session]
            if (at := self.proven[session]) is None or one.at > at
        ]
        assert self.outbox.lag == Extent(len(waiting), sum(len(one.line) + 1 for one in waiting))

    @invariant()
    def memory_is_bounded(self) -> None:
        assert len(self.outbox._waiting) <= SMALL.events
        assert self.outbox._waiting_bytes <= SMALL.bytes + 150
        # A piece from disk, of five here at most, may begin where there is room for one.
        assert len(self.outbox._under_way) < SMALL.events + 5
        assert self.outbox._under_way_bytes <= SMALL.bytes + 5 * 150


TestDelivery = Delivery.TestCase
TestDelivery.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_session_taken_on_at_the_start_comes_from_disk_first() -> None:
    outbox = Outbox(is_complete=False)
    outbox.offer(item("a", (2, 0)), (1, 4))
    assert outbox.take() is None, "its earlier events may not be delivered"
    outbox.adopt("a", (2, 0), (1, 4), Extent(3, 90))
    assert outbox.lag == Extent(3, 90)
    turn = outbox.next_behind()
    assert turn == Turn("a", (1, 4), (2, 0))
    piece = [item("a", (1, 5)), item("a", (1, 6)), item("a", (2, 0))]
    assert outbox.read_back(turn, piece) == piece
    assert outbox.prove(outbox.barrier()) == {"a": (2, 0)}
    assert outbox.is_settled


def test_what_is_no_longer_on_disk_is_counted_and_holds_nothing_up() -> None:
    outbox = Outbox()
    outbox.adopt("a", (1, 9), None, Extent(10, 100))
    outbox.adopt("b", (1, 0), None, Extent(1, 10))
    for _ in range(2):
        turn = outbox.next_behind()
        assert turn
        outbox.read_back(turn, [] if turn.session == "a" else [item("b", (1, 0))])
    assert outbox.missing == 10
    assert outbox.prove(outbox.barrier()) == {"b": (1, 0)}
    assert outbox.is_settled


def test_an_empty_piece_is_not_the_end_where_something_was_logged_meanwhile() -> None:
    outbox = Outbox()
    outbox.adopt("a", (1, 0), (1, 0), Extent(0, 0))
    turn = outbox.next_behind()
    assert turn
    outbox.offer(item("a", (1, 1)), (1, 0))
    outbox.read_back(turn, [])
    turn = outbox.next_behind()
    assert turn == Turn("a", (1, 0), (1, 1))
    assert outbox.missing == 0


def test_a_session_that_cannot_be_read_now_is_passed_over_and_sends_nothing_past_it() -> None:
    outbox = Outbox()
    outbox.adopt("a", (1, 1), None, Extent(2, 20))
    outbox.put_off("a")
    outbox.offer(item("a", (1, 2)), None)
    assert outbox.next_behind() is None
    assert outbox.take() is None
    assert not outbox.is_settled
    outbox.resume()
    assert outbox.next_behind() == Turn("a", None, (1, 2))


def test_what_was_sent_of_a_removed_session_proves_nothing_of_the_one_that_comes_back() -> None:
    outbox = Outbox()
    outbox.offer(item("a", (1, 0)), None)
    outbox.take()
    before = outbox.barrier()
    outbox.forget("a")
    outbox.offer(item("a", (2, 0)), None)
    assert outbox.take() == item("a", (2, 0))
    assert outbox.prove(before) == {}
    outbox.lost(dict.fromkeys(outbox.unproven()))
    assert outbox.next_behind() == Turn("a", None, (2, 0))


def test_a_session_whose_log_is_removed_is_let_go_with_what_it_had() -> None:
    outbox = Outbox()
    for seq in range(3):
        outbox.offer(item("a", (1, seq)), None)
        outbox.offer(item("b", (1, seq)), None)
    outbox.take()
    assert outbox.forget("a") == 3
    assert outbox.forget("unknown") == 0
    taken = [one for _ in range(6) if (one := outbox.take())]
    assert [one.session for one in taken] == ["b", "b", "b"]
    assert outbox.prove(outbox.barrier()) == {"b": (1, 2)}
    assert outbox.is_settled


def test_no_more_is_sent_than_may_be_under_way() -> None:
    for window in (Window(events=3, bytes=1 << 20), Window(events=99, bytes=60)):
        outbox = Outbox(window)
        outbox.adopt("b", (1, 0), None, Extent(1, 10))
        for seq in range(6):
            outbox.offer(item("a", (1, seq)), None)
        assert [outbox.take() is None for _ in range(4)] == [False, False, False, True]
        assert outbox.next_behind() is None
        outbox.prove(outbox.barrier())
        assert outbox.next_behind() == Turn("b", None, (1, 0))


def test_what_waits_in_memory_goes_before_what_comes_after_it_on_disk() -> None:
    outbox = Outbox(Window(events=2, bytes=1 << 20))
    for seq in range(3):
        outbox.offer(item("a", (1, seq)), None)
    assert outbox.next_behind() is None
    assert [outbox.take(), outbox.take()] == [item("a", (1, 0)), item("a", (1, 1))]
    outbox.prove(outbox.barrier())
    assert outbox.next_behind() == Turn("a", (1, 1), (1, 2))


def test_a_piece_that_was_read_for_another_connection_is_not_sent() -> None:
    outbox = Outbox()
    outbox.adopt("a", (1, 1), None, Extent(2, 20))
    turn = outbox.next_behind()
    assert turn
    outbox.lost({"a": (1, 0)})
    assert outbox.read_back(turn, [item("a", (1, 0)), item("a", (1, 1))]) == []
    assert outbox.next_behind() == Turn("a", (1, 0), (1, 1))


def test_sessions_that_are_behind_take_turns() -> None:
    outbox = Outbox()
    for session in SESSIONS:
        outbox.adopt(session, (1, 9), None, Extent(10, 100))
    turns = [outbox.next_behind() for _ in range(6)]
    assert [turn.session for turn in turns if turn] == [*SESSIONS, *SESSIONS]


def test_a_removed_session_leaves_its_room_to_others() -> None:
    outbox = Outbox(Window(events=99, bytes=100))
    outbox.offer(item("a", (1, 0), 200), None)
    outbox.forget("a")
    outbox.offer(item("b", (1, 0)), None)
    assert outbox.take() == item("b", (1, 0))


def test_a_session_that_came_back_while_it_was_put_off_is_not_read_from_disk() -> None:
    outbox = Outbox()
    outbox.adopt("a", (1, 1), None, Extent(2, 20))
    outbox.put_off("a")
    outbox.forget("a")
    outbox.offer(item("a", (2, 0)), None)
    outbox.resume()
    assert outbox.take() == item("a", (2, 0))
    assert outbox.next_behind() is None
