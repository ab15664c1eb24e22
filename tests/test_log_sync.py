from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from faults import Faults
from kimiaepd.storage import log_sync
from kimiaepd.storage.journal import LAST_SYNC_SECONDS, Journal, JournalError, LogPolicy
from log_helpers import ROOMY, event, fill, never, unseen


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "logs"


# --- syncing -----------------------------------------------------------------------------------


class Syncs:
    """The syncs of files: which came, held up in their thread as long as the test wants."""

    def __init__(self, faults: Faults) -> None:
        self.inodes: list[int] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self._news = trio.Event()
        faults.on_sync(self._sync)

    def _sync(self, descriptor: int) -> None:
        self.inodes.append(os.fstat(descriptor).st_ino)
        trio.from_thread.run_sync(self._announce)
        self.go_on.wait(10)

    def _announce(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def until(self, count: int) -> None:
        """Wait until so many have begun."""
        while len(self.inodes) < count:
            await self._news.wait()


@pytest.fixture
def syncs() -> Iterator[Syncs]:
    with Faults() as faults:
        syncs = Syncs(faults)
        yield syncs
        syncs.go_on.set()


async def test_always_waits_for_the_disk_and_syncs_the_new_directory_entry(
    directory: Path, syncs: Syncs
) -> None:
    journal = Journal.open(directory, policy=LogPolicy(sync="always", min_free_bytes=0))
    fill(journal, "s", 3)
    with Faults() as faults:
        faults.fail(os, "fsync", errno.EIO, after=9)
        await journal.synced("s")
        fill(journal, "s", 1, first=3)
        await journal.synced("s")
        await journal.synced("s")

    assert syncs.inodes == [(directory / "s.jsonl").stat().st_ino] * 2
    assert faults.calls["fsync"] == 1
    journal.close()


async def test_callers_at_the_same_time_share_a_sync(directory: Path, syncs: Syncs) -> None:
    journal = Journal.open(directory, policy=LogPolicy(sync="always", min_free_bytes=0))
    done: list[int] = []

    async def write_and_wait(seq: int) -> None:
        journal.append("s", event(seq), droppable=False)
        await journal.synced("s")
        done.append(seq)

    syncs.go_on.clear()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_and_wait, 0)
            await syncs.until(1)
            for seq in range(1, 20):
                nursery.start_soon(write_and_wait, seq)
            await wait_all_tasks_blocked()
            assert done == []
            syncs.go_on.set()

    assert len(done) == 20
    assert len(syncs.inodes) == 2  # the one that ran, and one for all who came meanwhile
    journal.close()


@pytest.mark.parametrize("policy", ["interval", "os"])
async def test_nobody_waits_for_the_disk_under_the_other_policies(
    directory: Path, syncs: Syncs, policy: str
) -> None:
    journal = Journal.open(directory, policy=LogPolicy(sync="os" if policy == "os" else "interval"))
    fill(journal, "s", 3)
    await journal.synced("s")
    assert syncs.inodes == []

    await journal.sync_all()
    assert len(syncs.inodes) == (0 if policy == "os" else 1)
    journal.close()


async def test_a_file_that_is_open_no_more_is_synced_all_the_same(
    directory: Path, syncs: Syncs
) -> None:
    journal = Journal.open(
        directory, policy=LogPolicy(open_files=1, rotate_bytes=60, min_free_bytes=0)
    )
    for session in ("a", "b", ""):
        fill(journal, session, 2)
    await journal.sync_all()

    files = directory.glob("*.jsonl")
    assert sorted(syncs.inodes) == sorted(file.stat().st_ino for file in files)
    assert len(syncs.inodes) == 6
    journal.close()


async def test_a_failed_sync_is_told_and_goes_on_in_a_new_file(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(sync="always", min_free_bytes=0))
    first = fill(journal, "s", 1)
    fill(journal, "t", 1)
    with Faults() as faults:
        faults.fail_sync(errno.EIO, times=1)
        with pytest.raises(JournalError):
            await journal.synced("s")
    second = fill(journal, "s", 1, first=1)
    await journal.synced("s")
    await journal.synced("t")

    assert journal.stats.failed_syncs == 1
    (closed,) = directory.glob("s@*.jsonl")
    assert closed.read_bytes() == first[0]
    assert (directory / "s.jsonl").read_bytes() == second[0]
    assert list(journal.read("s")) == first + second
    journal.close()


