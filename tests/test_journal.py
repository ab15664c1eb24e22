from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import Faults
from kimiaepd.errors import BusyError, ConfigError
from kimiaepd.storage.journal import Journal, JournalError, LogPolicy
from kimiaepd.storage.log_names import closed_name, stem_of
from log_helpers import ROOMY, STAMP, event, fill, on_disk, open_files


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "logs/kimi-code"


@pytest.fixture
def journal(directory: Path) -> Iterator[Journal]:
    journal = Journal.open(directory, policy=ROOMY)
    yield journal
    journal.close()


# --- the plain way -----------------------------------------------------------------------------


def test_lines_come_back_as_they_went_in(journal: Journal, directory: Path) -> None:
    written = fill(journal, "s", 3)

    assert (directory / "s.jsonl").read_bytes() == b"".join(written)
    assert list(journal.read("s")) == written
    assert list(journal.read("none")) == []
    assert (journal.stats.lines, journal.stats.bytes) == (3, len(b"".join(written)))


def test_each_line_is_one_write(journal: Journal) -> None:
    with Faults() as faults:
        faults.fail(os, "write", errno.EIO, after=5)
        fill(journal, "s", 5)

    assert faults.calls["write"] == 5


@pytest.mark.parametrize("line", [b"", b"{}", b"{}\n{}\n", b"{\n}\n", b"\n{}"])
def test_what_is_not_one_line_is_not_written(
    journal: Journal, directory: Path, line: bytes
) -> None:
    with pytest.raises(ValueError, match="one line"):
        journal.append("s", line, droppable=False)
    assert not (directory / "s.jsonl").exists()


@pytest.mark.parametrize(
    "session", ["../x", ".", "..", "", "x" * 5000, "CON", "a\0b", "A", "a", "\ud800"]
)
def test_a_hostile_session_gets_a_file_of_its_own_in_the_directory(
    journal: Journal, directory: Path, session: str
) -> None:
    shown = session.encode(errors="replace").decode()
    fill(journal, "other", 1)
    line = event(7, session=shown)
    journal.append(session, line, droppable=False)

    assert list(journal.read(session)) == [line]
    assert journal.last_position(session) == (1, 7)
    assert len(list(directory.glob("*.jsonl"))) == 2
    assert not list(directory.parent.glob("*.jsonl"))


def test_every_session_is_found_again(journal: Journal) -> None:
    ids = ["s", "../x", "A", "a", "x" * 5000, "X" * 5000, "é", ""]
    for session in ids:
        fill(journal, session, 2)

    assert sorted(journal.sessions()) == sorted(ids)


def test_files_of_other_programs_are_left_alone(directory: Path) -> None:
    directory.mkdir(parents=True, mode=0o700)
    (directory / "Other.jsonl").write_bytes(b"no newline")
    journal = Journal.open(directory, policy=ROOMY)

    assert list(journal.sessions()) == []
    assert journal.highest_epoch() == 0
    assert (directory / "Other.jsonl").read_bytes() == b"no newline"
    journal.close()


# --- who may read and write --------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0, 0o777])
def test_the_log_is_private_whatever_the_umask(directory: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        journal = Journal.open(directory, policy=LogPolicy(rotate_bytes=60, min_free_bytes=0))
        fill(journal, "s", 3)
        journal.close()
    finally:
        os.umask(before)

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()} == {0o600}
    assert len(list(directory.iterdir())) == 4  # two closed, one open, the lock


def test_what_was_planted_readable_is_closed_again(directory: Path) -> None:
    directory.mkdir(parents=True)
    directory.chmod(0o755)
    (directory / "s.jsonl").write_bytes(event(0))
    (directory / "s.jsonl").chmod(0o644)
    journal = Journal.open(directory, policy=ROOMY)

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "s.jsonl").stat().st_mode) == 0o600
    journal.close()


def test_a_planted_link_costs_its_own_session_alone(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"no newline")
    directory.mkdir(parents=True, mode=0o700)
    (directory / "s.jsonl").symlink_to(tmp_path / "precious")
    (directory / "t.jsonl").write_bytes(event(4, epoch=9))
    journal = Journal.open(directory, policy=ROOMY)

    assert journal.highest_epoch() == 9
    # The link is put aside as if it were a damaged file, and the session has a real one.
    written = fill(journal, "s", 1)
    assert (directory / "s.jsonl").read_bytes() == written[0]
    assert (tmp_path / "precious").read_bytes() == b"no newline"
    journal.close()


