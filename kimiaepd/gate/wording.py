"""What is asked about a held call, and what a call that is refused is told.

Rules:
- Nobody is asked to approve blind: the prompt is the tool's name, then its command, its path, or
  its whole input as canonical JSON. It is redacted first and cut afterwards, so that no half of a
  secret is left, and is at most `LONGEST_PROMPT` characters.
- Below capture `redacted` the prompt is made of structure alone, and labels are positions.
- `cwd` rides nowhere, in no prompt either.
- The reply that refuses is exactly the one that the CLI understands, and always has a reason: any
  other output is put before the model, or is nothing at all.

It is pure; the redactor is the emitter's.
"""

from __future__ import annotations

from collections.abc import Sequence

from kimiaepd.gate.answers import Option, offered, offered_by_position
from kimiaepd.mapping.capture import riding
from kimiaepd.mapping.digest import canonical
from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.hooks import synthesised_prompt
from kimiaepd.mapping.json_value import JSON, dump, without_surrogates
from kimiaepd.mapping.payloads import Absent, HookPayload
from kimiaepd.mapping.redaction import Redactor

LONGEST_PROMPT = 2_000
LONGEST_REASON = 4_000
"""Characters of a reason that the model is given; a shim reads a reply of a MiB at most."""

_READ = 16_384
"""Characters of a call that are looked at; of more, those whose end is not seen are not shown."""

_UNSEEN = 4_096
"""What the cut may have left a half of: longer secrets than this stand in no command."""

DENIED = "A person who watches this session denied the call."


def prompt(payload: HookPayload, path: str | None, redactor: Redactor) -> str:
    """What is asked, redacted.

    Args:
        payload: the PreToolUse.
        path: the path that its tool works on, where it is one that has one.
        redactor: the pipeline of AEP-0003 section 9.4.
    """
    text = f"{payload.tool_name}: {_matter(payload, path, redactor)}"
    shown = _redacted(text[:_READ], redactor)
    if len(text) > _READ:
        shown = shown[:-_UNSEEN]
    return _cut(shown, len(text))


def _redacted(text: str, redactor: Redactor) -> str:
    redacted = redactor.value(without_surrogates(text))
    return redacted if isinstance(redacted, str) else ""


def _matter(payload: HookPayload, path: str | None, redactor: Redactor) -> str:
    given = payload.tool_input
    if isinstance(given, Absent):
        return "(no input)"
    command = given.get("command") if isinstance(given, dict) else None
    if isinstance(command, str) and command.strip():
        return command
    if path:
        return path
    shown = riding(given)
    if shown is None and given is not None:
        return "(an input too deep or too large to show)"
    return canonical(redactor.value(shown)).decode("utf-8", "replace")


def _cut(text: str, whole: int) -> str:
    """At most `LONGEST_PROMPT` characters of a text that was `whole` characters long."""
    if len(text) <= LONGEST_PROMPT and whole <= _READ:
        return text
    mark = f" [{whole} characters in all]"
    kept = text[: LONGEST_PROMPT - len(mark)]
    opened = kept.rfind("[REDACTED:")
    if opened > kept.rfind("]"):
        kept = kept[:opened]  # half a mark would be taken for the text's own
    return kept + mark


def request(payload: HookPayload, asked: str, options: Sequence[Option], expires_at: str) -> Draft:
    """The draft of attention.requested.

    Args:
        payload: the PreToolUse.
        asked: the prompt, as `prompt` gives it.
        options: what is offered.
        expires_at: when nobody waits any more (RFC 3339).
    """
    redacted, metadata = Capture.REDACTED, Capture.METADATA
    fields = (
        Field(("kind",), metadata, "permission"),
        Field(("prompt",), redacted, asked, below=synthesised_prompt(payload)),
        Field(("options",), redacted, offered(options), below=offered_by_position(options)),
        Field(("expires_at",), metadata, expires_at),
        Field(("respond_via",), metadata, ["control"]),
    )
    return Draft("attention.requested", payload.tool_name, fields, "notice")


def denial(reason: str | None) -> bytes:
    """The reply to a PreToolUse that keeps the call from running (vendor: `runHook.ts`).

    Args:
        reason: what the model and the terminal are told; `DENIED` where there are no words.
    """
    words = (reason or "").strip()[:LONGEST_REASON]
    output: dict[str, JSON] = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": words or DENIED,
    }
    return dump({"hookSpecificOutput": output})