async def test_a_closed_file_that_fails_leaves_the_open_one_alone(directory: Path) -> None:
    policy = LogPolicy(sync="always", rotate_bytes=60, min_free_bytes=0)
    journal = Journal.open(directory, policy=policy)
    fill(journal, "s", 2)
    with Faults() as faults:
        faults.fail_sync(errno.EIO, times=1)
        with pytest.raises(JournalError):
            await journal.synced("s")

    assert len(list(directory.glob("s@*.jsonl"))) == 1
    assert (directory / "s.jsonl").exists()
    journal.close()


async def test_the_failed_file_is_not_asked_again(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(sync="always", min_free_bytes=0))
    fill(journal, "s", 1)
    with Faults() as faults:
        faults.fail_sync(errno.EIO, times=1)
        with pytest.raises(JournalError):
            await journal.synced("s")
        await journal.synced("s")
        await journal.sync_all()

        assert sum(faults.calls.values()) == 1
    journal.close()


async def test_everyone_who_waits_is_told_of_a_failed_sync_and_nobody_else(
    directory: Path, syncs: Syncs
) -> None:
    journal = Journal.open(directory, policy=LogPolicy(sync="always", min_free_bytes=0))
    fill(journal, "s", 1)
    fill(journal, "t", 1)
    told: list[str] = []

    async def wait(session: str) -> None:
        try:
            await journal.synced(session)
        except JournalError:
            told.append(session)

    syncs.go_on.clear()  # holds the second sync, that of t: the first fails before it gets there
    with trio.fail_after(10), Faults() as faults:
        faults.fail_sync(errno.EIO, times=1)
        async with trio.open_nursery() as nursery:
            for session in ("s", "s", "t"):
                nursery.start_soon(wait, session)
            await syncs.until(1)
            await wait_all_tasks_blocked()
            syncs.go_on.set()

    assert told == ["s", "s"]
    journal.close()


async def test_the_sessions_whose_failure_nobody_asked_for_are_bounded(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_sync, "_DOUBTS", 3)
    journal = Journal.open(directory, policy=LogPolicy(sync="always", min_free_bytes=0))
    for session in "abcde":
        fill(journal, session, 1)
    with Faults() as faults:
        faults.fail_sync(errno.EIO)
        await journal.sync_all()

    assert len(journal._syncer._doubts) == 3
    with pytest.raises(JournalError):
        await journal.synced("e")
    journal.close()


async def test_a_failed_sync_that_nobody_waited_for_is_told_to_the_next(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(sync="always", min_free_bytes=0))
    fill(journal, "s", 1)
    with Faults() as faults:
        faults.fail_sync(errno.ENOSPC, times=1)
        await journal.sync_all()

    with pytest.raises(JournalError):
        await journal.synced("s")
    await journal.synced("s")
    journal.close()


async def test_a_directory_that_is_not_synced_is_told_and_synced_later(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(sync="always", min_free_bytes=0))
    written = fill(journal, "s", 1)
    with Faults() as faults:
        faults.fail(os, "fsync", errno.EIO, times=1)
        with pytest.raises(JournalError):
            await journal.synced("s")
        await journal.synced("s")

        assert faults.calls["fsync"] == 2
    assert (directory / "s.jsonl").read_bytes() == written[0]
    journal.close()


async def test_a_file_removed_under_our_hands_is_noticed_by_the_next_sync(
    directory: Path,
) -> None:
    journal = Journal.open(directory, policy=LogPolicy(min_free_bytes=0))
    fill(journal, "s", 1)
    (directory / "s.jsonl").unlink()
    await journal.sync_all()
    written = fill(journal, "s", 1, first=1)

    assert list(journal.read("s")) == written
    assert journal.stats.failed_syncs == 1
    journal.close()


async def test_a_file_is_not_rotated_while_it_is_synced(directory: Path, syncs: Syncs) -> None:
    journal = Journal.open(
        directory, policy=LogPolicy(sync="always", rotate_bytes=60, min_free_bytes=0)
    )
    syncs.go_on.clear()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            written = fill(journal, "s", 1)
            nursery.start_soon(journal.synced, "s")
            await syncs.until(1)
            written += fill(journal, "s", 2, first=1)
            assert not list(directory.glob("s@*"))
            syncs.go_on.set()
    written += fill(journal, "s", 1, first=3)

    assert len(list(directory.glob("s@*"))) == 1
    assert list(journal.read("s")) == written
    journal.close()


