"""`kimiaepd gate`: which tool calls are held, let pass or denied; shown and changed.

A change is written into our own config file, and a daemon that runs takes it at once: it is in
effect at the next call. With `--json` each prints one object, whose names stay as they are:
- `show`: `file`, `enabled`, `mode`, `tools`, `options`, `when_unreachable`, `sessions` (their modes
  by id) and `rules`, each as the file has it, with `session` where it is for one.
- the others: `file`, `changed`, `rule` (its id, where one was made or removed), `daemon` ("took it"
  or "not running") and `notes`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import secrets
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial

import click
import trio
from attrs import evolve

from kimiaepd import gate_file, gate_rules, settings
from kimiaepd.errors import ConfigError, UsageError, UserError
from kimiaepd.gate_file import GateFileError
from kimiaepd.gate_listing import listing, rows
from kimiaepd.hook_socket.client import NotAnswering, NotRunning, request
from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.mapping.redaction import Redactor
from kimiaepd.policy import COMMANDS, PATHS, Matcher, Mode, Outcome, Rule
from kimiaepd.settings import GateSettings, Settings
from kimiaepd.setup.config_file import edit
from kimiaepd.storage.private_directory import create_private

_ANSWER_SECONDS = 5.0

_TOOLS = (*COMMANDS, *PATHS)
"""Tools of Kimi's that rules know; it has more."""

_OFF = (
    "by the settings here the gate is off: set enabled = true under [gate], run kimiaepd setup"
    " install, and start the daemon again"
)