def test_a_second_journal_in_the_same_place_is_refused_and_told_who(
    journal: Journal, directory: Path
) -> None:
    with pytest.raises(BusyError, match=f"{directory}: process {os.getpid()} "):
        Journal.open(directory)


def test_another_process_is_refused_too_and_welcome_after_the_end(directory: Path) -> None:
    script = """
import pathlib, sys
from kimiaepd.storage.journal import Journal
Journal.open(pathlib.Path(sys.argv[1]))
"""
    command = [sys.executable, "-c", script, str(directory)]
    journal = Journal.open(directory, policy=ROOMY)

    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    journal.close()

    assert "BusyError" in refused.stderr
    subprocess.run(command, check=True)
    Journal.open(
        directory, policy=ROOMY
    ).close()  # and the lock of one that is gone holds nobody up


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=str(tmp_path / "file/logs")):
        Journal.open(tmp_path / "file/logs")
    (tmp_path / "logs/.lock").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"\.lock"):
        Journal.open(tmp_path / "logs")


# --- crashes -----------------------------------------------------------------------------------


def test_every_tail_is_cut_at_open(directory: Path) -> None:
    directory.mkdir(parents=True, mode=0o700)
    (directory / "a.jsonl").write_bytes(event(0) + b'{"half')
    (directory / "b.jsonl").write_bytes(event(0) + b"\0" * 5000)
    (directory / "c.jsonl").write_bytes(event(0))
    (directory / "d.jsonl").write_bytes(b"")
    journal = Journal.open(directory, policy=ROOMY)

    assert journal.stats.torn == 2
    for name in "abc":
        assert (directory / f"{name}.jsonl").read_bytes() == event(0)
    assert [torn.read_bytes() for torn in directory.glob("*.torn-*")] == [b'{"half']
    journal.close()


def test_bad_lines_in_the_middle_are_passed_over_and_counted(directory: Path) -> None:
    directory.mkdir(parents=True, mode=0o700)
    good = [event(0), event(1), event(2)]
    bad = [b"\xff\xfe\n", b'{"cut":\n', b"\0\0\0\n", b"[1]\n", b"\n", b"NaN\n"]
    mixed = good[0] + b"".join(bad) + good[1] + bad[0] + good[2] + bad[1]
    (directory / "s.jsonl").write_bytes(mixed)
    journal = Journal.open(directory, policy=ROOMY)

    assert list(journal.read("s")) == good
    assert journal.stats.skipped == len(bad) + 2
    assert journal.last_position("s") == (1, 2)
    assert (directory / "s.jsonl").read_bytes() == mixed
    journal.close()


