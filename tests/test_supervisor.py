"""A part that fails is begun again, and takes nobody with it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kimiaepd.backoff import Backoff
from kimiaepd.supervisor import Supervisor


async def test_a_part_that_fails_is_begun_again_until_it_returns(
    autojump_clock: MockClock,
) -> None:
    told: list[str] = []
    tries = 0

    async def part() -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            async with trio.open_nursery():
                raise KeyError("x")

    supervisor = Supervisor("part", Backoff(lambda _, high: high), crashed=told.append)
    await supervisor.run(part)
    assert (tries, supervisor.crashes, len(told)) == (4, 3, 3)
    assert trio.current_time() == 0.5 + 1 + 2


async def test_cancellation_passes_through(autojump_clock: MockClock) -> None:
    with trio.move_on_after(5) as scope:
        await Supervisor("part").run(trio.sleep_forever)
    assert scope.cancelled_caught


async def test_what_is_no_failure_of_the_part_ends_the_program() -> None:
    async def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await Supervisor("part").run(stop)
