from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from faults import Faults
from kimiaepd.storage.journal import Journal, LogPolicy, Position
from kimiaepd.storage.log_names import closed_name
from kimiaepd.storage.retention import RETENTION_SECONDS, Footprint, FreeSpace, overdue, survey
from log_helpers import STAMP, event, fill, never, unseen


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "logs"


# --- a disk that is nearly full ----------------------------------------------------------------


class Disk:
    """A file system with as much room as the test says, which counts who asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 1000
        self.asked = 0
        self.now = 0.0
        monkeypatch.setattr(os, "statvfs", self.statvfs)

    def statvfs(self, path: Path) -> os.statvfs_result:
        self.asked += 1
        return os.statvfs_result((1, 1, self.free, self.free, self.free, 0, 0, 0, 0, 255))

    def clock(self) -> float:
        return self.now


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_on_a_nearly_full_disk_what_may_be_dropped_is_and_the_rest_is_written(
    directory: Path, disk: Disk
) -> None:
    journal = Journal.open(directory, policy=LogPolicy(min_free_bytes=800), clock=disk.clock)
    disk.free = 799
    disk.now = 1

    assert journal.append("s", event(0), droppable=True) is False
    assert journal.append("s", event(1), droppable=False) is True
    assert journal.append("s", event(2), droppable=True) is False
    assert journal.append("t", event(0), droppable=True) is False
    assert list(journal.read("s")) == [event(1)]
    assert (journal.stats.shed, journal.stats.lines) == (3, 1)
    # The gap is told once there is room for telling it, for each session, once.
    assert journal.take_gap("s") == 0
    disk.free, disk.now = 900, 2
    assert journal.append("s", event(3), droppable=True) is True
    assert journal.take_gap("s") == 2
    assert journal.take_gap("s") == 0
    assert journal.take_gap("t") == 1
    assert journal.take_gap("u") == 0
    journal.close()


def test_the_counts_of_gaps_are_bounded(
    directory: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimiaepd.storage.journal._GAPS", 2)
    disk.free = 0
    journal = Journal.open(directory, policy=LogPolicy(min_free_bytes=1), clock=disk.clock)
    for session in "abcab":
        journal.append(session, event(0), droppable=True)
    disk.free, disk.now = 1000, 1

    assert [journal.take_gap(session) for session in "abc"] == [2, 2, 0]
    assert journal.stats.shed == 5
    journal.close()


def test_the_disk_is_asked_once_a_second_or_once_in_256_events(tmp_path: Path, disk: Disk) -> None:
    space = FreeSpace(tmp_path, 1, disk.clock)
    for _ in range(257):
        assert not space.is_low()
    assert disk.asked == 1

    assert not space.is_low()
    assert disk.asked == 2

    disk.now += 0.99
    assert not space.is_low()
    assert disk.asked == 2

    disk.now += 0.01
    assert not space.is_low()
    assert disk.asked == 3


def test_the_log_does_not_flap_at_the_border(tmp_path: Path, disk: Disk) -> None:
    space = FreeSpace(tmp_path, 800, disk.clock)
    seen = []
    for free in (800, 799, 800, 899, 900, 800):
        disk.free = free
        disk.now += 1
        seen.append(space.is_low())

    assert seen == [False, True, True, True, False, False]


def test_a_disk_that_does_not_answer_is_as_full_as_it_was(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.free = 0
    space = FreeSpace(tmp_path, 800, disk.clock)
    assert space.is_low()
    disk.now += 1
    with Faults() as faults:
        faults.fail(os, "statvfs", errno.EIO)
        assert space.is_low()


# --- what has to go -----------------------------------------------------------------------------


DAY = 86_400.0


def footprint(name: str, age: float, size: int, session: str | None = "") -> Footprint:
    """A session that was written to so many days ago; today is day 100."""
    shown = name if session == "" else session
    return Footprint(name, shown, (f"{name}.jsonl",), size, (100 - age) * DAY)


def going(
    footprints: list[Footprint], *, keep_bytes: int = 1000, is_open: str = "", keep_days: int = 30
) -> str:
    found = overdue(
        footprints,
        lambda session: session in is_open,
        keep_bytes=keep_bytes,
        keep_days=keep_days,
        now=100 * DAY,
    )
    return "".join(one.stem for one in found)


def test_what_is_too_old_goes() -> None:
    logs = [footprint("a", 29.9, 1), footprint("b", 31, 1), footprint("c", 60, 1)]

    assert going(logs) == "cb"
    assert going(logs, keep_days=1) == "cba"
    assert going(logs, keep_days=100) == ""


def test_what_is_too_much_goes_the_longest_unwritten_first_and_no_more_than_needed() -> None:
    logs = [footprint("a", 1, 400), footprint("b", 3, 400), footprint("c", 2, 400)]

    assert going(logs, keep_bytes=1200) == ""
    assert going(logs, keep_bytes=1199) == "b"
    assert going(logs, keep_bytes=799) == "bc"
    assert going(logs, keep_bytes=0) == "bca"


def test_an_open_session_stays_and_counts() -> None:
    logs = [footprint("a", 1, 400), footprint("b", 3, 400), footprint("c", 99, 400)]

    assert going(logs, is_open="c", keep_bytes=400) == "ba"
    assert going(logs, is_open="abc", keep_bytes=0) == ""


def test_what_no_session_claims_goes_like_the_rest() -> None:
    assert going([footprint("a", 31, 1, session=None)], is_open="a") == "a"


def test_a_session_is_weighed_with_all_its_files(directory: Path) -> None:
    directory.mkdir()
    for name, size, at in (
        ("s.jsonl", 5, 300),
        (closed_name("s", STAMP), 7, 100),
        (closed_name("s", STAMP - 1), 9, 400),
        (f"s.jsonl.torn-{STAMP}", 11, 200),
        (".lock", 50, 500),
        ("Foreign.jsonl", 60, 500),
        ("t.jsonl", 1, 50),
    ):
        (directory / name).write_bytes(b"x" * size)
        os.utime(directory / name, (at, at))
    (directory / "link.jsonl").symlink_to(directory / "t.jsonl")
    found = {one.stem: one for one in survey(directory)}

    assert set(found) == {"s", "t"}
    assert (found["s"].session, found["s"].size, found["s"].modified) == ("s", 32, 400)
    assert found["s"].files[0] == closed_name("s", STAMP - 1)
    assert len(found["s"].files) == 4


def test_a_name_that_was_cut_is_spared_by_what_its_lines_say(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(min_free_bytes=0))
    fill(journal, "x" * 5000, 1)
    journal.close()

    assert [one.session for one in survey(directory)] == ["x" * 5000]


async def test_the_task_removes_what_is_overdue(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(keep_days=1, min_free_bytes=0))
    fill(journal, "old", 2)
    fill(journal, "open", 1)
    fill(journal, "new", 1)
    for name in ("old", "open"):
        os.utime(directory / f"{name}.jsonl", (0, 0))
    buried: list[tuple[str, Position | None]] = []
    gone = trio.Event()

    def bury(session: str, position: Position | None) -> None:
        assert (directory / f"{session}.jsonl").exists()
        buried.append((session, position))
        gone.set()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            await nursery.start(journal.run, lambda session: session == "open", bury)
            await gone.wait()
            nursery.cancel_scope.cancel()

    assert buried == [("old", (1, 1))]
    assert sorted(journal.sessions()) == ["new", "open"]
    assert journal.stats.removed == 1
    # A session that comes back begins a new file, not the removed one.
    resumed = fill(journal, "old", 1, first=2)
    assert list(journal.read("old")) == resumed
    journal.close()


async def test_every_file_of_a_removed_session_goes(directory: Path) -> None:
    journal = Journal.open(
        directory, policy=LogPolicy(rotate_bytes=60, keep_bytes=1, min_free_bytes=0)
    )
    fill(journal, "s", 4)
    (directory / f"s.jsonl.torn-{STAMP}").touch()
    (directory / "Foreign.jsonl").touch()
    await journal._retention.prune(never, unseen)
    await journal.sync_all()

    assert sorted(file.name for file in directory.iterdir()) == [".lock", "Foreign.jsonl"]
    assert journal.stats.failed_syncs == 0
    journal.close()


async def test_a_log_that_says_no_session_goes_without_a_burial(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(keep_bytes=1, min_free_bytes=0))
    journal.append("x" * 5000, b'{"no":"session"}\n', droppable=False)
    buried: list[str] = []

    await journal._retention.prune(never, lambda session, _: buried.append(session))

    assert buried == []
    assert [file.name for file in directory.iterdir()] == [".lock"]
    journal.close()


async def test_a_session_that_is_resumed_meanwhile_stays(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(keep_bytes=1, min_free_bytes=0))
    fill(journal, "a", 1)
    fill(journal, "b", 1)
    os.utime(directory / "a.jsonl", (0, 0))
    resumed: set[str] = set()

    def bury(session: str, position: Position | None) -> None:
        resumed.add("b")  # while a goes

    await journal._retention.prune(lambda session: session in resumed, bury)

    assert list(journal.sessions()) == ["b"]
    journal.close()


async def test_much_that_was_written_brings_the_next_look_forward(directory: Path) -> None:
    size = len(event(0, session="s0"))
    journal = Journal.open(directory, policy=LogPolicy(keep_bytes=80 * size, min_free_bytes=0))
    removed = trio.Event()

    def bury(session: str, position: Position | None) -> None:
        removed.set()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            await nursery.start(journal.run, lambda session: session == "s9", bury)
            await wait_all_tasks_blocked()
            # No hour passes: it is the eighth of what may be kept that counts.
            for turn in range(10):
                fill(journal, f"s{turn}", 10)
                os.utime(directory / f"s{turn}.jsonl", (turn, turn + 2e9))
            await removed.wait()
            nursery.cancel_scope.cancel()

    assert sum(file.stat().st_size for file in directory.glob("*.jsonl")) <= 90 * size
    journal.close()


@pytest.mark.parametrize("lacking", ["disk", "thread"])
async def test_a_retention_that_fails_is_tried_again_an_hour_later(
    directory: Path, autojump_clock: MockClock, lacking: str
) -> None:
    policy = LogPolicy(keep_days=1, min_free_bytes=0, sync="os")
    journal = Journal.open(directory, policy=policy)
    fill(journal, "s", 1)
    os.utime(directory / "s.jsonl", (0, 0))
    start = trio.current_time()
    at: list[float] = []

    def bury(session: str, position: Position | None) -> None:
        at.append(trio.current_time() - start)
        nursery.cancel_scope.cancel()

    with Faults() as faults:
        if lacking == "disk":
            faults.fail(os, "scandir", errno.EIO, times=2)
        else:
            faults.no_thread(times=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.run, never, bury)

    assert at == [2 * RETENTION_SECONDS]
    assert list(journal.sessions()) == []
    journal.close()


async def test_a_session_that_cannot_be_removed_does_not_keep_the_others(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(keep_bytes=1, min_free_bytes=0))
    for age, session in enumerate("abc"):
        fill(journal, session, 1)
        os.utime(directory / f"{session}.jsonl", (age, age))
    with Faults() as faults:
        faults.fail(os, "unlink", errno.EACCES, times=1)
        await journal._retention.prune(never, unseen)

    assert list(journal.sessions()) == ["a"]
    assert journal.stats.removed == 2
    journal.close()


def test_a_log_that_cannot_be_read_stays_and_is_no_obstacle(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(min_free_bytes=0))
    fill(journal, "s", 1)
    fill(journal, "x" * 5000, 1)  # whose it is stands in its lines alone
    journal.close()
    with Faults() as faults:
        faults.fail(os, "open", errno.EACCES)
        found = survey(directory)

    assert [one.stem for one in found] == ["s"]
