r"""A shell command as the plain list of words that it is, or None where it is anything more.

Rules:
- What is not understood is not guessed at: None. Understood are ASCII words, text in single quotes,
  and text in double quotes without `$`, a backtick or `!`, with `\"` and `\\` for those two.
- So nothing that a shell expands, joins, redirects or runs beside the command gets through, nor a
  newline or another control character, quoted or not, nor a character that one shell takes for
  text and another for a pattern (`^`, `~` and `=` where a word begins).
- A command that begins with a word of the shell's grammar (`if`, `time`, `!`) or with an assignment
  is not understood.

The words are what sh, bash and zsh would hand to the program, to the character. What the program
makes of them is its own business: `env`, `xargs` and `sh -c` run other programs.
"""

from __future__ import annotations

import re

LONGEST = 65_536
"""Characters of a command that are looked at; a longer one is not understood."""

_PIECE = re.compile(
    r"""(?P<blank>[ \t]+)
      | '(?P<single>[^'\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*)'
      | "(?P<double>(?:[^"\\$`!\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\\["\\])*+)"
      | (?P<plain>[A-Za-z0-9_./:@%+,-]
          [A-Za-z0-9_./:@%+,=-]*+)
      | (?<=[A-Za-z0-9])(?P<mark>[~^])""",
    re.VERBOSE,
)

_GRAMMAR = frozenset(
    """case coproc do done elif else end esac fi for foreach function if in nocorrect noglob
    repeat select then time until while""".split()  # noqa: SIM905 - a list of words is read best so
)
"""Words that are no program where a command begins; the last few are zsh's."""


def split(command: str) -> tuple[str, ...] | None:
    """The words of a command; None where it is not one plain list of at least one word."""
    if len(command) > LONGEST:
        return None
    words: list[str] = []
    word: str | None = None
    at = 0
    while at < len(command):
        piece = _PIECE.match(command, at)
        if piece is None:
            return None
        at = piece.end()
        if piece.lastgroup == "blank":
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + _text(piece)
    words += [] if word is None else [word]
    return tuple(words) if words and _is_program(words[0]) else None


def _text(piece: re.Match[str]) -> str:
    kind = piece.lastgroup or ""
    if kind == "double":
        return re.sub(r'\\(["\\])', r"\1", piece[kind])
    return piece[kind]


def _is_program(first: str) -> bool:
    return bool(first) and "=" not in first and first not in _GRAMMAR
