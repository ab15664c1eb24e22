"""The relay's token: read late, refused where it is no secret, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimiaepd.errors import ConfigError
from kimiaepd.relay_token import LONGEST, relay_token
from kimiaepd.settings import AbsoluteFile, RelaySettings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    file.chmod(0o600)
    return file


def read(file: Path, **environ: str) -> str | None:
    return relay_token(RelaySettings(token_file=AbsoluteFile(str(file))), environ)


def test_the_variable_wins_over_the_file_and_none_is_an_answer(file: Path) -> None:
    assert relay_token(RelaySettings(), {}) is None
    assert read(file) == "s3cret"
    assert read(file, AEP_TOKEN="other") == "other"


def test_a_rotated_token_is_taken(file: Path) -> None:
    assert read(file) == "s3cret"
    file.write_text("rotated")
    assert read(file) == "rotated"


def test_a_file_that_others_can_read_is_refused_with_the_remedy(file: Path) -> None:
    file.chmod(0o640)
    with pytest.raises(ConfigError, match=r"others can read .* chmod 600"):
        read(file)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"s3cret two", "one line without blanks"),
        (b"s3cret\nmore", "one line without blanks"),
        ("s3crét".encode(), "not plain ASCII"),
        (b"s" * (LONGEST + 1), "one line without blanks"),
    ],
)
def test_what_is_no_token_is_refused_and_not_shown(file: Path, content: bytes, line: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=line) as refused:
        read(file)
    assert "s3cr" not in str(refused.value)


def test_a_missing_file_is_named(file: Path) -> None:
    file.unlink()
    with pytest.raises(ConfigError, match=r"token: the relay's token cannot be read: No such"):
        read(file)
