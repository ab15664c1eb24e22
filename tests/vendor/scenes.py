"""What the mock model says: scripted scenes, chosen by the conversation alone.

A prompt names its scene with `mock:WORD`; the tool results after that prompt say how far the scene
has come. So a reply is a pure function of the request: no clock, no random id, no state between
requests, and two equal runs of the CLI get equal replies.

It does not serve anything (`provider.py`), and it does not check what the CLI sends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve, frozen

from kimiaepd.mapping.json_value import JSON, JSONObject

SCENE = re.compile(r"mock:([a-z0-9]+)")
MEGABYTE = 1_000_000
# A short summary makes the CLI ask its subagent for more; this one is long enough.
SUMMARY = "Three packages and one application, nothing unusual among them. " * 8


@frozen
class Say:
    """The model says this and its turn ends. `{n}` is the number of the prompt."""

    text: str


@frozen
class Use:
    """The model calls one tool."""

    tool: str
    arguments: JSONObject


@frozen
class UseAll:
    """The model calls several tools in one reply."""

    calls: tuple[Use, ...]


@frozen
class Refuse:
    """The provider answers with this HTTP status."""

    status: int


@frozen
class Hang:
    """The model says this, and then nothing comes until the CLI hangs up."""

    text: str


Step = Say | Use | UseAll | Refuse | Hang


def bash(command: str) -> Use:
    return Use("Bash", {"command": command})


def subagent(prompt: str) -> Use:
    return Use("Agent", {"description": "look", "prompt": prompt, "subagent_type": "explore"})


DONE = Say("Prompt {n} is done.")

COLOURS: JSON = [
    {"label": "red", "description": "as a rose"},
    {"label": "blue", "description": "as the sea"},
]
QUESTION = Use(
    "AskUserQuestion",
    {"questions": [{"question": "Which colour?", "header": "Colour", "options": COLOURS}]},
)

SCENES: Mapping[str, Sequence[Step]] = {
    "plain": [DONE],
    "bashok": [bash("echo from-the-tool"), DONE],
    "bashfail": [bash("echo before the end; exit 3"), DONE],
    "badtool": [Use("NoSuchTool", {"x": 1}), DONE],
    "err500": [Refuse(500)],
    "agent": [subagent("mock:subplain look"), DONE],
    "subplain": [Say(SUMMARY)],
    "agentbash": [subagent("mock:subbash look"), DONE],
    "subbash": [bash("echo from-the-subagent"), Say(SUMMARY)],
    "subrm": [bash("rm -rf build"), Say(SUMMARY)],
    "rm": [bash("rm -rf build"), DONE],
    "pair": [UseAll((subagent("mock:subbash look"), subagent("mock:subrm look"))), DONE],
    "twice": [bash("echo the-first"), bash("echo the-second"), DONE],
    "write": [Use("Write", {"path": "note.txt", "content": "a note"}), DONE],
    "sleep": [bash("sleep 60"), DONE],
    "read": [Use("Read", {"path": "kept.txt"}), DONE],
    "question": [QUESTION, DONE],
    "slow": [Hang("I begin to think.")],
    "big1m": [Use("Write", {"path": "big.txt", "content": "b" * MEGABYTE}), DONE],
}

# What the CLI asks for on its own account, such as more of a summary, names no scene.
NO_SCENE = Say(SUMMARY)


def reply_to(conversation: JSONObject) -> tuple[str, Step]:
    """The step that follows this conversation, and the id of the call it may make."""
    scene, prompts, results = "", 0, 0
    messages = conversation.get("messages")
    for message in messages if isinstance(messages, list) else []:
        if not isinstance(message, dict):
            continue
        if message.get("role") == "tool":
            results += 1
        elif message.get("role") == "user" and (word := _scene(_text(message.get("content")))):
            scene, results = word, 0
            prompts += 1
    steps = SCENES.get(scene, [NO_SCENE])
    step = steps[min(results, len(steps) - 1)]
    if isinstance(step, Say):
        step = evolve(step, text=step.text.format(n=prompts))
    return f"call_{scene}_{prompts}_{results}", step


def _scene(text: str) -> str | None:
    # A reminder is the CLI's own message; it could quote a prompt.
    named = [] if text.startswith("<system-reminder>") else SCENE.findall(text)
    # 0.28.0 puts a prompt that was interrupted and the next one into one message.
    return named[-1] if named else None


def _text(content: JSON) -> str:
    """The text of a message, whose content is a string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def events(call_id: str, step: Say | Use | UseAll | Hang) -> Iterator[bytes]:
    """The reply as server-sent events; that of a `Hang` has no end."""
    if isinstance(step, Use | UseAll):
        calls: list[JSON] = [_call(call_id, step)] if isinstance(step, Use) else []
        for place, one in enumerate(step.calls if isinstance(step, UseAll) else ()):
            calls.append(_call(f"{call_id}_{place}", one, place))
        yield _chunk({"role": "assistant", "content": None, "tool_calls": calls})
    else:
        yield _chunk({"role": "assistant", "content": step.text})
    if isinstance(step, Hang):
        return
    yield _chunk({}, "tool_calls" if isinstance(step, Use | UseAll) else "stop")
    yield _event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 10}})
    yield b"data: [DONE]\n\n"


def _call(call_id: str, use: Use, place: int = 0) -> JSONObject:
    function: JSON = {"name": use.tool, "arguments": json.dumps(use.arguments)}
    return {"index": place, "id": call_id, "type": "function", "function": function}


def _chunk(delta: JSONObject, finish: str | None = None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _event(chunk: JSONObject) -> bytes:
    head: JSONObject = {"id": "chatcmpl-mock", "created": 0, "model": "mock-model"}
    whole: JSONObject = {"object": "chat.completion.chunk", **head, **chunk}
    return b"data: " + json.dumps(whole).encode() + b"\n\n"
