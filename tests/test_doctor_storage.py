"""The doctor's look at the log, its disk and the clock: scratch folders, and disks made up."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kimiaepd.doctor import places, storage
from kimiaepd.doctor.check import Check
from kimiaepd.mapping.json_value import JSONObject
from live import Live, scratch
from patients import bad, lines, patient

NOW = dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC)
MIB = 1 << 20


@pytest.fixture
def live() -> Iterator[Live]:
    with scratch() as live:
        yield live


@pytest.fixture
def log_dir(live: Live) -> Path:
    live.where.log_dir.mkdir(parents=True)
    live.where.log_dir.chmod(0o700)
    return live.where.log_dir


def see(
    live: Live, *, now: dt.datetime = NOW, status: JSONObject | None = None
) -> tuple[Check, ...]:
    return storage.examine(patient(live.environ), status, now)


class Disk:
    """What `os.statvfs` says of a disk that is made up."""

    def __init__(self, free_mib: int, *, files: int = 1000, free_files: int = 500) -> None:
        self.f_bavail = free_mib * 256
        self.f_frsize = 4096
        self.f_files = files
        self.f_favail = free_files


def write(file: Path, *, at: dt.datetime = NOW, size: int = 0) -> None:
    file.write_bytes(b"x" * size)
    file.chmod(0o600)
    os.utime(file, (at.timestamp(), at.timestamp()))


# --- the directory -------------------------------------------------------------------------------


def test_a_log_in_order_is_three_good_lines(
    live: Live, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log_dir / "a.jsonl", size=3 * MIB)
    write(log_dir / "notes.txt", size=MIB)
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(5000))
    assert lines(see(live)) == [
        f"ok log directory: {log_dir} is ours alone; files: 1, 3.0 MiB -> None",
        (
            "ok disk space: 4.9 GiB free on the log's disk; the log takes 3.0 MiB of"
            " log.keep_mib = 2048 -> None"
        ),
        "ok clock: 2026-12-01 12:00:00+00:00 -> None",
    ]


def test_what_a_real_daemon_wrote_is_in_order(live: Live) -> None:
    live.start()
    live.ask({"hook_event_name": "SessionStart", "session_id": "s"})
    now = dt.datetime.now(dt.UTC)
    checks = see(live, now=now, status={"pid": live.process.pid if live.process else 0})
    assert bad(check for check in checks if check.name != "disk space") == []


def test_a_log_that_is_not_there_yet_is_well(live: Live) -> None:
    first, *_ = see(live)
    assert lines([first]) == [
        f"ok log directory: {live.where.log_dir} is not there yet; the daemon makes it -> None"
    ]
    assert not live.where.log_dir.parent.exists()


def test_a_link_to_another_disk_is_followed(live: Live, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(mode=0o700)
    live.where.log_dir.parent.mkdir(parents=True)
    live.where.log_dir.symlink_to(tmp_path / "logs")
    first, *_ = see(live)
    assert first.said.startswith(f"{live.where.log_dir} (leads to {tmp_path}/logs) is ours alone")
    (tmp_path / "logs").chmod(0o777)
    assert bad(see(live))[0] == (
        f"finding log directory: {tmp_path}/logs can be written by others (mode 0777) ->"
        f" run: chmod 700 {tmp_path}/logs"
    )


def test_a_file_in_the_place_of_the_log_is_a_finding(live: Live) -> None:
    live.where.log_dir.parent.mkdir(parents=True)
    live.where.log_dir.write_text("")
    assert bad(see(live))[0] == (
        f"finding log directory: {live.where.log_dir} cannot be read: Not a directory ->"
        " set log.dir to a directory of your own"
    )


def test_links_in_a_circle_are_findings_and_no_traceback(live: Live) -> None:
    live.where.log_dir.parent.mkdir(parents=True)
    live.where.log_dir.symlink_to(live.where.log_dir)
    first, second, *_ = bad(see(live))
    assert first.startswith(f"finding log directory: {live.where.log_dir} cannot be read: Too many")
    assert second.startswith(f"finding disk space: {live.where.log_dir} cannot be asked")


def test_a_log_that_cannot_be_made_is_a_finding(live: Live) -> None:
    (live.home / ".aep").write_text("")
    assert bad(see(live))[0] == (
        f"finding log directory: {live.where.log_dir} cannot be read: Not a directory ->"
        " set log.dir to a directory of your own"
    )


def test_a_disk_that_turned_read_only_is_a_finding(
    live: Live, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & os.W_OK)
    assert bad(see(live))[0] == (
        f"finding log directory: {log_dir} cannot be written to -> run: chmod 700 {log_dir}; if the"
        " disk is read-only, set log.dir"
    )


def test_what_is_called_a_log_and_is_no_file_is_named(live: Live, log_dir: Path) -> None:
    write(log_dir / "a.jsonl")
    (log_dir / "b.jsonl").mkdir()
    (log_dir / "c.jsonl").symlink_to(log_dir / "a.jsonl")
    assert bad(see(live))[0] == (
        f"finding log directory: in {log_dir} are files that cannot be written to, or are not ours:"
        " 2, such as b.jsonl -> move them away, or give them back with chown and chmod 600"
    )


def test_a_log_of_another_user_is_named(
    live: Live, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log_dir / "a.jsonl")
    monkeypatch.setattr(places, "check_private", lambda _: None)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "not ours: 1, such as a.jsonl" in bad(see(live))[0]


def test_looking_changes_no_mode(live: Live, log_dir: Path) -> None:
    """`chmod 644` on a log is a person's wish to share it until the daemon says otherwise."""
    write(log_dir / "a.jsonl")
    (log_dir / "a.jsonl").chmod(0o644)
    see(live)
    assert (log_dir / "a.jsonl").stat().st_mode & 0o777 == 0o644


