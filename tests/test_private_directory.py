"""Directories that are ours alone: made right under any umask, refused when they are not."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kimiaepd.errors import ConfigError
from kimiaepd.storage.private_directory import check_private, create_closed, create_private


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Each umask that somebody may have, put back afterwards."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_every_missing_directory_is_made_for_us_alone(tmp_path: Path) -> None:
    create_private(tmp_path / "a/b/c")
    for folder in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


def test_a_directory_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o755)
    create_private(tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_one_that_others_can_write_to_is_refused_with_the_cure(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "it's open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}") as caught:
        create_private(folder)
    (_, cure) = str(caught.value).split("run: ")
    assert os.system(cure) == 0
    check_private(folder)


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(ConfigError, match="symbolic link"):
        create_private(tmp_path / "link")


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="symbolic link"):
        create_private(tmp_path / "link")


def test_another_users_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(ConfigError, match=f"belongs to uid {mine}"):
        create_private(tmp_path)


def test_a_file_is_refused_also_as_a_parent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="not a directory"):
        create_private(tmp_path / "file")
    with pytest.raises(ConfigError, match="Not a directory"):
        create_private(tmp_path / "file/below")


def test_a_missing_one_is_an_error_to_check(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        check_private(tmp_path / "missing")


def test_a_closed_directory_is_closed_to_readers_too(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to("a")
    create_closed(tmp_path / "link")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777])
def test_a_closed_directory_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(mode)
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(ConfigError, match=f"chmod 700 {tmp_path}/a"):
        create_closed(tmp_path / "link")


def test_a_file_in_the_place_of_a_closed_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    for place in ("f", "f/g"):
        with pytest.raises(ConfigError, match=str(tmp_path / "f")):
            create_closed(tmp_path / place)


def test_a_circle_of_links_is_an_error_for_people(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(ConfigError, match="cannot use"):
        create_closed(tmp_path / "one")
