"""What waits for one consumer: light events go first, and weight is never lost silently."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kimiaepd.collector.outgoing import Outgoing, is_light


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
    assert outgoing._size <= 30
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
