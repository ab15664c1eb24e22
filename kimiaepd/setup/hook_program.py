"""Whose hook it is: the program that a registered command runs, as far as its text says.

Rules:
- What stands around a program is passed over: assignments, `exec`, `env`, guards such as
  `[ -x FILE ] &&`, and a shell or an interpreter in front of its script.
- It is for people and a best effort: no shell's grammar is here, nothing is expanded, nothing run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from attrs import frozen

_OPERATORS = "();<>|&\n"
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
_SHELL = re.compile(r"(?:ba|da|z|k|fi|a)?sh")
_VERSION = re.compile(r"[\d.]+\Z")

_BEFORE = frozenset((
    "if", "then", "elif", "else", "while", "until", "do", "!", "{", "exec", "command", "builtin",
    "nohup", "setsid", "time", "sudo", "doas",
))  # fmt: skip
"""What stands before a command, with options of its own or none."""

_IDLE = frozenset((
    "[", "[[", "test", ":", "true", "false", "trap", "cd", "set", "unset", "export", "local",
    "declare", "umask", "ulimit", "echo", "printf", "read", "return", "exit", "shift", "type",
    "hash", "which", "wait", "sleep", ".", "source", "cat", "for", "case", "fi", "done", "esac",
    "}",
))  # fmt: skip
"""What runs nobody's program, and so says of nobody whose hook it is."""

_MOST_CHARACTERS = 4096
_MOST_WORDS = 64
"""Of a command that is looked at: more of it names nobody, and it may be of any length."""


@frozen
class _Runner:
    """A program that runs another one.

    Attributes:
        inline: the options whose value is the program's text, so that it has no name.
        valued: the options whose value is something else.
        words: the sub-commands that mean to run something.
    """

    inline: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()


_SCRIPTED = _Runner(frozenset(("-e", "-E", "-r")), frozenset(("-I",)))
_NODE = _Runner(
    frozenset(("-e", "--eval", "-p", "--print")),
    frozenset(("-r", "--require", "--import", "--loader", "--env-file")),
    frozenset(("run", "x")),
)
_UV_OPTIONS = frozenset((
    "--with", "--with-requirements", "-p", "--python", "--project", "--directory", "--from",
    "--env-file", "--extra", "--group", "--index-url",
))  # fmt: skip
_NPX = _Runner(frozenset(("-c", "--call")), frozenset(("-p", "--package")), frozenset(("exec",)))

_RUNNERS: Mapping[str, _Runner] = {
    "python": _Runner(frozenset(("-c",)), frozenset(("-X", "-W"))),
    "pypy": _Runner(frozenset(("-c",)), frozenset(("-X", "-W"))),
    "node": _NODE,
    "nodejs": _NODE,
    "bun": _NODE,
    "deno": _NODE,
    "tsx": _NODE,
    "uv": _Runner(valued=_UV_OPTIONS, words=frozenset(("run",))),
    "uvx": _Runner(valued=_UV_OPTIONS),
    "npx": _NPX,
    "bunx": _NPX,
    "pipx": _Runner(valued=frozenset(("--spec", "--python")), words=frozenset(("run",))),
    "ruby": _SCRIPTED,
    "perl": _SCRIPTED,
    "php": _SCRIPTED,
    "osascript": _SCRIPTED,
}


def program(command: str) -> str | None:
    """The program that a command runs, as it is spelt there; None where it cannot be told."""
    try:
        commands = list(_simple_commands(command[:_MOST_CHARACTERS]))
    except ValueError:  # a quote without its partner
        return None
    names = (_named(words[:_MOST_WORDS]) for words in commands)
    return next((name for name in names if name), None)


def _simple_commands(command: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    after_redirection = False
    for token in lexer:
        if not token or token.strip(_OPERATORS):
            if not after_redirection:
                words.append(token)
            after_redirection = False
        elif after_redirection := token[-1] in "<>" or token in (">&", "<&", ">|"):
            if words and words[-1].isdigit():  # 2>/dev/null
                words.pop()
        else:
            yield words
            words = []
    yield words


def _named(words: list[str]) -> str | None:
    """The program of one simple command; None where it is only a guard or the like."""
    while words:
        first, *words = words
        name = PurePosixPath(first).name
        if _ASSIGNMENT.fullmatch(first):
            continue
        if first == "command" and words[:1] in (["-v"], ["-V"]):
            return None
        if name in _BEFORE or name in ("env", "nice", "timeout", "stdbuf"):
            words = _after_options(name, words)
        elif first in _IDLE:
            return None
        else:
            return _run_by(first, words) or first
    return None


def _after_options(name: str, words: list[str]) -> list[str]:
    valued = {"env": ("-u", "-C"), "nice": ("-n",), "timeout": ("-s", "-k"), "sudo": ("-u", "-g")}
    while words and words[0].startswith("-"):
        words = words[2 if words[0] in valued.get(name, ()) else 1 :]
    return words[1:] if name == "timeout" else words


def _run_by(first: str, words: list[str]) -> str | None:
    """What a shell or an interpreter runs; None where it is neither, or that has no name."""
    name = PurePosixPath(first).name
    if _SHELL.fullmatch(name):
        return _run_by_shell(words)
    runner = _RUNNERS.get(name) or _RUNNERS.get(_VERSION.sub("", name))
    while runner and words:
        word, *words = words
        if word in runner.inline:
            return None
        if word == "-m":
            return words[0] if words else None
        if word in runner.valued:
            words = words[1:]
        elif not word.startswith("-") and word not in runner.words:
            return _named([word, *words])
    return None


def _run_by_shell(words: list[str]) -> str | None:
    while words:
        word, *words = words
        if re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", word):
            return program(words[0]) if words else None
        if word in ("-o", "+o", "--rcfile", "--init-file"):
            words = words[1:]
        elif not word.startswith(("-", "+")):
            return word
    return None