async def test_a_caller_that_goes_away_leaves_its_lines_to_the_next_sync(
    directory: Path, syncs: Syncs
) -> None:
    journal = Journal.open(directory, policy=LogPolicy(sync="always", min_free_bytes=0))
    fill(journal, "s", 1)
    syncs.go_on.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.synced, "s")
        await syncs.until(1)
        nursery.cancel_scope.cancel()
    syncs.go_on.set()
    await journal.synced("s")

    assert len(syncs.inodes) == 2
    journal.close()


async def test_where_no_thread_is_left_the_sync_is_told_and_waits_again(
    directory: Path, syncs: Syncs
) -> None:
    journal = Journal.open(directory, policy=LogPolicy(sync="always", min_free_bytes=0))
    fill(journal, "s", 1)
    with Faults() as faults:
        faults.no_thread(times=1)
        with pytest.raises(JournalError):
            await journal.synced("s")
        await journal.synced("s")

    assert journal.stats.failed_syncs == 1
    assert len(syncs.inodes) == 1
    assert [file.name for file in directory.glob("*.jsonl")] == ["s.jsonl"]  # it stays in use
    journal.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_where_no_descriptor_is_left_the_file_is_not_given_up(
    directory: Path, syncs: Syncs, number: int
) -> None:
    journal = Journal.open(directory, policy=LogPolicy(sync="always", min_free_bytes=0))
    fill(journal, "s", 1)
    with Faults() as faults:
        faults.fail(os, "open", number, times=1)
        with pytest.raises(JournalError):
            await journal.synced("s")
        await journal.synced("s")

    assert len(syncs.inodes) == 1
    assert [file.name for file in directory.glob("*.jsonl")] == ["s.jsonl"]
    journal.close()


# --- the task ----------------------------------------------------------------------------------


async def test_the_interval_is_200_ms(directory: Path, syncs: Syncs, mock_clock: MockClock) -> None:
    journal = Journal.open(directory, policy=ROOMY)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run, never, unseen)
        for turn in range(1, 4):
            fill(journal, "s", 5)
            await wait_all_tasks_blocked()
            mock_clock.jump(log_sync.INTERVAL_SECONDS - 0.001)
            await wait_all_tasks_blocked()
            assert len(syncs.inodes) == turn - 1
            mock_clock.jump(0.002)
            await syncs.until(turn)
            await journal.sync_all()  # comes back after the one that runs
        nursery.cancel_scope.cancel()
    journal.close()


async def test_or_64_lines(directory: Path, syncs: Syncs, mock_clock: MockClock) -> None:
    journal = Journal.open(directory, policy=ROOMY)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run, never, unseen)
        fill(journal, "s", log_sync.INTERVAL_LINES - 1)
        await wait_all_tasks_blocked()
        assert syncs.inodes == []
        fill(journal, "t", 1)
        await syncs.until(2)
        nursery.cancel_scope.cancel()
    journal.close()


async def test_the_end_of_a_session_does_not_wait_for_the_interval(
    directory: Path, syncs: Syncs, mock_clock: MockClock
) -> None:
    journal = Journal.open(directory, policy=ROOMY)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run, never, unseen)
        journal.hasten()  # nothing waits: the next line is not hurried
        fill(journal, "s", 1)
        await wait_all_tasks_blocked()
        assert syncs.inodes == []

        start = trio.current_time()
        journal.hasten()
        await syncs.until(1)
        await journal.sync_all()
        assert trio.current_time() == start

        fill(journal, "s", 1, first=1)
        await wait_all_tasks_blocked()
        assert len(syncs.inodes) == 1  # the interval is as long as before
        nursery.cancel_scope.cancel()
    journal.close()


