"""Words of a command: what a shell would hand over, to the character, or nothing at all."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate_corpus import NOT_UNDERSTOOD, PLAIN
from kimiaepd import shell_words

SHELLS = [shell for shell in ("sh", "bash", "zsh", "dash") if shutil.which(shell)]

ALPHABET = " \t'\"ab1=~^%@+-_.,:/;|&$`(){}[]<>*?!#\\\n\x00é\u00a0"
COMMANDS = st.text(ALPHABET, max_size=24)
WORD = st.one_of(
    st.from_regex(r"[A-Za-z0-9_./:@%+,-][A-Za-z0-9_./:@%+,=-]{0,6}", fullmatch=True),
    st.text('ab ;|&$`(){}<>*?!#\\~^=é"', max_size=6).map(lambda text: f"'{text}'"),
    st.text("ab ;|&(){}<>*?#~^='é", max_size=6).map(lambda text: f'"{text}"'),
    st.sampled_from(['"\\""', '"\\\\"', "a~1", "b^", "''", '""', "x'y'\"z\""]),
)
LISTS = st.lists(WORD, min_size=1, max_size=8).map(" ".join)


def seen_by(shell: str, commands: list[str]) -> list[tuple[str, ...]]:
    """The words that a shell hands to a program, for each command.

    The words are printf's own, one NUL behind each and an empty line of them between commands.
    """
    script = "\n".join(f"printf '%s\\0' x {command}\nprintf '\\1'" for command in commands)
    done = subprocess.run([shell, "-c", script], capture_output=True, timeout=30, check=True)
    *found, rest = done.stdout.decode().split("\1")
    assert rest == ""
    return [tuple(one.split("\0")[1:-1]) for one in found]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_sees_the_same_words_in_the_corpus(shell: str) -> None:
    commands = [command for command, *_ in PLAIN]
    assert seen_by(shell, commands) == [shell_words.split(command) for command in commands]


def test_a_shell_sees_the_same_words_in_whatever_is_understood() -> None:
    """A few hundred generated commands, in one run of each shell."""
    understood: list[str] = []

    @given(st.one_of(COMMANDS, LISTS))
    def collect(command: str) -> None:
        if shell_words.split(command) is not None:
            understood.append(command)

    collect()
    assert len(understood) > 20
    for shell in SHELLS:
        found = seen_by(shell, understood)
        assert found == [shell_words.split(command) for command in understood]


@pytest.mark.parametrize("command", NOT_UNDERSTOOD, ids=lambda command: ascii(command)[:40])
def test_what_is_more_than_words_is_not_understood(command: str) -> None:
    assert shell_words.split(command) is None


@given(LISTS)
def test_lists_of_plain_words_are_understood(command: str) -> None:
    first = command.split(maxsplit=1)[0]
    if "=" not in first and first not in ("''", '""') and not first.startswith(("'", '"')):
        assert shell_words.split(command) is not None


def outside_quotes(command: str) -> str:
    """What of a command no quote covers, by the plainest reading of quotes there is."""
    kept, quote, escaped = [], "", False
    for letter in command:
        if escaped:
            escaped = False
        elif quote == '"' and letter == "\\":
            escaped = True
        elif letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote = letter
        elif not quote:
            kept.append(letter)
    return "".join(kept)


@given(st.one_of(COMMANDS, LISTS, st.text()))
def test_no_metacharacter_outside_quotes_is_ever_understood(command: str) -> None:
    if shell_words.split(command) is None:
        return
    bare = outside_quotes(command)
    assert not set(bare) & set(";&|\n\r`$(){}[]<>*?!#\\\"'\x00")
    assert bare.isascii()
    assert "\n" not in command


@given(st.one_of(COMMANDS, LISTS), st.sampled_from(";&|\n`$(){}<>*?!#\\"))
def test_a_metacharacter_behind_any_command_ends_the_understanding(command: str, mark: str) -> None:
    if shell_words.split(command) is not None:
        assert shell_words.split(f"{command} {mark} x") is None