_SESSION = click.option("--session", metavar="ID", help="For this session alone.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group()
def gate() -> None:
    """Show and change which tool calls are held, let pass or denied.

    Rules stop mistakes, not adversaries. No rule takes away Kimi's own approval.
    """


# --- show ---


@gate.command()
@click.option("--session", metavar="ID", help="What is in effect in this session.")
@_JSON
def show(*, session: str | None, as_json: bool) -> None:
    """Show mode, tools and rules. Secrets in them are not shown."""
    found = settings.load(os.environ)
    said = listing(found, _redactor(found), session)
    if as_json:
        click.echo(json.dumps(said, indent=2))
        return
    terms = found.gate
    click.echo(f"gate     {'on' if terms.enabled else 'off (gate.enabled)'}")
    click.echo(f"mode     {said['mode']}")
    if session is None:
        for one, override in terms.sessions.items():
            if override.mode:
                click.echo(f"         {override.mode.value} in session {tame(one)}")
    click.echo(f"tools    {tame(', '.join(terms.tools)) or 'none'}")
    click.echo(f"options  {terms.options}")
    click.echo(f"alone    {terms.when_unreachable} (where nobody could answer)")
    click.echo("rules    none" if not said["rules"] else "rules")
    for line in rows(said["rules"]):
        click.echo(f"  {line}".rstrip())


def _redactor(found: Settings) -> Redactor:
    # Paths in rules are the person's own, and so is the terminal: homes are shown.
    return Redactor(
        secret_names=frozenset(found.capture.redact_names),
        secret_values=found.capture.secret_values(os.environ),
        pii=False,
    )


# --- changes ---


@gate.command()
@click.argument("mode", type=click.Choice([mode.value for mode in Mode]))
@_SESSION
@_JSON
def mode(*, mode: str, session: str | None, as_json: bool) -> None:
    """Say how much is held: manual, auto or yolo.

    manual: every gated call; auto: what no allowing rule lets pass; yolo: nothing. Denying rules
    apply in all three.
    """
    _known(session)
    found = settings.load(os.environ)
    _change(found, lambda raw: gate_file.with_value(raw, "mode", mode, session), as_json=as_json)


@gate.command()
@click.argument("names", nargs=-1, required=True)
@_JSON
def tools(*, names: tuple[str, ...], as_json: bool) -> None:
    """Say which tools are gated at all: names, or globs such as 'mcp__*'; '*' is all."""
    wanted = [name.strip() for word in names for name in word.split(",") if name.strip()]
    if not wanted:
        raise UsageError("a tool has a name; '*' is all of them")
    found = settings.load(os.environ)
    notes = _misspelt(*wanted)
    if os.environ.get("AEP_KIMI_GATE_TOOLS"):
        notes.append("AEP_KIMI_GATE_TOOLS is set, and wins over the file where the daemon has it")
    _change(
        found, lambda raw: gate_file.with_value(raw, "tools", wanted), notes=notes, as_json=as_json
    )


_RuleCommand = Callable[..., None]


def _rule_options(command: _RuleCommand) -> _RuleCommand:
    for option in (
        _JSON,
        click.option("--reason", metavar="TEXT", help="Why; a denied call is told."),
        _SESSION,
        click.option("--input", "exact", metavar="JSON", help="Exactly this input."),
        click.option("--path", metavar="GLOB", help="Paths that lie there, such as 'src/**'."),
        click.option("--prefix", metavar="WORDS", help="Commands that begin with these words."),
        click.argument("tool"),
    ):
        command = option(command)
    return command


@gate.command()
@_rule_options
def allow(**said: str | bool | None) -> None:
    """Let calls of TOOL (a name or a glob) pass in mode auto.

    A Bash command that is more than plain words passes by --input alone.
    """
    _add("approved", **said)  # type: ignore[arg-type]


@gate.command()
@_rule_options
def deny(**said: str | bool | None) -> None:
    """Deny calls of TOOL (a name or a glob), in every mode.

    A Bash command that is more than plain words is held where a --prefix is denied.
    """
    _add("rejected", **said)  # type: ignore[arg-type]


@gate.command()
@click.argument("rule_id", metavar="ID")
@click.option("--session", metavar="ID", help="Only where it is a rule of this session.")
@_JSON
def remove(*, rule_id: str, session: str | None, as_json: bool) -> None:
    """Remove the rule ID, as `kimiaepd gate show` names it."""
    found = settings.load(os.environ)
    if not any(rule.id == rule_id for rule in _rules(found.gate, session)):
        raise UserError(f"no rule has the id {tame(rule_id)!r}; see: kimiaepd gate show")
    plan = partial(gate_file.without_rule, rule_id=rule_id)
    _change(found, plan, rule=rule_id, as_json=as_json)


def _add(
    decision: Outcome,
    *,
    tool: str,
    prefix: str | None,
    path: str | None,
    exact: str | None,
    session: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    _known(session)
    found = settings.load(os.environ)
    rule = _wanted(found.gate, decision, tool, _matcher(prefix, path, exact), reason)
    notes = _doubts(found.gate, rule, session)
    if (there := _there(found.gate, rule, session)) is not None:
        _change(found, lambda raw: raw, rule=there.id, notes=notes, as_json=as_json)
        return
    plan = partial(gate_file.with_rule, rule=rule, session=session)
    _change(found, plan, rule=rule.id, notes=notes, as_json=as_json)


def _matcher(prefix: str | None, path: str | None, exact: str | None) -> Matcher:
    given = {"--prefix": prefix, "--path": path, "--input": exact}
    options = [option for option, value in given.items() if value is not None]
    if len(options) > 1:
        raise UsageError(f"{' and '.join(options)} exclude each other; make two rules")
    try:
        if prefix is not None:
            return Matcher("command_prefix", prefix)
        if path is not None:
            return Matcher("path_glob", path)
        return Matcher() if exact is None else Matcher("exact_input", gate_rules.read_input(exact))
    except ValueError as error:
        raise UsageError(f"{options[0]}: {error}") from None


def _wanted(
    terms: GateSettings, decision: Outcome, tool: str, matcher: Matcher, reason: str | None
) -> Rule:
    if not tool:
        raise UsageError("TOOL must name a tool; '*' is all of them")
    taken = {rule.id for rule in terms.every_rule()}
    while (name := f"r-{secrets.token_hex(3)}") in taken:
        pass
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        return Rule(name, tool, decision, matcher, reason or None, now, "cli")
    except ValueError as error:
        raise UsageError(f"{tame(tool)!r}: {error}") from None


def _rules(terms: GateSettings, session: str | None) -> tuple[Rule, ...]:
    """The rules of one session alone; every rule there is without one."""
    if session is None:
        return terms.every_rule()
    own = terms.sessions.get(session)
    return own.rules if own else ()


def _there(terms: GateSettings, rule: Rule, session: str | None) -> Rule | None:
    """The rule that already says the same."""
    for one in terms.rules if session is None else _rules(terms, session):
        if one == evolve(rule, id=one.id, created_at=one.created_at, created_by=one.created_by):
            return one
    return None


def _doubts(terms: GateSettings, rule: Rule, session: str | None) -> list[str]:
    policy = terms.policy
    notes = _misspelt(rule.tool_name)
    effective = policy.mode if session is None else policy.mode_of(session)
    if rule.decision == "approved" and effective is Mode.MANUAL:
        notes.append("the mode is manual: what is allowed by rule is held until it is auto")
    return notes


def _misspelt(*globs: str) -> list[str]:
    """A note for each glob that would name a tool of Kimi's, were it not for its case."""
    found = []
    for glob in globs:
        meant = [tool for tool in _TOOLS if fnmatchcase(tool.casefold(), glob.casefold())]
        if meant and not any(fnmatchcase(tool, glob) for tool in _TOOLS):
            found.append(f"{tame(glob)} is no tool of Kimi's, but {meant[0]} is: case counts")
    return found


def _known(session: str | None) -> None:
    if session is not None and (not session or not session.isprintable()):
        raise UsageError("--session: that is no session's id; see: kimiaepd status")


# --- writing ---


def _change(
    found: Settings,
    plan: Callable[[bytes], bytes],
    *,
    as_json: bool,
    rule: str | None = None,
    notes: list[str] | None = None,
) -> None:
    file = found.paths.config_file
    if not file.parent.exists():
        create_private(file.parent)
    try:
        is_changed = edit(file, plan, dt.datetime.now(dt.UTC)).changed
    except GateFileError as error:
        raise ConfigError(f"{file}: {error}; nothing was changed") from None
    notes = [*(notes or ()), *([] if found.gate.enabled else [_OFF])]
    daemon = _tell(found) if is_changed else None
    if as_json:
        said: JSONObject = {"file": str(file), "changed": is_changed, "rule": rule}
        said |= {"daemon": daemon, "notes": list(notes)}
        click.echo(json.dumps({key: one for key, one in said.items() if one is not None}))
        return
    name = f"rule {rule}: " if rule else ""
    effect = {
        None: "it is so already; nothing was changed",
        "took it": "written, and in effect from the next call on",
        "not running": "written; no daemon runs, so it takes effect at its next start",
    }[daemon]
    click.echo(f"{name}{effect}")
    for note in notes:
        click.echo(f"note: {note}")


def _tell(found: Settings) -> str:
    """Have a daemon that runs take the file.

    Raises:
        UserError: it did not.
    """
    try:
        answer = trio.run(partial(request, found.paths.socket, "reload", timeout=_ANSWER_SECONDS))
    except NotRunning:
        return "not running"
    except NotAnswering as error:
        raise NotAnswering(f"written, but not in effect yet: {error}") from None
    if (why := answer.get("error")) is not None:
        raise UserError(f"written, but the daemon did not take it: {tame(str(why))}")
    return "took it"
