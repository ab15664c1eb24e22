"""What of the gate is set, for people and programs: without secrets, and fit for a terminal.

The names of a listing stay as they are; `kimiaepd gate show --json` prints it.
"""

from __future__ import annotations

from kimiaepd import gate_rules
from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.redaction import Redactor
from kimiaepd.policy import Matcher, Rule
from kimiaepd.settings import Settings


def listing(found: Settings, redactor: Redactor, session: str | None = None) -> JSONObject:
    """What is set, or what is in effect in one session."""
    terms = found.gate
    rules: list[JSON] = [_rule(rule, None, redactor) for rule in terms.rules]
    for one, override in terms.sessions.items():
        if session in (None, one):
            rules += [_rule(rule, one, redactor) for rule in override.rules]
    modes: JSONObject = {
        one: override.mode.value for one, override in terms.sessions.items() if override.mode
    }
    return {
        "file": str(found.paths.config_file),
        "enabled": terms.enabled,
        "mode": (terms.mode if session is None else terms.policy.mode_of(session)).value,
        "tools": list(terms.tools),
        "options": terms.options,
        "when_unreachable": terms.when_unreachable,
        "sessions": modes,
        "rules": rules,
    }


def _rule(rule: Rule, session: str | None, redactor: Redactor) -> JSONObject:
    matcher: JSONObject = {"kind": rule.matcher.kind}
    if rule.matcher.kind != "always":
        hidden = _value(rule.matcher, redactor)
        matcher["value"] = hidden
    said: JSONObject = {
        "id": rule.id,
        "tool_name": rule.tool_name,
        "matcher": matcher,
        "decision": rule.decision,
        "reason": redactor.value(rule.reason),
        "created_at": rule.created_at or None,
        "created_by": rule.created_by or None,
        "session": session,
    }
    return {key: value for key, value in said.items() if value is not None}


def _value(matcher: Matcher, redactor: Redactor) -> JSON:
    """The value of a matcher without secrets: those within an input, too."""
    if matcher.kind == "exact_input":
        hidden = Matcher(matcher.kind, redactor.value(matcher.value))
        return gate_rules.value_text(hidden)
    return redactor.value(matcher.value)


def rows(rules: JSON) -> list[str]:
    """The rules of a listing as lines of a table."""
    rows = (
        [_row(rule) for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []
    )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def _row(rule: JSONObject) -> tuple[str, ...]:
    matcher = rule["matcher"]
    kind, value = (matcher["kind"], matcher.get("value")) if isinstance(matcher, dict) else ("", "")
    where = f"in {rule['session']}" if "session" in rule else ""
    why = f"({rule['reason']})" if "reason" in rule else ""
    word = "deny" if rule["decision"] == "rejected" else "allow"
    cells = (rule["id"], word, rule["tool_name"], kind, value or "", where, why)
    return tuple(tame(str(cell)) for cell in cells)
