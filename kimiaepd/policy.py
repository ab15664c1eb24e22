"""What becomes of a tool call before anybody is asked: it passes, is held, or is denied.

Rules, in this order:
1. A call of a tool that is not gated passes.
2. A rejecting rule that matches denies, in every mode.
3. A rejecting rule whose matter cannot be read in this call (a command that is no plain list of
   words, a path that is not understood) holds it, in every mode: it may be what the rule is about.
4. In `yolo` everything else passes. Rules of the session's own people (`allow_session`) let a call
   pass in `manual` and `auto`, stored approving rules in `auto` alone.
5. What is left is held.

A stored approving rule covers no command that cannot be read, unless it names the exact input, and
no path unless the caller has seen where it really leads; a rejecting one may cover a path that
nobody has seen, so that is held. `allow_session` covers the tool whole: it
was said by a person who saw what the tool does here. No verdict takes away the CLI's own approval.

Rules stop mistakes, not adversaries: `sh -c` runs anything, and a link may change after the look.

It is pure, and total: no JSON that a hook sends makes it raise. It holds nothing (`gate/`), and it
knows no file (`settings.py` and `gate_file.py` do).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal, TypeAlias

from attrs import define, field, frozen

from kimiaepd import path_glob, shell_words
from kimiaepd.mapping.digest import canonical
from kimiaepd.mapping.json_value import JSON
from kimiaepd.mapping.payloads import Absent

MatcherKind: TypeAlias = Literal["always", "command_prefix", "path_glob", "exact_input"]
MATCHERS: tuple[MatcherKind, ...] = ("always", "command_prefix", "path_glob", "exact_input")

Outcome: TypeAlias = Literal["approved", "rejected"]

COMMANDS: Mapping[str, str] = {"Bash": "command"}
"""The tools that run a shell command, and the argument that has it."""

PATHS: Mapping[str, str] = dict.fromkeys(
    ("Read", "Write", "Edit", "ReadMediaFile", "Glob", "Grep"), "path"
)
"""The tools that work on a path, and the argument that has it."""

_HERE_WITHOUT = ("Glob", "Grep")
"""Tools that take the session's directory where no path is given."""


class Mode(enum.StrEnum):
    """How much is held.

    `manual`: every gated call; `auto`: what no approving rule lets pass; `yolo`: nothing.
    """

    MANUAL = "manual"
    AUTO = "auto"
    YOLO = "yolo"


@frozen
class Matcher:
    """Which calls of a tool a rule is about.

    Attributes:
        kind: `always`: every call. `command_prefix`: a Bash command that is one plain list of words
            and begins with these. `path_glob`: a path that lies there. `exact_input`: this input.
        value: the words, the pattern, or the input; None for `always`.

    Raises:
        ValueError: the value is none for this kind; it says what one is.
    """

    kind: MatcherKind = "always"
    value: JSON = None

    def __attrs_post_init__(self) -> None:
        if wrong := _complaint(self.kind, self.value):
            raise ValueError(wrong)


def _complaint(kind: MatcherKind, value: JSON) -> str | None:
    match kind:
        case "always":
            return None if value is None else "`always` has no value"
        case "command_prefix":
            if not isinstance(value, str) or shell_words.split(value) is None:
                return "must be plain words in quotes, such as git status"
        case "path_glob":
            if not isinstance(value, str):
                return "must be a path or a pattern in quotes, such as src/**"
            return path_glob.complaint(value)
        case "exact_input":
            return None
    return None


ALWAYS = Matcher()

_ID = re.compile("[A-Za-z0-9_.:-]{1,64}")


@frozen
class Rule:
    """One rule.

    Attributes:
        id: names it, in tool.denied and on the command line.
        tool_name: the tool, or a glob of tools.
        decision: `approved` or `rejected`.
        matcher: which of its calls.
        reason: what a denied call is told.
        created_at: when it was made (RFC 3339), as far as that was said.
        created_by: by whom: `cli`, `allow_session`, or what somebody wrote.

    Raises:
        ValueError: it is none that could work; it says why.
    """

    id: str
    tool_name: str
    decision: Outcome
    matcher: Matcher = ALWAYS
    reason: str | None = None
    created_at: str = ""
    created_by: str = ""

    def __attrs_post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError("id must be 1 to 64 letters, digits, `_`, `-`, `.` or `:`")
        tools = {"command_prefix": COMMANDS, "path_glob": PATHS}.get(self.matcher.kind)
        if tools is not None and not any(self.is_about(name) for name in tools):
            raise ValueError(f"{self.matcher.kind} is for {', '.join(tools)}")

    def is_about(self, tool_name: str) -> bool:
        """Whether it is about this tool."""
        return fnmatchcase(tool_name, self.tool_name)


