"""Installing the CLI: an interrupted one is begun again, a whole one is kept. No network needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from vendor import install as room


class Npm:
    """Stands in for npm: makes two files, and is interrupted between them where it is told so."""

    def __init__(self) -> None:
        self.calls = 0
        self.interrupt = False

    def __call__(self, version: str, place: Path) -> None:
        self.calls += 1
        assert list(place.iterdir()) == [], "began in what another one left"
        (place / "first").write_text(version)
        if self.interrupt:
            raise KeyboardInterrupt
        (place / "second").write_text(version)


@pytest.fixture
def npm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Npm:
    npm = Npm()
    monkeypatch.setattr(room, "FOLDER", tmp_path / ".vendor")
    monkeypatch.setattr(room, "_npm_install", npm)
    monkeypatch.setattr(room, "_check", lambda *_: None)
    return npm


def test_an_interrupted_install_is_begun_again(npm: Npm, tmp_path: Path) -> None:
    npm.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        room.install("9.9.9")
    assert not (tmp_path / ".vendor/kimi-9.9.9").exists()

    npm.interrupt = False
    room.install("9.9.9")

    assert (tmp_path / ".vendor/kimi-9.9.9/second").exists()


def test_a_whole_install_is_kept(npm: Npm) -> None:
    assert room.install("9.9.9") == room.install("9.9.9")
    assert npm.calls == 1


def test_a_registry_that_does_not_answer_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(room, "FOLDER", tmp_path / ".vendor")
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))

    with pytest.raises(room.UnavailableError, match=r"npm did not give .*kimi-code@2\.1\.0"):
        room.install("2.1.0")