@pytest.mark.parametrize("policy", ["always", "os"])
async def test_only_the_interval_is_hastened(
    directory: Path, syncs: Syncs, mock_clock: MockClock, policy: str
) -> None:
    journal = Journal.open(
        directory,
        policy=LogPolicy(sync="os" if policy == "os" else "always", min_free_bytes=0),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run, never, unseen)
        fill(journal, "s", 1)
        journal.hasten()
        await wait_all_tasks_blocked()
        assert syncs.inodes == []
        nursery.cancel_scope.cancel()
    journal.close()


async def test_the_interval_goes_on_after_somebody_else_synced(
    directory: Path, syncs: Syncs, mock_clock: MockClock
) -> None:
    journal = Journal.open(directory, policy=ROOMY)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run, never, unseen)
        fill(journal, "s", 1)
        await wait_all_tasks_blocked()
        await journal.sync_all()
        fill(journal, "s", 1, first=1)
        await wait_all_tasks_blocked()
        mock_clock.jump(1)
        await syncs.until(2)
        nursery.cancel_scope.cancel()
    journal.close()


async def test_the_interval_goes_on_after_a_sync_of_the_directory_alone(
    directory: Path, syncs: Syncs, mock_clock: MockClock
) -> None:
    journal = Journal.open(directory, policy=ROOMY)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run, never, unseen)
        await wait_all_tasks_blocked()
        with Faults() as faults:
            faults.disk_takes(0)
            with pytest.raises(JournalError):  # the file is there, the line is not
                fill(journal, "s", 1)
        await journal.sync_all()
        fill(journal, "s", 1)
        await wait_all_tasks_blocked()
        mock_clock.jump(1)
        await syncs.until(1)
        nursery.cancel_scope.cancel()
    journal.close()


async def test_the_interval_outlives_a_system_without_threads(
    directory: Path, syncs: Syncs, mock_clock: MockClock
) -> None:
    journal = Journal.open(directory, policy=ROOMY)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run, never, unseen)
        await wait_all_tasks_blocked()
        with Faults() as faults:
            faults.no_thread()
            fill(journal, "s", 1)
            for _ in range(3):
                await wait_all_tasks_blocked()
                mock_clock.jump(log_sync.INTERVAL_SECONDS)
            await wait_all_tasks_blocked()
            assert faults.calls["run_sync"] == 3  # once an interval, no oftener
        mock_clock.jump(log_sync.INTERVAL_SECONDS)
        await syncs.until(1)
        nursery.cancel_scope.cancel()
    journal.close()


async def test_a_log_that_is_removed_before_its_sync_leaves_the_interval_at_rest(
    directory: Path, syncs: Syncs, mock_clock: MockClock
) -> None:
    woken = 0

    class Syncer(log_sync.Syncer):
        async def flush(self) -> None:
            nonlocal woken
            woken += 1
            assert woken < 10, "it never sleeps again"
            await super().flush()

    def fail(name: str, session: str, error: OSError) -> None:
        raise AssertionError(name)

    directory.mkdir()
    syncer = Syncer(directory, fail)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(syncer.by_interval)
        for _ in range(log_sync.INTERVAL_LINES):
            syncer.wrote("s.jsonl", "s")
        syncer.removed("s.jsonl")
        await wait_all_tasks_blocked()
        assert woken == 1
        nursery.cancel_scope.cancel()


async def test_the_end_of_the_task_syncs_once_more(directory: Path, syncs: Syncs) -> None:
    journal = Journal.open(directory, policy=ROOMY)
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run, never, unseen)
        fill(journal, "s", 1)
        nursery.cancel_scope.cancel()

    assert len(syncs.inodes) == 1
    journal.close()


async def test_a_disk_that_hangs_does_not_hold_up_the_end_for_ever(
    directory: Path, syncs: Syncs, mock_clock: MockClock
) -> None:
    journal = Journal.open(directory, policy=ROOMY)
    syncs.go_on.clear()
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run, never, unseen)
        fill(journal, "s", 1)
        nursery.cancel_scope.cancel()
        mock_clock.autojump_threshold = 0.01
    assert trio.current_time() - start == LAST_SYNC_SECONDS
    journal.close()


async def test_under_os_nothing_is_ever_synced(directory: Path, syncs: Syncs) -> None:
    journal = Journal.open(directory, policy=LogPolicy(sync="os", min_free_bytes=0))
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run, never, unseen)
        fill(journal, "s", 200)
        nursery.cancel_scope.cancel()

    assert syncs.inodes == []
    journal.close()