@frozen
class SessionPolicy:
    """What is otherwise in one session.

    Attributes:
        mode: the mode there; None: as everywhere.
        rules: rules for it alone, beside those for everything.
    """

    mode: Mode | None = None
    rules: tuple[Rule, ...] = ()


@frozen
class Policy:
    """What was set.

    Attributes:
        mode: how much is held.
        tools: names or globs of the tools that are gated at all.
        rules: rules for every session.
        sessions: what is otherwise in single sessions, by their id.
    """

    mode: Mode = field(default=Mode.MANUAL, converter=Mode)
    tools: tuple[str, ...] = ("*",)
    rules: tuple[Rule, ...] = ()
    sessions: Mapping[str, SessionPolicy] = field(factory=dict)

    def mode_of(self, session: str) -> Mode:
        """The mode of a session."""
        override = self.sessions.get(session)
        return (override.mode if override else None) or self.mode

    def rules_of(self, session: str) -> tuple[Rule, ...]:
        """The rules of a session: those for everything, then its own."""
        override = self.sessions.get(session)
        return (*self.rules, *override.rules) if override else self.rules


@frozen
class Call:
    """A tool call, as its hook says it.

    Attributes:
        tool_name: the tool.
        tool_input: its input.
        session: the id of its session.
        cwd: the session's directory, as the hook names it; None where the hook has none.
        real_path: where `path_argument` really leads, absolute, every link followed; None where
            nobody looked, or nobody could tell.
        real_cwd: where `cwd` really leads, likewise.
    """

    tool_name: str
    tool_input: JSON | Absent = field(repr=False)
    session: str
    cwd: str | None = None
    real_path: str | None = None
    real_cwd: str | None = None


@frozen
class Verdict:
    """What becomes of a call.

    Attributes:
        kind: "pass", "hold" or "deny".
        rule: the rule that says so; None where none does.
        reason: why, in words. That of a denial is for the model, and never empty.
    """

    kind: Literal["pass", "hold", "deny"]
    rule: Rule | None
    reason: str


def decide(policy: Policy, call: Call, session_rules: Sequence[Rule] = ()) -> Verdict:
    """What becomes of a call.

    Args:
        policy: what was set.
        call: the call.
        session_rules: what people allowed for the session while it ran (`allow_session_rule`).
    """
    if not any(fnmatchcase(call.tool_name, name) for name in policy.tools):
        return Verdict("pass", None, "the tool is not gated")
    seen = _Seen(call)
    stored = [rule for rule in policy.rules_of(call.session) if rule.is_about(call.tool_name)]
    asked = [rule for rule in session_rules if rule.is_about(call.tool_name)]
    mode = policy.mode_of(call.session)
    return (
        _rejected(seen, [*stored, *asked])
        or _passed(seen, stored, asked, mode)
        or Verdict("hold", None, f"mode {mode.value}: no rule lets it pass")
    )


def _rejected(seen: _Seen, rules: Sequence[Rule]) -> Verdict | None:
    rejecting = [rule for rule in rules if rule.decision == "rejected"]
    found = [(rule, seen.is_rejected_by(rule.matcher)) for rule in rejecting]
    for rule, matches in found:
        if matches:
            return Verdict("deny", rule, _why_denied(rule))
    for rule, matches in found:
        if matches is None:
            return Verdict("hold", rule, f"rule {rule.id} may be about it: it cannot be read")
    return None


def _passed(
    seen: _Seen, stored: Sequence[Rule], asked: Sequence[Rule], mode: Mode
) -> Verdict | None:
    if mode is Mode.YOLO:
        return Verdict("pass", None, "mode yolo: nothing is held")
    for rule in asked:
        if rule.decision == "approved" and seen.is_allowed_by(rule.matcher, of_session=True):
            return Verdict("pass", rule, "it was allowed for the session")
    for rule in stored if mode is Mode.AUTO else ():
        if rule.decision == "approved" and seen.is_allowed_by(rule.matcher):
            return Verdict("pass", rule, f"rule {rule.id} allows it")
    return None