def test_a_log_that_another_daemon_writes_to_is_a_finding(live: Live) -> None:
    with scratch(AEP_LOG_DIR=str(live.home / ".aep/logs")) as other:
        other.start()
        assert other.process is not None
        assert bad(see(live))[0] == (
            f"finding log directory: another daemon (pid {other.process.pid}) writes to"
            f" {live.where.log_dir}: two never share one -> set log.dir to another place, or"
            " stop that daemon"
        )


# --- room ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("disk", "expected"),
    [
        (Disk(512), None),
        (
            Disk(511),
            "warning disk space: 511.0 MiB free on the log's disk, log.min_free_mib = 256:",
        ),
        (
            Disk(256),
            "warning disk space: 256.0 MiB free on the log's disk, log.min_free_mib = 256:",
        ),
        (
            Disk(255),
            (
                "finding disk space: 255.0 MiB free on the log's disk, log.min_free_mib = 256:"
                " events of little weight are counted, not written -> make room on the disk of"
            ),
        ),
        (
            Disk(9999, free_files=0),
            "finding disk space: the log's disk takes no more files: no inode is free -> make room",
        ),
        (Disk(9999, files=0, free_files=0), None),
    ],
)
def test_room(
    live: Live, log_dir: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk, expected: str | None
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    found = bad(see(live))
    if expected is None:
        assert found == []
    else:
        assert len(found) == 1
        assert found[0].startswith(expected)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a second file system")
def test_the_state_directory_has_a_disk_of_its_own(
    live: Live, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.environ["KIMIAEPD_STATE_DIR"] = "/dev/shm"
    live.environ["KIMIAEPD_SOCKET"] = str(live.home / "s")
    monkeypatch.setattr(os, "statvfs", lambda at: Disk(100 if str(at) == "/dev/shm" else 5000))
    assert bad(see(live)) == [
        (
            "finding disk space: 100.0 MiB free on the state directory's disk, log.min_free_mib ="
            " 256: the daemon may lose its record of sessions -> make room on the disk of"
            " /dev/shm, or set log.min_free_mib lower"
        )
    ]


def test_what_was_dropped_for_lack_of_room_is_told_also_when_there_is_room_again(
    live: Live, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(5000))
    assert bad(see(live, status={"log": {"shed": 7}})) == [
        (
            "warning disk space: events of little weight dropped for lack of room: 7 since the"
            " daemon started -> make room; in each session's log an event says how many it misses"
        )
    ]
    assert bad(see(live, status={"log": ["shed"]})) == []


# --- the clock -----------------------------------------------------------------------------------


@pytest.mark.parametrize("year", [1970, 2019, 2100, 9998])
def test_a_clock_that_cannot_be_right_is_a_finding(live: Live, year: int) -> None:
    *_, clock = see(live, now=dt.datetime(year, 1, 1, tzinfo=dt.UTC))
    assert lines([clock]) == [
        (
            f"finding clock: it says {year}-01-01 00:00:00+00:00, and every event will -> set the"
            " clock; with systemd: timedatectl set-ntp true"
        )
    ]


def test_a_clock_that_went_back_is_a_warning(live: Live, log_dir: Path) -> None:
    write(log_dir / "a.jsonl", at=NOW - dt.timedelta(days=1))
    write(log_dir / "b.jsonl", at=NOW + dt.timedelta(hours=1))
    *_, clock = see(live)
    assert lines([clock]) == [
        (
            "warning clock: it says 2026-12-01 12:00:00+00:00, and b.jsonl was written to 3600 s"
            " later: the clock went back -> set the clock; with systemd: timedatectl set-ntp true"
        )
    ]


def test_a_minute_is_no_clock_that_went_back(live: Live, log_dir: Path) -> None:
    write(log_dir / "a.jsonl", at=NOW + dt.timedelta(seconds=59))
    *_, clock = see(live)
    assert lines([clock]) == ["ok clock: 2026-12-01 12:00:00+00:00 -> None"]
