from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import Faults
from kimiaepd.storage import log_files
from kimiaepd.storage.log_files import (
    TornWriteError,
    closed_stamps,
    lines,
    lines_backward,
    repair_tail,
    stems_in,
    write_line,
)
from log_helpers import on_disk

ONE = '{"n":1,"t":"é"}\n'.encode()
TWO = b'{"n":2}\n'

text_lines = st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"") + b"\n")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "x.jsonl"
    path.write_bytes(ONE)
    return path


@pytest.fixture
def descriptor(log: Path) -> int:
    return os.open(log, os.O_RDWR | os.O_APPEND)


def torn(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in path.parent.glob("*.torn-*")]


# --- writing -----------------------------------------------------------------------------------


def test_a_line_is_one_write(log: Path, descriptor: int) -> None:
    with Faults() as faults:
        faults.fail(os, "write", errno.EIO, after=1)
        write_line(descriptor, TWO)

    assert faults.calls["write"] == 1
    assert log.read_bytes() == ONE + TWO


@pytest.mark.parametrize("length", range(len(TWO)))
def test_a_line_cut_short_is_taken_back_and_written_again(
    log: Path, descriptor: int, length: int
) -> None:
    with Faults() as faults:
        faults.cut_writes(length)
        write_line(descriptor, TWO)

    assert log.read_bytes() == ONE + TWO


@pytest.mark.parametrize("room", range(len(TWO)))
def test_a_full_disk_leaves_the_file_at_a_line_boundary(
    log: Path, descriptor: int, room: int
) -> None:
    with Faults() as faults:
        faults.disk_takes(room)
        with pytest.raises(OSError, match=r"space|room") as caught:
            write_line(descriptor, TWO)

    assert caught.value.errno == errno.ENOSPC
    assert log.read_bytes() == ONE


def test_a_line_cut_short_twice_is_not_there(log: Path, descriptor: int) -> None:
    with Faults() as faults:
        faults.cut_writes(3, 5)
        with pytest.raises(OSError, match="a part of the line"):
            write_line(descriptor, TWO)

    assert log.read_bytes() == ONE


def test_a_part_that_cannot_be_taken_back_is_said_to_be_there(log: Path, descriptor: int) -> None:
    with Faults() as faults:
        faults.cut_writes(3)
        faults.fail(os, "ftruncate", errno.EIO)
        with pytest.raises(TornWriteError):
            write_line(descriptor, TWO)

    assert log.read_bytes() == ONE + TWO[:3]


# --- the tail ----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(len(ONE + TWO) + 1))
def test_a_file_cut_anywhere_keeps_its_whole_lines_and_the_rest_aside(
    tmp_path: Path, length: int
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes((ONE + TWO)[:length])
    whole = ONE + TWO if length == len(ONE + TWO) else ONE if length >= len(ONE) else b""
    rest = (ONE + TWO)[len(whole) : length]

    assert repair_tail(path) == bool(rest)
    assert path.read_bytes() == whole
    assert torn(path) == ([rest] if rest else [])
    assert repair_tail(path) is False


@on_disk
@given(st.lists(text_lines), st.binary(max_size=200), st.integers(0, 200_000))
def test_any_tail_is_moved_but_for_its_nul_bytes(
    tmp_path_factory: pytest.TempPathFactory, before: list[bytes], tail: bytes, nuls: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "x.jsonl"
    tail = tail.replace(b"\n", b"") + b"\0" * nuls
    path.write_bytes(b"".join(before) + tail)

    repair_tail(path)

    assert path.read_bytes() == b"".join(before)
    assert b"".join(torn(path)) == tail.rstrip(b"\0")


def test_a_tail_of_nul_bytes_alone_leaves_no_file(log: Path) -> None:
    log.write_bytes(ONE + b"\0" * 100_000)

    assert repair_tail(log)
    assert log.read_bytes() == ONE
    assert torn(log) == []


def test_a_tail_much_longer_than_a_block_is_moved_whole(log: Path) -> None:
    tail = os.urandom(300_000).replace(b"\n", b"") + b"end"
    log.write_bytes(ONE + tail)

    repair_tail(log)

    assert log.read_bytes() == ONE
    assert torn(log) == [tail]


def test_a_tail_moved_in_short_writes_is_whole(log: Path) -> None:
    log.write_bytes(ONE + b"tail\0\0")

    with Faults() as faults:
        faults.cut_writes(1, 2)
        repair_tail(log)

    assert torn(log) == [b"tail"]


def test_a_tail_that_is_not_wanted_is_only_cut(log: Path) -> None:
    log.write_bytes(ONE + b"tail")

    assert repair_tail(log, keep=False)
    assert log.read_bytes() == ONE
    assert torn(log) == []


def test_a_tail_that_cannot_be_saved_stays(log: Path) -> None:
    log.write_bytes(ONE + b"tail")

    with Faults() as faults:
        faults.disk_takes(2)
        with pytest.raises(OSError, match="space"):
            repair_tail(log)

    assert log.read_bytes() == ONE + b"tail"
    assert torn(log) == []


def test_a_link_is_not_followed_to_be_repaired(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"no newline")
    (tmp_path / "x.jsonl").symlink_to(tmp_path / "precious")

    with pytest.raises(OSError, match=r"symbolic|link"):
        repair_tail(tmp_path / "x.jsonl")
    assert (tmp_path / "precious").read_bytes() == b"no newline"


# --- reading -----------------------------------------------------------------------------------


@given(st.lists(text_lines), st.binary(max_size=20), st.integers(1, 8))
def test_both_ways_give_the_same_whole_lines(written: list[bytes], tail: bytes, block: int) -> None:
    file = io.BytesIO(b"".join(written) + tail.replace(b"\n", b""))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "_LAST_BLOCK", block)
        backward = list(lines_backward(file))
    file.seek(0)

    assert list(lines(file)) == written
    assert backward == written[::-1]


def test_a_line_longer_than_any_of_ours_is_one_bad_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "MAX_LINE", 8)
    long = b'x{"n":3}' * 3

    assert list(lines(io.BytesIO(ONE[-8:] + long + b"\n" + TWO))) == [ONE[-8:], b"\n", TWO]
    assert list(lines(io.BytesIO(long))) == [b"\n"]


def test_a_long_last_line_is_read_without_reading_it_again_and_again() -> None:
    class Counting(io.BytesIO):
        got = 0

        def read(self, size: int | None = -1) -> bytes:
            block = super().read(size)
            self.got += len(block)
            return block

    file = Counting(ONE + b"x" * (8 << 20) + b"\n")

    assert len(next(lines_backward(file))) == (8 << 20) + 1
    assert file.got <= len(file.getvalue())


def test_the_files_of_a_directory_are_sorted_out(tmp_path: Path) -> None:
    stamp = 1_764_524_000_123_456_789
    for name in (
        "x.jsonl",
        f"x@{stamp + 1}.jsonl",
        f"x@{stamp}.jsonl",
        f"x@{stamp + 2}.jsonl.torn-{stamp}",
        f"x.y@{stamp + 3}.jsonl",
        f"z.jsonl.torn-{stamp}",
        ".lock",
        "Foreign.jsonl",
    ):
        (tmp_path / name).touch()

    assert stems_in(tmp_path) == {"x", "x.y"}
    assert closed_stamps(tmp_path, "x") == [stamp, stamp + 1]
    assert closed_stamps(tmp_path, "none") == []
