"""The systemd unit: what it says, and that any path comes through systemd's quoting."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from kimiaepd import errors
from kimiaepd.service import plist, unit
from kimiaepd.service.wanted import CARRIED, Service, _check

GOLDEN = ROOT / "tests/golden"

PLAIN = Service(
    program=("/home/ada/.venv/bin/python", "-P", "-m", "kimiaepd", "run"),
    environment={"HOME": "/home/ada", "AEP_CAPTURE": "redacted"},
    writable=(Path("/home/ada/.local/state/kimiaepd"), Path("/home/ada/.aep/logs/kimi-code")),
    state_dir=Path("/home/ada/.local/state/kimiaepd"),
    stop_seconds=5,
)
ODD = Service(
    program=('/home/Ädä/it\'s "$5" \\ 100%/bin/python', "-P", "-m", "kimiaepd", "run"),
    environment={
        "HOME": "/home/Ädä",
        "KIMIAEPD_STATE_DIR": "/home/Ädä/a\\b; 'c' \"d\" $HOME ${HOME} %h #",
        "AEP_REDACT_NAMES": "MY_KEY, OTHER KEY",
    },
    writable=(Path("/home/Ädä/a\\b; 'c' \"d\" $HOME ${HOME} %h #"),),
    state_dir=Path("/home/Ädä/a\\b; 'c' \"d\" $HOME ${HOME} %h #"),
    stop_seconds=60,
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.service", unit.render(PLAIN)),
        ("odd.service", unit.render(ODD)),
        ("plain.plist", plist.render(PLAIN)),
        ("odd.plist", plist.render(ODD)),
    ],
)
def test_the_files_are_the_golden_ones(name: str, text: str) -> None:
    """To make them anew after a change that was meant: python tests/golden/make.py."""
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


# --- quoting -----------------------------------------------------------------------------------


def words_of(line: str, *, dollars: bool = False) -> list[str]:
    """What systemd makes of a line's value, as far as our lines go: an oracle of its own."""
    found, word, quoted, inside, letters = [], "", False, False, iter(line)
    for letter in letters:
        if letter == "\\":
            escaped = next(letters)
            assert escaped in '\\"', "an escape that means something else to one of the lines"
            word += escaped
        elif letter == '"':
            quoted, inside = not quoted, True
        elif letter == "'":
            assert quoted
            word += letter
        elif letter == " " and not quoted:
            found.append(word)
            word, inside = "", False
        else:
            word, inside = word + letter, True
    assert not quoted
    assert inside
    return [_expanded(word, dollars=dollars) for word in [*found, word]]


def _expanded(word: str, *, dollars: bool) -> str:
    for mark in "%$" if dollars else "%":
        assert mark not in word.replace(mark * 2, ""), f"a {mark} that systemd would expand"
        word = word.replace(mark * 2, mark)
    return word


texts = st.text(
    st.one_of(
        st.sampled_from("\"'\\%$ ;#{}=-:@!+|*?[]~`&<>()"),
        st.characters(exclude_categories=("Cs", "Cc")),
    ),
    min_size=1,
)


def fits(text: str) -> bool:
    """Whether a service may hold it at all."""
    try:
        _check("a test", text)
    except errors.ConfigError:
        return False
    return True


@given(texts.filter(fits))
def test_any_value_comes_through_the_quoting_of_variables_and_directories(text: str) -> None:
    assert words_of(unit.word(text)) == [text]
    assert "\n" not in unit.word(text)


@given(st.lists(texts.filter(fits), min_size=1, max_size=4))
def test_any_command_comes_through_the_quoting_of_a_command(parts: list[str]) -> None:
    program = ("/" + parts[0], *parts[1:])
    head, *rest = words_of(unit.exec_start(program), dollars=True)
    if set("\"'\\$") & set(program[0]):
        # systemd takes no such path for a program.
        assert (head, *rest[:2]) == ("/bin/sh", "-c", 'exec "$0" "$@"')
        head, *rest = rest[2:]
    assert (head, *rest) == program


def test_a_shell_that_becomes_the_program_hands_every_argument_over(tmp_path: Path) -> None:
    odd = tmp_path / 'it\'s "$5" \\ 100% =x'
    odd.mkdir()
    (odd / "python").symlink_to(os.path.realpath(sys.executable))
    line = unit.exec_start(
        (str(odd / "python"), "-c", "import sys; print(sys.argv[1:])", "a b", "$x")
    )
    done = subprocess.run(
        words_of(line, dollars=True), capture_output=True, text=True, check=True, env={}
    )
    assert done.stdout == "['a b', '$x']\n"


@pytest.mark.parametrize(
    "text", ["a\nb", "a\tb", "\x7f", "\x00", "\udcff", "\ufffe", "\ufdd0", "\U0001ffff"]
)
def test_what_no_unit_can_hold_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(errors.ConfigError, match="AEP_LOG_DIR"):
        _check("AEP_LOG_DIR", text)


# --- what systemd says to it -------------------------------------------------------------------


def verify(folder: Path, text: str) -> tuple[int, str]:
    """What `systemd-analyze` complains of."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here")
    file = folder / unit.NAME
    file.write_text(text, encoding="utf-8")
    (folder / "run").mkdir(exist_ok=True)
    done = subprocess.run(
        [program, "--user", "verify", str(file)],
        env={
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "PATH": os.environ["PATH"],
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")


@LINUX
def test_systemd_has_nothing_against_the_unit(tmp_path: Path) -> None:
    text = unit.render(PLAIN).replace(PLAIN.program[0], os.path.realpath(sys.executable))
    assert verify(tmp_path, text) == (0, "")


@LINUX
def test_systemd_is_asked_in_earnest(tmp_path: Path) -> None:
    text = unit.render(PLAIN).replace(PLAIN.program[0], os.path.realpath(sys.executable))
    assert "ProtectSytem" in verify(tmp_path, text.replace("ProtectSystem", "ProtectSytem"))[1]
    status, said = verify(tmp_path, unit.render(PLAIN).replace("/home/ada", "/nowhere"))
    assert status == 1
    assert "not executable" in said


@LINUX
@settings(max_examples=20, deadline=None)
@given(texts.filter(lambda text: fits(text) and "/" not in text and text not in (".", "..")))
def test_systemd_finds_programs_and_takes_directories_of_any_name(name: str) -> None:
    """It checks that a program is there and executable; only a path read right is."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        folder = Path(made).joinpath(*_pieces(name))
        folder.mkdir(parents=True)
        (folder / "python").symlink_to(os.path.realpath(sys.executable))
        service = Service(
            program=(str(folder / "python"), "-P", "-m", "kimiaepd", "run"),
            environment={"HOME": str(folder), "AEP_LOG_DIR": name},
            writable=(folder,),
            state_dir=folder,
            stop_seconds=5,
        )
        assert verify(Path(made), unit.render(service)) == (0, "")


def _pieces(name: str) -> list[str]:
    """A name as long as a file's may be, or several."""
    return [f"x{name[start : start + 50]}" for start in range(0, len(name), 50)]


def test_no_secret_is_ever_carried() -> None:
    assert "AEP_TOKEN" not in CARRIED
    assert {"HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"} < set(CARRIED)
    assert {"KIMIAEPD_CONFIG", "KIMIAEPD_SOCKET", "AEP_RELAY_URL", "AEP_CAPTURE"} < set(CARRIED)
