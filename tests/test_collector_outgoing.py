"""What waits for one consumer: light events go first, and weight is never lost silently."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from conftest import ROOT
from kimiaepd.collector.outgoing import ALL_BYTES, HARD_BYTES, Budget, Outgoing, is_light


@pytest.mark.parametrize(
    ("severity", "light"),
    [
        (None, True), ("debug", True), ("info", True),
        ("notice", False), ("warning", False), ("error", False), ("critical", False),
        (7, False),
    ],
)  # fmt: skip
def test_what_may_be_dropped_is_what_the_standard_says(severity: str | None, light: bool) -> None:
    assert is_light(severity) is light


async def test_messages_come_in_order_and_one_that_comes_later_wakes_the_reader() -> None:
    outgoing = Outgoing()
    got: list[str | None] = []

    async def read() -> None:
        while len(got) < 3:
            got.append(await outgoing.get())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        outgoing.put("a")
        await wait_all_tasks_blocked()
        outgoing.put("b")
        outgoing.put("c")
    assert got == ["a", "b", "c"]


async def test_above_the_soft_bound_light_messages_go_and_are_counted() -> None:
    outgoing = Outgoing(soft=10, hard=100)
    outgoing.put("x" * 11)
    outgoing.put("light", light=True)
    outgoing.put("heavy")
    assert outgoing.dropped == 1
    assert [await outgoing.get(), await outgoing.get()] == ["x" * 11, "heavy"]
    outgoing.put("light", light=True)
    assert await outgoing.get() == "light"


async def test_above_the_hard_bound_the_consumer_is_given_up_and_its_memory_freed() -> None:
    outgoing = Outgoing(soft=10, hard=20)
    for _ in range(3):
        outgoing.put("x" * 10)
    outgoing.put("one too many")
    assert outgoing.over.is_set()
    assert outgoing.get_nowait() is None
    outgoing.put("later")
    assert outgoing.size == 0
    assert not outgoing._waiting


async def test_a_replay_comes_in_its_turn_and_is_made_as_it_is_asked_for() -> None:
    outgoing = Outgoing(soft=10, hard=10)
    made: list[int] = []

    def replay() -> Iterator[str]:
        for number in range(5):
            made.append(number)
            yield "x" * 1_000

    outgoing.put("before")
    outgoing.replay(replay())
    outgoing.replay(iter(["second"]))
    outgoing.put("live")
    assert await outgoing.get() == "before"
    assert made == []
    assert await outgoing.get() == "x" * 1_000
    assert made == [0]
    rest = [outgoing.get_nowait() for _ in range(6)]
    assert rest[4:] == ["second", "live"]
    assert outgoing.get_nowait() is None


async def test_one_replay_is_read_at_a_time_a_piece_each() -> None:
    budget = Budget()
    queues = [Outgoing(budget) for _ in range(5)]
    order: list[int] = []
    rounds = 0

    def looking(number: int) -> Iterator[str]:
        for _ in range(20):
            order.append(number)
            yield ""
        yield "found"

    async def get(queue: Outgoing) -> None:
        assert await queue.get() == "found"

    async def hook() -> None:
        nonlocal rounds
        while len(order) < 100:
            before = len(order)
            await trio.lowlevel.checkpoint()
            rounds += 1
            assert len(order) - before <= 2

    for number, queue in enumerate(queues):
        queue.replay(looking(number))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hook)
        for queue in queues:
            nursery.start_soon(get, queue)
    assert rounds >= 50
    assert all(sorted(order[at : at + 5]) == [0, 1, 2, 3, 4] for at in range(0, 100, 5))


async def test_as_much_is_taken_as_goes_out_at_once() -> None:
    outgoing = Outgoing()
    assert await outgoing.take(3, 100) is None
    for message in ("a", "b", "c", "d" * 200, "e"):
        outgoing.put(message)
    outgoing.replay(iter(["", "f", "", "g"]))
    assert await outgoing.take(2, 100) == ["a", "b"]
    assert await outgoing.take(9, 100) == ["c", "d" * 200]
    assert await outgoing.take(9, 100) == ["e"]  # a replay waits for its turn
    assert await outgoing.take(9, 100) == []
    assert await outgoing.take(9, 100) == ["f"]
    assert await outgoing.take(9, 100) == ["g"]
    assert await outgoing.take(9, 100) is None


# --- all together ---------------------------------------------------------------------------------


def test_above_what_all_may_hold_whoever_has_the_longest_queue_is_left() -> None:
    budget = Budget(most=100)
    short, long, other = (Outgoing(budget) for _ in range(3))
    long.put("x" * 50)
    other.put("x" * 30)
    short.put("x" * 20)
    assert budget.size == 100
    assert not long.over.is_set()
    short.put("x")
    assert [queue.over.is_set() for queue in (short, long, other)] == [False, True, False]
    assert budget.size == 51
    assert short.get_nowait() == "x" * 20  # nobody else lost anything


def test_what_was_read_or_let_go_of_counts_no_more() -> None:
    budget = Budget(most=100)
    one, other = Outgoing(budget), Outgoing(budget, hard=10)
    one.put("x" * 60)
    assert one.get_nowait() == "x" * 60
    other.put("x" * 60)
    assert budget.size == 60
    other.put("one too many for it")
    assert budget.size == 0
    one.put("x" * 60)
    one.close()
    one.close()
    assert budget.size == 0


sizes = st.integers(0, 40)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["put", "get", "close"]), sizes)))
def test_together_they_never_hold_more_than_the_budget(
    acts: list[tuple[int, str, int]],
) -> None:
    budget = Budget(most=100)
    queues = [Outgoing(budget, soft=60, hard=80) for _ in range(4)]
    for number, act, size in acts:
        queue = queues[number]
        if act == "put":
            queue.put("x" * size)
        elif act == "get":
            queue.get_nowait()
        else:
            queue.close()
        assert budget.size == sum(one.size for one in queues) <= 100


def test_the_sum_is_what_the_page_of_limits_says() -> None:
    assert (HARD_BYTES, ALL_BYTES) == (8 << 20, 256 << 20)
    page = (ROOT / "docs/limits.md").read_text(encoding="utf-8")
    assert "256 MiB for all consumers together" in page
