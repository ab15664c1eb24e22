"""The file that a manager reads, and the programs that are run: whole, ours, and in time."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kimiaepd.errors import ConfigError
from kimiaepd.service.own_file import OwnFile
from kimiaepd.service.tool import Done, ToolError, run

TEXT = "# ours\nsomething\n"


@pytest.fixture
def file(tmp_path: Path) -> OwnFile:
    return OwnFile(tmp_path / "a/b/k.service", "# ours")


def test_what_was_written_is_read_and_readable_for_the_manager(file: OwnFile) -> None:
    assert file.read() is None
    old = os.umask(0o077)
    try:
        file.write(TEXT)
    finally:
        os.umask(old)
    assert file.read() == TEXT
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o644
    assert [path.name for path in file.path.parent.iterdir()] == ["k.service"]
    file.remove()
    file.remove()
    assert file.read() is None


@pytest.mark.parametrize("content", [b"", b"[Service]\n", b"x # ours\n", b"\xff\n", b"# ours!\n"])
def test_a_file_of_somebody_else_is_refused_and_stays(file: OwnFile, content: bytes) -> None:
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(content)
    with pytest.raises(ConfigError, match="was not made by") as refused:
        file.read()
    assert str(file.path) in str(refused.value)
    assert "mv " in str(refused.value)
    assert file.path.read_bytes() == content


def test_a_link_is_somebody_elses_as_a_masked_unit_is(file: OwnFile, tmp_path: Path) -> None:
    file.path.parent.mkdir(parents=True)
    for target in ("/dev/null", str(tmp_path / "nowhere")):
        file.path.symlink_to(target)
        with pytest.raises(ConfigError, match="was not made by"):
            file.read()
        file.path.unlink()


def test_trouble_is_one_line_that_names_the_file(file: OwnFile, tmp_path: Path) -> None:
    file.path.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"k\.service: cannot be read: Is a directory"):
        file.read()
    with pytest.raises(ConfigError, match=r"k\.service: cannot be written"):
        file.write(TEXT)
    with pytest.raises(ConfigError, match=r"k\.service: cannot be removed"):
        file.remove()
    assert [path.name for path in file.path.parent.iterdir()] == ["k.service"]


# --- programs ----------------------------------------------------------------------------------


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    return tmp_path


def program(folder: Path, text: str) -> None:
    path = folder / "ctl"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


async def test_a_program_is_found_on_path_and_gets_its_words_as_they_are(bin_folder: Path) -> None:
    program(bin_folder, 'printf "%s|" "$@"; cat; echo "$LC_ALL"')
    done = await run("ctl", "a b", "$x;`id`", "")
    assert done.ok().out == "a b|$x;`id`||C\n"


async def test_a_failure_is_one_line_that_a_terminal_can_bear(bin_folder: Path) -> None:
    program(bin_folder, 'printf "no \\033[31mbus\\nsecond line\\n" >&2; exit 3')
    done = await run("ctl", "start", "a b")
    with pytest.raises(ToolError) as failed:
        done.ok()
    assert str(failed.value) == "ctl start 'a b': no \ufffd[31mbus"
    assert done.status == 3


async def test_a_silent_failure_says_its_status(bin_folder: Path) -> None:
    with pytest.raises(ToolError, match=r"^ctl: status 7$"):
        Done(("ctl",), 7, "", "").ok()


async def test_a_program_that_is_missing_or_none_is_said(bin_folder: Path) -> None:
    with pytest.raises(ToolError, match=r"^ctl is not on PATH$"):
        await run("ctl")
    (bin_folder / "ctl").write_text("#!/nowhere/interpreter\n")
    (bin_folder / "ctl").chmod(0o755)
    with pytest.raises(ToolError, match="ctl: cannot be run: No such file"):
        await run("ctl")


async def test_a_program_that_hangs_is_ended(bin_folder: Path) -> None:
    program(bin_folder, "trap '' TERM; echo $$ > \"$0.pid\"; while :; do sleep 0.05; done")
    with pytest.raises(ToolError, match=r"^ctl x: did not end within 0\.3 s$"):
        await run("ctl", "x", seconds=0.3)
    pid = int((bin_folder / "ctl.pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
