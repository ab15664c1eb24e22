"""The installed shim: whole or not at all, and only what changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import kimiaepd
from kimiaepd.errors import ConfigError
from kimiaepd.setup import installed_shim


def test_the_source_is_the_packages_own_shim() -> None:
    package = Path(kimiaepd.__file__).parent
    assert installed_shim.source() == (package / "shim.py").read_bytes()


def test_installing_makes_the_place_and_a_second_time_touches_nothing(tmp_path: Path) -> None:
    place = tmp_path / "data/kimiaepd/shim.py"
    assert installed_shim.install(place, b"one")
    before = place.stat()
    assert not installed_shim.install(place, b"one")
    assert place.stat().st_ino == before.st_ino
    assert stat.S_IMODE(before.st_mode) == 0o644
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700


def test_an_old_shim_is_replaced_whole(tmp_path: Path) -> None:
    place = tmp_path / "shim.py"
    installed_shim.install(place, b"one")
    with place.open("rb") as running:
        assert installed_shim.install(place, b"two")
        assert running.read() == b"one"
    assert place.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [place]


def test_a_disk_that_is_full_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "shim.py"
    installed_shim.install(place, b"one")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigError, match=r"shim\.py: .* No space left"):
        installed_shim.install(place, b"two")
    assert place.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [place]


def test_a_place_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/shim\.py"):
        installed_shim.install(tmp_path / "file/shim.py", b"one")


def test_removing_takes_the_empty_directory_too_and_nothing_else(tmp_path: Path) -> None:
    alone, shared = tmp_path / "alone/shim.py", tmp_path / "shared/shim.py"
    installed_shim.install(alone, b"")
    installed_shim.install(shared, b"")
    (shared.parent / "other").write_text("")
    assert installed_shim.remove(alone)
    assert installed_shim.remove(shared)
    assert not installed_shim.remove(alone)
    assert [path.name for path in tmp_path.rglob("*")] == ["shared", "other"]
