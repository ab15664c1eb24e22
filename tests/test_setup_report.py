"""What an install tells: the diff to the byte, and the object for programs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.setup.config_edit import Action
from kimiaepd.setup.report import Report

CONFIG = Path("/k/config.toml")


def report(old: bytes | None, new: bytes) -> Report:
    return Report(CONFIG, Action.ADDED, old, new, Path("/d/shim.py"))


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\r"])
def test_only_a_newline_ends_a_line_of_the_diff(separator: str) -> None:
    line = f"a = 'x{separator}y'\n"
    diff = report(line.encode(), f"{line}b = 1\n".encode()).diff()
    assert diff == f"--- {CONFIG}\n+++ {CONFIG}\n@@ -1 +1,2 @@\n {line}+b = 1\n"


def test_a_carriage_return_before_the_newline_stays_as_it_is() -> None:
    assert report(b"a = 1\r\n", b"a = 1\r\nb = 2\r\n").diff().endswith(" a = 1\r\n+b = 2\r\n")


text = st.text(st.sampled_from("a=\n\r\x0c\x85\u2028é"), max_size=20).map(str.encode)


def patched(old: bytes, diff: str) -> bytes:
    """What `patch` makes of a file, by the letter of the format."""
    lines = [f"{line}\n" for line in old.decode().split("\n")]
    lines[-1] = lines[-1].removesuffix("\n")
    made, at, last = "", 0, " "
    for line in diff.split("\n")[2:-1]:
        if hunk := re.fullmatch(r"@@ -(\d+)(,0)?.*@@", line):
            start = int(hunk[1]) - (0 if hunk[2] else 1)
            made += "".join(lines[at:start])
            at = start
        elif line == "\\ No newline at end of file":
            made = made.removesuffix("\n") if last != "-" else made
        else:
            last = line[0]
            made += f"{line[1:]}\n" if last != "-" else ""
            at += last != "+"
    return (made + "".join(lines[at:])).encode()


@given(text, text)
def test_the_diff_leads_from_the_old_file_to_the_new_one(old: bytes, new: bytes) -> None:
    diff = report(old, new).diff()
    assert patched(old, diff) == new
    assert bool(diff) == (old != new)


def test_a_name_with_a_newline_stays_on_its_line() -> None:
    odd = Report(Path("/a\nb"), Action.ADDED, None, b"x\n", Path("/d"))
    assert odd.diff().splitlines()[1] == "+++ '/a\\nb'"


def test_the_object_for_programs_says_all_in_fixed_names() -> None:
    found = Report(
        CONFIG, Action.REFRESHED, b"", b"x", Path("/d/shim.py"), Action.ADDED,
        events=("Stop",), backup=Path("/k/copy"), warnings=("line 1: odd",),
    ).as_json()  # fmt: skip
    assert found == {
        "config": "/k/config.toml",
        "action": "refreshed",
        "changed": True,
        "events": ["Stop"],
        "backup": "/k/copy",
        "shim": {"path": "/d/shim.py", "action": "added", "kept": None},
        "warnings": ["line 1: odd"],
    }
