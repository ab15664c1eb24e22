"""Reading back: exactly what comes after a position, through rotations and while written."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimiaepd.relay import backlog as room
from kimiaepd.relay.backlog import Backlog, Extent, Item, line_at, position_in
from kimiaepd.storage.journal import Journal, LogPolicy, Position

ROTATE = 600
"""Bytes: a few lines a file."""


def line(at: Position, filler: str = "") -> bytes:
    event = {"id": f"{at[0]}-{at[1]}", "seq": at[1], "epoch": at[0], "data": {"filler": filler}}
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def write(folder: Path, positions: list[Position], filler: str = "x" * 40) -> Journal:
    journal = Journal.open(folder, policy=LogPolicy(sync="os", rotate_bytes=ROTATE))
    for at in positions:
        journal.append("s", line(at, filler), droppable=False)
    return journal


def everything(backlog: Backlog, most: int = 3) -> list[Position]:
    found: list[Position] = []
    while items := backlog.read(most, 1 << 20):
        found += [item.at for item in items]
    return found


positions = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 60)), min_size=1, max_size=40, unique=True
).map(sorted)


@settings(max_examples=60, deadline=None)
@given(positions, st.data())
def test_exactly_what_comes_after_a_position_is_read_in_order(
    written: list[Position], data: st.DataObject
) -> None:
    after = data.draw(
        st.one_of(st.none(), st.sampled_from(written), st.tuples(st.just(2), st.integers(0, 60)))
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        journal = write(Path(folder), written)
        backlog = Backlog.open(Path(folder), "s", after)
        expected = [at for at in written if after is None or at > after]
        size = sum(len(line(at, "x" * 40)) for at in expected)
        assert backlog.extent == Extent(len(expected), size)
        assert everything(backlog, data.draw(st.integers(1, 7))) == expected
        journal.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=25), st.integers(1, 5))
def test_a_log_that_is_written_and_rotated_meanwhile_is_read_whole(
    rounds: list[int], most: int
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        journal = write(Path(folder), [(1, 0)])
        backlog = Backlog.open(Path(folder), "s", None)
        found: list[Position] = []
        seq = 0
        for count in rounds:
            for _ in range(count):
                seq += 1
                journal.append("s", line((1, seq), "x" * 90), droppable=False)
            found += [item.at for item in backlog.read(most, 1 << 20)]
        found += everything(backlog)
        assert found == [(1, number) for number in range(seq + 1)]
        journal.close()


def test_a_piece_ends_at_its_bounds(tmp_path: Path) -> None:
    journal = write(tmp_path, [(1, seq) for seq in range(10)])
    backlog = Backlog.open(tmp_path, "s", None)
    assert len(backlog.read(4, 1 << 20)) == 4
    assert len(backlog.read(99, 1)) == 1
    assert len(everything(backlog)) == 5
    journal.close()


def test_a_line_that_is_just_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    journal = write(tmp_path, [(1, 0)])
    file = tmp_path / "s.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + line((1, 1))[:20])
    backlog = Backlog.open(tmp_path, "s", (1, 0))
    assert backlog.extent == Extent(0, 0)
    assert backlog.read(9, 1 << 20) == []
    file.write_bytes(whole + line((1, 1)))
    assert [item.at for item in backlog.read(9, 1 << 20)] == [(1, 1)]
    journal.close()


def test_lines_that_are_no_events_are_passed_over(tmp_path: Path) -> None:
    journal = write(tmp_path, [(1, 0)])
    with (tmp_path / "s.jsonl").open("ab") as file:
        file.write(b"garbage \xff\n\n{}\n" + line((1, 1)))
    backlog = Backlog.open(tmp_path, "s", None)
    assert everything(backlog) == [(1, 0), (1, 1)]
    journal.close()


def test_a_session_without_a_log_has_nothing_until_it_has_one(tmp_path: Path) -> None:
    backlog = Backlog.open(tmp_path, "s", None)
    assert backlog.read(9, 1 << 20) == []
    journal = write(tmp_path, [(1, seq) for seq in range(12)])
    assert everything(backlog) == [(1, seq) for seq in range(12)]
    journal.close()


def test_what_is_sent_is_the_line_byte_for_byte_and_has_its_id(tmp_path: Path) -> None:
    journal = write(tmp_path, [(1, 0)], filler='é " \\ \u2028')
    backlog = Backlog.open(tmp_path, "s", None)
    (item,) = backlog.read(9, 1 << 20)
    assert item.line + b"\n" == (tmp_path / "s.jsonl").read_bytes()
    assert item.id == "1-0"
    journal.close()


def test_a_position_in_the_data_is_not_taken_for_the_events_own() -> None:
    tricky = {"subject": '"seq":9,"epoch":9,', "seq": 1, "epoch": 2, "data": {"seq": 7, "epoch": 8}}
    assert position_in(json.dumps(tricky, separators=(",", ":")).encode()) == (2, 1)
    assert position_in(b'{"id":"a"}') is None


def test_one_event_is_found_by_its_position(tmp_path: Path) -> None:
    journal = write(tmp_path, [(1, seq) for seq in range(0, 40, 2)])
    for seq in (0, 20, 38):
        assert line_at(tmp_path, "s", (1, seq)) == line((1, seq), "x" * 40).rstrip(b"\n")
    assert line_at(tmp_path, "s", (1, 21)) is None
    assert line_at(tmp_path, "s", (2, 0)) is None
    assert line_at(tmp_path, "unknown", (1, 0)) is None
    journal.close()


@pytest.mark.parametrize("text", [b"", b"{}", b'{"id":1}'])
def test_a_line_without_an_id_has_none(text: bytes) -> None:
    assert Item("s", (1, 0), text).id is None


def test_what_is_written_between_the_end_of_a_file_and_its_closing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = write(tmp_path, [(1, 0)])
    backlog = Backlog.open(tmp_path, "s", None)
    rest = iter(range(1, 12))
    is_active = room._is_active

    def while_more_is_written(directory: Path, stem: str, inode: tuple[int, int] | None) -> bool:
        for seq in rest:  # all of it at the first end: the first file is closed with some of it
            journal.append("s", line((1, seq), "x" * 40), droppable=False)
        return is_active(directory, stem, inode)

    monkeypatch.setattr(room, "_is_active", while_more_is_written)
    assert everything(backlog, most=99) == [(1, seq) for seq in range(12)]
    journal.close()


def test_nothing_is_held_open_between_two_reads(tmp_path: Path) -> None:
    journal = write(tmp_path, [(1, seq) for seq in range(30)])
    before = len(list(Path("/dev/fd").iterdir()))
    backlogs = [Backlog.open(tmp_path, "s", None) for _ in range(50)]
    for backlog in backlogs:
        assert len(backlog.read(4, 1 << 20)) == 4
    assert len(list(Path("/dev/fd").iterdir())) == before
    for backlog in backlogs:
        assert everything(backlog) == [(1, seq) for seq in range(4, 30)]
    journal.close()


def test_a_file_in_the_place_of_the_one_that_was_read_is_not_read_on_in(tmp_path: Path) -> None:
    journal = write(tmp_path, [(1, 0), (1, 1)])
    backlog = Backlog.open(tmp_path, "s", None)
    assert len(backlog.read(1, 1 << 20)) == 1
    journal.close()
    (tmp_path / "s.jsonl").rename(tmp_path / "elsewhere")
    (tmp_path / "s.jsonl").write_bytes(line((1, 7), "x" * 200) + line((1, 8)))
    assert backlog.read(9, 1 << 20) == []
    assert everything(Backlog.open(tmp_path, "s", (1, 0))) == [(1, 7), (1, 8)]


def test_a_file_that_was_cut_in_the_middle_of_a_line_is_not_read_on_in(tmp_path: Path) -> None:
    journal = write(tmp_path, [(1, 0), (1, 1)])
    backlog = Backlog.open(tmp_path, "s", None)
    assert len(backlog.read(1, 1 << 20)) == 1
    with (tmp_path / "s.jsonl").open("r+b") as file:
        file.truncate(20)
    assert backlog.read(9, 1 << 20) == []
    journal.close()