def allow_session_rule(call: Call, *, rule_id: str, created_at: str) -> Rule:
    """What `allow_session` adds: this tool, in the session that it was said in."""
    return Rule(
        id=rule_id,
        tool_name=_literal(call.tool_name),
        decision="approved",
        created_at=created_at,
        created_by="allow_session",
    )


def path_argument(call: Call) -> str | None:
    """The path that the call works on, as it was given; None where its tool has none.

    Relative to `call.cwd`. The caller finds out where it really leads, for `Call.real_path`, before
    a rule by `path_glob` can let the call pass.
    """
    argument = PATHS.get(call.tool_name)
    given = _argument(call, argument) if argument else None
    if given is None and call.tool_name in _HERE_WITHOUT:
        return "."
    return given if isinstance(given, str) else None


def _why_denied(rule: Rule) -> str:
    said = (rule.reason or "").strip()
    return said or f"A rule of this machine's gate denies the call ({rule.id})."


def _literal(name: str) -> str:
    """A glob that matches this name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _argument(call: Call, name: str) -> JSON:
    return call.tool_input.get(name) if isinstance(call.tool_input, dict) else None


_Way: TypeAlias = tuple[tuple[str, ...] | None, str | None]
"""The parts of a path, None where that is not known; and what relative patterns begin at."""


@define(eq=False, slots=False)
class _Seen:
    """What rules look at in one call, read once and only where one does."""

    call: Call

    @cached_property
    def words(self) -> tuple[str, ...] | None:
        """The words of its command; None where it cannot be read."""
        command = _argument(self.call, COMMANDS.get(self.call.tool_name, ""))
        return shell_words.split(command) if isinstance(command, str) else None

    @cached_property
    def path(self) -> list[_Way]:
        """Its path as it was given, from the session's directory under each of its names."""
        given = path_argument(self.call)
        names = [self.call.cwd]
        names += [self.call.real_cwd] if self.call.real_cwd not in (None, self.call.cwd) else []
        return [(None if given is None else path_glob.whole(given, name), name) for name in names]

    @cached_property
    def real_path(self) -> _Way:
        """Where that really leads."""
        real = self.call.real_path
        return (path_glob.whole(real, None) if real else None), self.call.real_cwd

    @cached_property
    def input(self) -> bytes | None:
        """Its input in canonical form; None where it has none."""
        given = self.call.tool_input
        return None if isinstance(given, Absent) else canonical(given)

    def is_rejected_by(self, matcher: Matcher) -> bool | None:
        """Whether a rejecting matcher matches; None where that cannot be told."""
        match matcher.kind:
            case "always":
                return True
            case "exact_input":
                return self.input == canonical(matcher.value)
            case "command_prefix":
                return self._begins_with(matcher.value)
            case "path_glob":
                return self.call.tool_name in PATHS and self._touches(matcher.value)

    def is_allowed_by(self, matcher: Matcher, *, of_session: bool = False) -> bool:
        """Whether an approving matcher matches, beyond doubt."""
        match matcher.kind:
            case "always":
                is_plain = self.call.tool_name not in COMMANDS or self.words is not None
                return of_session or is_plain
            case "exact_input":
                return self.input == canonical(matcher.value)
            case "command_prefix":
                return self._runs_here() and self._begins_with(matcher.value) is True
            case "path_glob":
                given = path_argument(self.call)
                if given is None or path_glob.climbs(given):
                    return False
                is_named_so = any(_lies_in(way, matcher.value) for way in self.path)
                return is_named_so and _lies_in(self.real_path, matcher.value) is True

    def _begins_with(self, prefix: JSON) -> bool | None:
        if self.call.tool_name not in COMMANDS:
            return False
        wanted = shell_words.split(prefix) if isinstance(prefix, str) else None
        if self.words is None or wanted is None:
            return None
        return self.words[: len(wanted)] == wanted

    def _runs_here(self) -> bool:
        """Whether the command runs in the session's directory: the same words mean more there."""
        where = _argument(self.call, "cwd")
        return where is None or where == self.call.cwd

    def _touches(self, pattern: JSON) -> bool | None:
        """Whether its path lies there, as it is given or where it really leads."""
        if self.path[0][0] is None:  # then nobody knows what the CLI will open
            return None
        found = [_lies_in(way, pattern) for way in (*self.path, self.real_path)]
        return True if True in found else None if None in found else False


def _lies_in(way: _Way, pattern: JSON) -> bool | None:
    parts, directory = way
    if parts is None or not isinstance(pattern, str):
        return None
    return path_glob.lies_in(parts, pattern, directory)
