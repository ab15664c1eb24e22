from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import Faults
from kimiaepd.errors import ConfigError
from kimiaepd.storage.epoch import EPOCH_NAME, next_epoch
from log_helpers import on_disk


def test_it_goes_up_by_one_at_each_start(tmp_path: Path) -> None:
    assert [next_epoch(tmp_path, 0) for _ in range(4)] == [1, 2, 3, 4]
    assert stat.S_IMODE((tmp_path / EPOCH_NAME).stat().st_mode) == 0o600


def test_it_is_above_any_that_is_in_use(tmp_path: Path) -> None:
    assert [next_epoch(tmp_path, least) for least in (7, 3, 9, 20)] == [8, 9, 10, 21]


@on_disk
@given(st.binary(max_size=40))
def test_a_file_that_makes_no_sense_is_as_good_as_none(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    state_dir = tmp_path_factory.mktemp("state")
    (state_dir / EPOCH_NAME).write_bytes(content)
    first = next_epoch(state_dir, 5)

    assert first >= 6
    assert next_epoch(state_dir, 5) == first + 1


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0\0\0", b"12", b"-3\n", b"1e9\n", b"12\n13\n", b" 12\n", b"\xff\n", b"9" * 60],
)
def test_half_a_number_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / EPOCH_NAME).write_bytes(content)

    assert next_epoch(tmp_path, 2) == 3


def test_a_directory_or_a_link_in_its_place_is_named_or_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"77\n")
    (tmp_path / EPOCH_NAME).symlink_to(tmp_path / "precious")

    assert next_epoch(tmp_path, 0) == 1
    assert (tmp_path / "precious").read_bytes() == b"77\n"
    (tmp_path / EPOCH_NAME).unlink()
    (tmp_path / EPOCH_NAME).mkdir()
    with pytest.raises(ConfigError, match=str(tmp_path / EPOCH_NAME)):
        next_epoch(tmp_path, 0)


def test_an_epoch_that_cannot_be_written_down_is_not_given_out(tmp_path: Path) -> None:
    next_epoch(tmp_path, 0)
    for name, number in (("write", errno.ENOSPC), ("rename", errno.EIO), ("fsync", errno.EIO)):
        with Faults() as faults:
            faults.fail(os, name, number)
            with pytest.raises(ConfigError, match=str(tmp_path)):
                next_epoch(tmp_path, 0)

    assert next_epoch(tmp_path, 0) >= 2