@on_disk
@given(st.binary(max_size=300))
def test_whatever_is_in_a_file_the_journal_opens_and_goes_on(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    directory = tmp_path_factory.mktemp("log")
    (directory / "s.jsonl").write_bytes(content)
    journal = Journal.open(directory, policy=ROOMY)
    before = list(journal.read("s"))

    written = fill(journal, "s", 1, first=5)

    assert list(journal.read("s")) == before + written
    assert journal.last_position("s") == (1, 5)
    assert b"".join(before) in content or len(before) > 1
    journal.close()


def test_what_was_appended_before_a_kill_is_there(directory: Path) -> None:
    script = """
import itertools, pathlib, sys
from kimiaepd.storage.journal import Journal, LogPolicy
policy = LogPolicy(sync="os", rotate_bytes=20_000, min_free_bytes=0)
journal = Journal.open(pathlib.Path(sys.argv[1]), policy=policy)
for seq in itertools.count():
    journal.append("s", b'{"epoch":1,"seq":%d}\\n' % seq, droppable=False)
    print(seq, flush=True)
"""
    command = [sys.executable, "-c", script, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        said = [int(writer.stdout.readline()) for _ in range(3000)]
        writer.kill()
        said += map(int, writer.stdout.read().split())
    journal = Journal.open(directory, policy=ROOMY)

    found = [json.loads(line)["seq"] for line in journal.read("s")]
    assert found[: len(said)] == said
    assert found in (said, [*said, len(said)])
    assert journal.last_position("s") == (1, found[-1])
    journal.close()


def test_a_tail_that_cannot_be_cut_is_closed_for_good(directory: Path) -> None:
    directory.mkdir(parents=True, mode=0o700)
    (directory / "s.jsonl").write_bytes(event(0) + b"tail")
    with Faults() as faults:
        faults.fail(os, "ftruncate", errno.EIO)
        journal = Journal.open(directory, policy=ROOMY)
    written = fill(journal, "s", 2, first=1)

    assert journal.stats.torn == 0
    assert list(journal.read("s")) == [event(0), *written]
    assert (directory / "s.jsonl").read_bytes() == b"".join(written)
    journal.close()


def test_a_file_that_somebody_edited_meanwhile_is_mended_before_the_next_line(
    journal: Journal, directory: Path
) -> None:
    first = fill(journal, "s", 1)
    journal.reopen()
    with (directory / "s.jsonl").open("ab") as file:
        file.write(b"an editor that ends no line")

    second = fill(journal, "s", 1, first=1)

    assert list(journal.read("s")) == first + second
    assert journal.stats.torn == 1


# --- a disk that fails -------------------------------------------------------------------------


@pytest.mark.parametrize("room", range(0, len(event(1)), 7))
def test_a_full_disk_is_said_and_leaves_a_line_boundary(
    journal: Journal, directory: Path, room: int
) -> None:
    first = fill(journal, "s", 1)
    with Faults() as faults:
        faults.disk_takes(room)
        with pytest.raises(JournalError) as caught:
            journal.append("s", event(1), droppable=False)

    assert caught.value.code == "ENOSPC"
    assert (directory / "s.jsonl").read_bytes() == first[0]
    assert (journal.stats.failed, journal.stats.lines) == (1, 1)
    resumed = fill(journal, "s", 1, first=1)
    assert list(journal.read("s")) == first + resumed


def test_a_line_that_stays_half_written_is_left_behind_in_a_closed_file(
    journal: Journal, directory: Path
) -> None:
    first = fill(journal, "s", 1)
    with Faults() as faults:
        faults.cut_writes(5)
        faults.fail(os, "ftruncate", errno.EIO)
        with pytest.raises(JournalError):
            journal.append("s", event(1), droppable=False)

    resumed = fill(journal, "s", 1, first=1)
    assert list(journal.read("s")) == first + resumed
    assert len(list(directory.glob("s@*.jsonl"))) == 1


def test_while_a_damaged_file_cannot_be_put_aside_nothing_is_glued_to_it(
    journal: Journal, directory: Path
) -> None:
    first = fill(journal, "s", 1)
    with Faults() as faults:
        faults.cut_writes(5)
        faults.fail(os, "ftruncate", errno.EIO)
        faults.fail(os, "rename", errno.EIO)
        for _ in range(3):
            with pytest.raises(JournalError):
                journal.append("s", event(1), droppable=False)
        torn = (directory / "s.jsonl").read_bytes()

    assert torn == first[0] + event(1)[:5]
    resumed = fill(journal, "s", 1, first=2)
    assert list(journal.read("s")) == first + resumed


def test_a_limit_on_file_size_leaves_whole_lines(directory: Path) -> None:
    script = """
import pathlib, resource, sys
from kimiaepd.storage.journal import Journal, JournalError, LogPolicy
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
journal = Journal.open(pathlib.Path(sys.argv[1]), policy=LogPolicy(min_free_bytes=0))
written = 0
for length in (300, 300, 300, 300, 50):
    try:
        journal.append("s", b'{"pad":"%s"}\\n' % (b"x" * length), droppable=False)
        written += 1
    except JournalError as error:
        print(error.code)
print(written)
"""
    command = [sys.executable, "-c", script, str(directory)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)

    assert ran.stdout.split() == ["ENOSPC", "4"]
    lines = (directory / "s.jsonl").read_bytes().splitlines(keepends=True)
    assert [len(line) for line in lines] == [311, 311, 311, 61]
    assert all(json.loads(line) for line in lines)


def test_too_many_open_files_is_an_error_of_one_line(journal: Journal) -> None:
    with Faults() as faults:
        faults.fail(os, "open", errno.EMFILE, times=1)
        with pytest.raises(JournalError) as caught:
            journal.append("s", event(0), droppable=False)

    assert caught.value.code == "EMFILE"
    resumed = fill(journal, "s", 1)
    assert list(journal.read("s")) == resumed


def test_a_line_longer_than_can_be_read_back_is_refused(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kimiaepd.storage.journal.MAX_LINE", 10)

    with pytest.raises(JournalError) as caught:
        journal.append("s", event(0), droppable=False)
    assert caught.value.code == "EMSGSIZE"


def test_a_log_that_was_removed_under_our_feet_begins_anew(
    journal: Journal, directory: Path
) -> None:
    fill(journal, "s", 1)
    shutil.rmtree(directory.parent)

    written = fill(journal, "t", 1)

    assert list(journal.read("t")) == written
    resumed = fill(journal, "s", 1, first=1)
    assert list(journal.read("s")) == resumed
    with pytest.raises(BusyError):
        Journal.open(directory)


def test_a_file_that_was_removed_under_our_feet_takes_no_more_lines(
    directory: Path,
) -> None:
    now = 0.0
    journal = Journal.open(directory, policy=ROOMY, clock=lambda: now)
    fill(journal, "s", 3)
    kept = fill(journal, "t", 1)
    (directory / "s.jsonl").unlink()
    now += 0.1

    written = fill(journal, "s", 2, first=3)

    assert list(journal.read("s")) == written
    assert list(journal.read("t")) == kept
    assert journal.stats.open_files == 2
    journal.close()


def test_neither_does_one_whose_directory_was_removed_with_it(directory: Path) -> None:
    now = 0.0
    journal = Journal.open(directory, policy=ROOMY, clock=lambda: now)
    fill(journal, "s", 1)
    shutil.rmtree(directory)
    now += 0.1

    written = fill(journal, "s", 1, first=1)

    assert list(journal.read("s")) == written
    with pytest.raises(BusyError):
        Journal.open(directory)
    journal.close()


# --- rotation ----------------------------------------------------------------------------------


def test_a_file_is_closed_for_good_before_it_grows_too_large(directory: Path) -> None:
    size = len(event(0))
    journal = Journal.open(directory, policy=LogPolicy(rotate_bytes=2 * size, min_free_bytes=0))
    written = fill(journal, "s", 7)

    closed = sorted(directory.glob("s@*.jsonl"))
    assert [file.stat().st_size for file in closed] == [2 * size] * 3
    assert list(journal.read("s")) == written
    assert journal.last_position("s") == (1, 6)
    journal.close()


def test_a_closed_file_is_never_written_to_again(directory: Path) -> None:
    policy = LogPolicy(rotate_bytes=2 * len(event(0)), min_free_bytes=0)
    journal = Journal.open(directory, policy=policy)
    fill(journal, "s", 3)
    (closed,) = directory.glob("s@*.jsonl")
    before = (closed.read_bytes(), closed.stat().st_mtime_ns)
    journal.close()
    journal = Journal.open(directory, policy=policy)
    fill(journal, "s", 20, first=3)

    assert (closed.read_bytes(), closed.stat().st_mtime_ns) == before
    journal.close()


def test_a_line_larger_than_a_file_has_one_of_its_own(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(rotate_bytes=100, min_free_bytes=0))
    written = [event(0), event(1, pad=500), event(2)]
    for line in written:
        journal.append("s", line, droppable=False)

    assert list(journal.read("s")) == written
    assert len(list(directory.glob("s*.jsonl"))) == 3
    journal.close()


def test_the_order_holds_when_the_clock_goes_back(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.open(directory, policy=LogPolicy(rotate_bytes=1, min_free_bytes=0))
    written = []
    for seq, now in enumerate([STAMP, STAMP - 10**12, STAMP - 10**12, STAMP - 1]):
        monkeypatch.setattr("time.time_ns", lambda now=now: now)
        written += fill(journal, "s", 1, first=seq)

    assert list(journal.read("s")) == written
    assert len(list(directory.glob("s@*.jsonl"))) == 3
    journal.close()


def test_a_file_that_cannot_be_rotated_grows(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(rotate_bytes=1, min_free_bytes=0))
    with Faults() as faults:
        faults.fail(os, "rename", errno.EACCES)
        written = fill(journal, "s", 5)

    assert list(journal.read("s")) == written
    assert journal.stats.failed == 0
    journal.close()


def test_a_reader_sees_everything_up_to_a_point_while_files_rotate(directory: Path) -> None:
    journal = Journal.open(
        directory, policy=LogPolicy(rotate_bytes=3 * len(event(0)), min_free_bytes=0)
    )
    written = fill(journal, "s", 5)
    seen = []
    for line in journal.read("s"):
        seen.append(line)
        if len(written) < 30:
            written += fill(journal, "s", 1, first=len(written))

    assert len(seen) >= 5
    assert seen == written[: len(seen)]
    journal.close()


@on_disk
@given(
    st.lists(st.tuples(st.sampled_from(["s", "S", "s/"]), st.integers(0, 60)), max_size=40),
    st.integers(1, 300),
    st.integers(1, 3),
)
def test_whatever_is_written_comes_back_in_order_also_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory,
    plan: list[tuple[str, int]],
    rotate_bytes: int,
    limit: int,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    policy = LogPolicy(rotate_bytes=rotate_bytes, open_files=limit, min_free_bytes=0)
    written: dict[str, list[bytes]] = {"s": [], "S": [], "s/": []}
    journal = Journal.open(directory, policy=policy)
    for index, (session, pad) in enumerate(plan):
        line = event(index, session=session, pad=pad)
        journal.append(session, line, droppable=False)
        written[session].append(line)
        if index % 7 == 6:
            journal.close()
            journal = Journal.open(directory, policy=policy)

    assert {session: list(journal.read(session)) for session in written} == written
    assert sorted(journal.sessions()) == sorted(s for s, lines in written.items() if lines)
    journal.close()


# --- positions ---------------------------------------------------------------------------------


def test_the_highest_epoch_is_that_of_any_last_event(directory: Path) -> None:
    directory.mkdir(parents=True, mode=0o700)
    (directory / "a.jsonl").write_bytes(event(0, epoch=3) + event(0, epoch=7))
    (directory / "b.jsonl").write_bytes(event(9, epoch=5) + b"\xff\n")
    (directory / "c.jsonl").write_bytes(b'{"epoch":99}\n{"epoch":true,"seq":1}\n')
    (directory / closed_name("d", STAMP)).write_bytes(event(1, epoch=8))
    journal = Journal.open(directory, policy=ROOMY)

    assert journal.highest_epoch() == 8
    assert journal.last_position("a") == (7, 0)
    assert journal.last_position("b") == (5, 9)
    assert journal.last_position("c") is None
    assert journal.last_position("d") == (8, 1)
    assert journal.last_position("none") is None
    journal.close()


def test_the_last_position_is_found_before_an_empty_or_spoilt_file(
    directory: Path,
) -> None:
    directory.mkdir(parents=True, mode=0o700)
    (directory / closed_name("s", STAMP)).write_bytes(event(1))
    (directory / closed_name("s", STAMP + 1)).write_bytes(event(2) + b"\0\0\0")
    (directory / "s.jsonl").write_bytes(b"\xff\n" * 5000)
    journal = Journal.open(directory, policy=ROOMY)

    assert journal.last_position("s") == (1, 2)
    journal.close()


def test_a_log_that_cannot_be_read_costs_no_other(directory: Path) -> None:
    directory.mkdir(parents=True, mode=0o700)
    (directory / "bad.jsonl").mkdir()
    (directory / f"{stem_of('X' * 500)}.jsonl").mkdir()
    (directory / "good.jsonl").write_bytes(event(2, epoch=4, session="good"))
    journal = Journal.open(directory, policy=ROOMY)

    assert journal.highest_epoch() == 4
    assert journal.last_position("bad") is None
    assert list(journal.sessions()) == ["bad", "good"]
    assert journal.stats.skipped == 4
    with pytest.raises(JournalError):
        list(journal.read("bad"))
    journal.close()


# --- open files --------------------------------------------------------------------------------


def test_the_number_of_open_files_is_bounded(directory: Path) -> None:
    before = open_files()
    journal = Journal.open(directory, policy=LogPolicy(open_files=4, min_free_bytes=0))
    for turn in range(3):
        for session in range(20):
            fill(journal, f"s{session}", 1, first=turn)
    used = open_files() - before

    assert used == 5  # the lock is one
    assert journal.stats.open_files == 4
    assert all(len(list(journal.read(f"s{session}"))) == 3 for session in range(20))
    journal.close()
    assert open_files() == before


def test_the_file_that_was_longest_unused_is_closed_first(directory: Path) -> None:
    journal = Journal.open(directory, policy=LogPolicy(open_files=2, min_free_bytes=0))
    for session in ("a", "b", "a", "c"):
        fill(journal, session, 1)

    with Faults() as faults:
        faults.fail(os, "open", errno.EMFILE)
        fill(journal, "a", 1)
        fill(journal, "c", 1)
        with pytest.raises(JournalError):
            fill(journal, "b", 1)
    journal.close()


def test_reopening_follows_a_file_that_was_moved_away(journal: Journal, directory: Path) -> None:
    fill(journal, "s", 1)
    (directory / "s.jsonl").rename(directory / "s.jsonl.1")
    journal.reopen()
    written = fill(journal, "s", 1, first=1)

    assert (directory / "s.jsonl").read_bytes() == written[0]
    assert (directory / "s.jsonl.1").read_bytes() == event(0)


def test_reopening_follows_a_directory_that_was_moved_away(
    journal: Journal, directory: Path
) -> None:
    fill(journal, "s", 1)
    directory.rename(directory.with_name("old"))
    journal.reopen()

    assert (directory.with_name("old") / "s.jsonl").exists()
    assert list(journal.read("s")) == []
    with pytest.raises(BusyError):
        Journal.open(directory)
    Journal.open(directory.with_name("old")).close()


def test_reopening_into_another_daemons_directory_is_refused_and_keeps_the_lock(
    journal: Journal, directory: Path
) -> None:
    directory.rename(directory.with_name("old"))
    other = Journal.open(directory, policy=ROOMY)

    with pytest.raises(BusyError):
        journal.reopen()
    with pytest.raises(BusyError):
        Journal.open(directory.with_name("old"))
    other.close()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_reopening_where_nobody_lets_us_in_blames_no_other_process(
    journal: Journal, directory: Path, number: int
) -> None:
    fill(journal, "s", 1)
    with Faults() as faults:
        faults.fail(os, "stat", number, times=1)
        with pytest.raises(ConfigError, match=str(directory)):
            journal.reopen()
    journal.reopen()
    fill(journal, "s", 1, first=1)

    assert len(list(journal.read("s"))) == 2
    with pytest.raises(BusyError):
        Journal.open(directory)


def test_a_close_that_fails_is_counted(journal: Journal) -> None:
    fill(journal, "s", 1)
    with Faults() as faults:
        faults.fail(os, "close", errno.EIO, times=1)
        journal.reopen()

    assert journal.stats.failed_syncs == 1
    assert fill(journal, "s", 1)


def test_a_directory_that_cannot_be_listed_is_said(directory: Path) -> None:
    before = open_files()
    with Faults() as faults:
        faults.fail(os, "listdir", errno.EIO)
        with pytest.raises(ConfigError, match=str(directory)):
            Journal.open(directory)
    assert open_files() == before

    journal = Journal.open(directory, policy=ROOMY)
    with Faults() as faults:
        faults.fail(os, "listdir", errno.EIO)
        with pytest.raises(JournalError):
            journal.highest_epoch()
        with pytest.raises(JournalError):
            list(journal.sessions())
    journal.close()


def test_a_file_that_opens_but_cannot_be_read_is_let_go(journal: Journal) -> None:
    fill(journal, "s", 1)
    journal.reopen()
    before = open_files()
    with Faults() as faults:
        faults.fail(os, "pread", errno.EIO)
        with pytest.raises(JournalError) as caught:
            fill(journal, "s", 1)

    assert caught.value.code == "EIO"
    assert open_files() == before


@pytest.mark.parametrize("most", [1, 7, 39, 40, 41])
def test_the_tail_is_the_end_of_what_is_read_over_all_files(directory: Path, most: int) -> None:
    journal = Journal.open(directory, policy=LogPolicy(rotate_bytes=300, min_free_bytes=0))
    lines = fill(journal, "s", 40)
    assert len(list(directory.glob("s@*.jsonl"))) > 3
    assert journal.tail("s", most) == [json.loads(line) for line in lines[-most:]]
    assert journal.tail("another", most) == []
    journal.close()
