"""What a relay that keeps nothing is given of the past, at each start: the newest, and no more."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_relay import FakeRelay
from kimiaepd.relay import recent
from kimiaepd.relay.backlog import Extent, Item
from kimiaepd.relay.outbox import Outbox
from kimiaepd.relay.positions import MOST, Start
from kimiaepd.relay.recent import Bounds, RecentPositions
from kimiaepd.storage import log_files
from kimiaepd.storage.journal import Journal, LogPolicy
from kimiaepd.storage.log_names import active_name, stem_of
from test_relay_sender import line, post, relay

__all__ = ["relay"]

WROTE = 1_700_000_000
"""When the first session was written to; each later one a second later."""


def made(folder: Path, sessions: dict[str, int], *, rotate_bytes: int = 4096) -> Path:
    """A log of so many events a session, written one after the other."""
    directory = folder / "log"
    journal = Journal.open(directory, policy=LogPolicy(sync="os", rotate_bytes=rotate_bytes))
    for session, count in sessions.items():
        for seq in range(count):
            journal.append(session, line(session, 1, seq, 100), droppable=False)
    journal.close()
    for number, session in enumerate(sessions):
        file = directory / active_name(stem_of(session))
        os.utime(file, (WROTE + number, WROTE + number))
    return directory


SIZE = len(line("a", 1, 0, 100))


def test_all_of_a_small_log_the_session_written_to_last_at_the_end(tmp_path: Path) -> None:
    directory = made(tmp_path, {"b": 3, "a": 1, "c": 2}, rotate_bytes=1 << 20)
    assert RecentPositions().starts(directory) == [Start("b"), Start("a"), Start("c")]


@pytest.mark.parametrize(
    ("bounds", "starts"),
    [
        (Bounds(sessions=2), [Start("b"), Start("c")]),
        (Bounds(events=4), [Start("a", (1, 15)), Start("b", (1, 15)), Start("c", (1, 15))]),
        (Bounds(bytes=25 * SIZE), [Start("b", (1, 14)), Start("c")]),
        (Bounds(bytes=1), [Start("c", (1, 18))]),
        (Bounds(events=20, bytes=41 * SIZE), [Start("a", (1, 18)), Start("b"), Start("c")]),
    ],
)
def test_what_is_beyond_the_bounds_stays_on_disk(
    tmp_path: Path, bounds: Bounds, starts: list[Start]
) -> None:
    directory = made(tmp_path, dict.fromkeys("abc", 20), rotate_bytes=6 * SIZE)
    assert RecentPositions(bounds).starts(directory) == starts


def test_a_session_that_cannot_be_read_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = made(tmp_path, {"a": 2, "b": 2})
    works: Callable[[Path], object] = log_files.open_to_read

    def opened(path: Path) -> object:
        if path.name == active_name(stem_of("b")):
            raise PermissionError(13, "no")
        return works(path)

    monkeypatch.setattr(recent, "open_to_read", opened)
    assert RecentPositions().starts(directory) == [Start("a")]


def test_no_log_directory_is_an_error_that_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RecentPositions().starts(tmp_path / "none")


def test_so_many_sessions_are_remembered_and_the_oldest_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MOST >= 100_000
    monkeypatch.setattr(recent, "MOST", 3)
    positions = RecentPositions()
    for number in range(4):
        positions.put(f"s{number}", (1, number))
    positions.put("s1", (1, 9))
    positions.put("s4", (1, 4))
    assert [positions.get(f"s{number}") for number in range(5)] == [
        None, (1, 9), None, (1, 3), (1, 4),
    ]  # fmt: skip


# --- by the sender --------------------------------------------------------------------------------


async def test_the_newest_is_delivered_and_what_comes_goes_on_from_there(
    tmp_path: Path, relay: FakeRelay
) -> None:
    made(tmp_path, {"old": 8, "long": 30, "new": 4})
    positions = RecentPositions(Bounds(sessions=2, events=5))
    async with post(tmp_path, relay, positions=positions) as p:
        await relay.until(lambda: p.sender.outbox.is_complete and p.sender.outbox.is_settled)
        newest = [
            *(f"new-1-{seq}" for seq in range(4)),
            *(f"long-1-{seq}" for seq in range(25, 30)),
        ]
        assert Counter(relay.ids()) == Counter(newest)
        before = len(relay.ids())
        p.seqs |= {"old": 7, "long": 29}
        p.log("old", 2)
        p.log("long")
        await relay.until(lambda: p.sender.outbox.is_settled)
        assert Counter(relay.ids()[before:]) == Counter(["long-1-30", "old-1-8", "old-1-9"])


async def test_a_session_that_goes_on_before_the_look_is_over_is_not_read_from_its_beginning(
    tmp_path: Path, relay: FakeRelay
) -> None:
    made(tmp_path, {"s": 500})
    relay.switches.refuse = 503  # so that it is still to be sent when the look is over
    async with post(tmp_path, relay, positions=RecentPositions(Bounds(events=5))) as p:
        p.seqs["s"] = 499
        p.log("s")
        await relay.until(lambda: p.sender.outbox.is_complete)
        relay.switches.refuse = None
        await relay.until(lambda: p.sender.outbox.is_settled)
        # The look may or may not have met the event that was just written.
        assert relay.ids()[-1] == "s-1-500"
        assert len(relay.ids()) in (5, 6)


def test_a_session_that_came_with_an_event_is_read_on_from_where_it_is_proven_to_be() -> None:
    outbox = Outbox(is_complete=False)
    outbox.offer(Item("s", (1, 9), b"{}"), None)
    outbox.adopt("s", (1, 9), (1, 5), Extent(4, 400))
    turn = outbox.next_behind()
    assert turn is not None
    assert turn.after == (1, 5)
    # What was sent meanwhile is not sent again.
    items = [Item("s", (1, seq), b"{}") for seq in (6, 7)]
    assert outbox.read_back(turn, items) == items
    outbox.adopt("s", (1, 9), (1, 5), Extent(4, 400))
    turn = outbox.next_behind()
    assert turn is not None
    assert turn.after == (1, 7)
