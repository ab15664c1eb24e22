"""Rules of the gate as config.toml has them: tables to types, and back.

Rules:
- `[[gate.rules]]` are for every session, `[[gate.sessions."ID".rules]]` for one.
- What is wrong is a ValueError with the words for people; which key it was, cattrs notes.
- TOML has no null, so the value of `exact_input` is JSON, as text.

Where the file is, and how it is edited, is `gate_file.py`'s business.
"""

from __future__ import annotations

import cattrs

from kimiaepd.mapping.digest import canonical
from kimiaepd.mapping.json_value import JSON, MalformedJSONError, parse
from kimiaepd.policy import MATCHERS, Matcher, Mode, Rule, SessionPolicy

_MATCHER_KEYS = ("kind", "value")


def register(converter: cattrs.Converter) -> None:
    """Teach a converter what of the gate needs more than its types say."""
    converter.register_structure_hook(str, _text)
    converter.register_structure_hook(Mode, _mode)
    converter.register_structure_hook(Matcher, _matcher)
    plain = converter.get_structure_hook(Rule)

    def structure_rule(value: object, kind: object) -> Rule:
        rule: Rule = plain(value, kind)
        if not rule.tool_name:
            raise ValueError("tool_name must name a tool, or be * for all")
        return rule

    converter.register_structure_hook(Rule, structure_rule)
    rules = converter.get_structure_hook(tuple[Rule, ...])

    def structure_rules(value: object, kind: object) -> tuple[Rule, ...]:
        if not isinstance(value, list):
            raise ValueError("must be tables, each under [[gate.rules]]")  # noqa: TRY004 - a person's error
        found: tuple[Rule, ...] = rules(value, kind)
        return found

    converter.register_structure_hook_func(lambda kind: kind == tuple[Rule, ...], structure_rules)
    sessions = converter.get_structure_hook(dict[str, SessionPolicy])

    def structure_sessions(value: object, kind: object) -> dict[str, SessionPolicy]:
        if not isinstance(value, dict):
            raise ValueError("must be tables by session")  # noqa: TRY004 - a person's error
        found: dict[str, SessionPolicy] = sessions(value, kind)
        return found

    converter.register_structure_hook_func(
        lambda kind: kind == dict[str, SessionPolicy], structure_sessions
    )


def table(rule: Rule) -> dict[str, object]:
    """A rule as the file has it; what is not said is left out."""
    found: dict[str, object] = {"id": rule.id, "tool_name": rule.tool_name}
    if rule.matcher.kind != "always":
        found["matcher"] = {"kind": rule.matcher.kind, "value": value_text(rule.matcher)}
    found["decision"] = rule.decision
    for key in ("reason", "created_at", "created_by"):
        if said := getattr(rule, key):
            found[key] = said
    return found


def value_text(matcher: Matcher) -> str:
    """The value of a matcher as the file has it; empty for `always`."""
    if matcher.kind == "exact_input":
        return canonical(matcher.value).decode()
    return matcher.value if isinstance(matcher.value, str) else ""


def read_input(text: str) -> JSON:
    """An input that was written as JSON.

    Raises:
        ValueError: it is none.
    """
    try:
        return parse(text.encode("utf-8", "surrogatepass"))
    except MalformedJSONError as error:
        raise ValueError(f"must be the input as JSON, in quotes: {error}") from None


def _text(value: object, _: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("must be text in quotes")


def _mode(value: object, _: object) -> Mode:
    words = [mode.value for mode in Mode]
    if isinstance(value, str) and value in words:
        return Mode(value)
    raise ValueError(f"must be one of {', '.join(words)}")


def _matcher(value: object, _: object) -> Matcher:
    if not isinstance(value, dict):
        raise ValueError('must be a table, such as {kind = "command_prefix", value = "git status"}')  # noqa: TRY004 - a person's error
    if strangers := sorted(str(key) for key in value if key not in _MATCHER_KEYS):
        raise ValueError(f"unknown key {', '.join(strangers)}")
    kind = next((one for one in MATCHERS if one == value.get("kind")), None)
    if kind is None:
        raise ValueError(f"kind must be one of {', '.join(MATCHERS)}")
    said = value.get("value")
    if not isinstance(said, str | None):
        raise ValueError("value must be text in quotes")  # noqa: TRY004 - a person's error
    if kind == "exact_input":
        if said is None:
            raise ValueError("exact_input needs a value")
        return Matcher(kind, read_input(said))
    return Matcher(kind, said)
