"""Web frame to Draft: the mapping of the `kimi web` stream, in its two modes.

`companion` is for a session whose core events come of hooks: every durable frame becomes
`x.kimi-code.web.{frame type}`, without data. `primary` tells the core story from the stream alone:
runs, calls and asks, by the table of `web_rows.py`; every other durable frame becomes what
companion makes of it. It is the standard's pinned mapping (`ws_modes`), and where the real wire
says more than the pins, what the wire says.

Rules:
- Volatile frames, the connection's own and the echoes of approvals become nothing, in both modes.
- Only the main agent opens and closes runs; other agents' turns are visibility. Their calls and
  asks are the session's, as its main agent's are.
- A frame without what its row needs becomes visibility: degraded, never dropped. Nothing raises.
- An approval that ends without a decision, or with a word that is none, is dismissed: nobody will
  answer it any more.

What a frame means can depend on earlier ones: `primary` takes a `Memory` and gives the next one.

The caller owns everything else:
- It stamps, keeps the cursor and one memory a session, and drops the frames that it has seen.
- It pairs `Mapped.call` and `Mapped.ask` with the events that it logged, for `cause`, and puts the
  request's event id where `subject` is the ask's id, in all but the request itself.
- It lets no run, call or ask end twice, or end that did not begin, and logs `visibility` instead.
- It knows the open run, for what names none; it closes what a server that is gone left open.
- It adds `duration_ms` and `latency_ms`, by whom a run was cancelled where that was us, and the
  options of an ask where it can be answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import evolve, frozen

from kimiaepd.mapping import hooks
from kimiaepd.mapping.event import Capture, Draft, Field
from kimiaepd.mapping.hooks import Row
from kimiaepd.mapping.payloads import HookPayload, ToolError
from kimiaepd.mapping.web_forms import (
    FormField,
    form_prompt,
    form_specs,
    read_answers,
    read_questions,
)
from kimiaepd.mapping.web_frames import MAIN, TURN, Frame, short, words
from kimiaepd.mapping.web_memory import Ask, Memory
from kimiaepd.mapping.web_rows import (
    RESOLVED,
    ROWS,
    SILENT,
    WORK_CHANGED,
    WORK_FACTS,
    bare,
    web_type,
)


@frozen(kw_only=True)
class Mapped:
    """What a frame becomes in primary.

    Attributes:
        drafts: its events in order, each the cause of the next; none for a frame that is silent.
        memory: what the session's next frame is to be mapped with.
        run: the run that the frame is of, where it says so: the main agent's turn.
        agent: the agent that it is about.
        call: the vendor's id of the call that begins, ends, or asks; this and `ask` are `short`.
        ask: the vendor's id of the ask that begins or ends; of a tool.denied, the one refused.
        is_for_session: whether an approval was answered for what is asked alike later, too.
    """

    drafts: tuple[Draft, ...] = ()
    memory: Memory
    run: str | None = None
    agent: str = MAIN
    call: str | None = None
    ask: str | None = None
    is_for_session: bool = False


def companion(frame: Frame) -> Draft | None:
    """The visibility of a frame; None where it has none. Never raises."""
    return None if _is_silent(frame) else visibility(frame)


def primary(frame: Frame, memory: Memory) -> Mapped:
    """What a frame says of the session's runs, calls and asks. Never raises."""
    if _is_silent(frame):
        return Mapped(memory=memory)
    mapped = None
    if handler := _HANDLERS.get(frame.type):
        mapped = handler(frame, words(frame), memory)
    return mapped or Mapped(
        drafts=(visibility(frame),), memory=memory, run=_run(frame, words(frame)), agent=frame.agent
    )


def visibility(frame: Frame) -> Draft:
    """The draft of a frame that has no type of its own, or that must not use it."""
    return Draft(web_type(frame.type))


def _is_silent(frame: Frame) -> bool:
    return frame.is_volatile or frame.type in SILENT or not (frame.type and frame.is_of_a_journal)


# --- runs ------------------------------------------------------------------------------------


def _turn_started(frame: Frame, said: HookPayload, memory: Memory) -> Mapped | None:
    memory = memory.in_a_new_turn(frame.agent)
    run = _run(frame, said)
    if run is None:
        return Mapped(drafts=(visibility(frame),), memory=memory, agent=frame.agent)
    return Mapped(drafts=(hooks.fill(ROWS["turn.started"], said),), memory=memory, run=run)


def _turn_ended(frame: Frame, said: HookPayload, memory: Memory) -> Mapped | None:
    run = _run(frame, said)
    if run is None:
        return None
    row = ROWS.get(f"turn.ended {said.reason}", ROWS["turn.ended"])
    return Mapped(drafts=(hooks.fill(row, said),), memory=memory, run=run)


def _run(frame: Frame, said: HookPayload) -> str | None:
    """The run of a main agent's turn: the same one for whoever reads the journal again."""
    if frame.agent != MAIN or said.turn_id is None or frame.epoch is None:
        return None
    return f"{short(frame.epoch)}{TURN}{said.turn_id}"


# --- calls -----------------------------------------------------------------------------------


def _call_started(frame: Frame, said: HookPayload, memory: Memory) -> Mapped | None:
    if said.tool_name is None:
        return None
    if said.tool_call_id is not None:
        memory = memory.with_call(frame.agent, said.tool_call_id, said.tool_name)
    return _of_a_call(frame, said, memory, ROWS["tool.call.started"])


def _call_ended(frame: Frame, said: HookPayload, memory: Memory) -> Mapped | None:
    """The end of a call that was seen to begin: the frame itself names no tool."""
    if said.tool_call_id is None:
        return None
    tool = memory.call(frame.agent, said.tool_call_id)
    refusal = memory.refusal(frame.agent, said.tool_call_id)
    if tool is None:
        return None
    memory = memory.without_call(frame.agent, said.tool_call_id)
    said = evolve(said, tool_name=tool)
    if frame.flag("isError") is not True:
        return _of_a_call(frame, said, memory, ROWS["tool.result"])
    if refusal:
        mapped = _of_a_call(frame, said, memory, ROWS["tool.result refused"])
        return evolve(mapped, ask=refusal.ask)
    output = said.tool_output
    said = evolve(said, error=ToolError(message=output if isinstance(output, str) else None))
    return _of_a_call(frame, said, memory, ROWS["tool.result error"])


def _of_a_call(frame: Frame, said: HookPayload, memory: Memory, row: Row) -> Mapped:
    return Mapped(
        drafts=(hooks.fill(row, said),),
        memory=memory,
        run=_run(frame, said),
        agent=frame.agent,
        call=said.tool_call_id and short(said.tool_call_id),
    )


# --- asks ------------------------------------------------------------------------------------


def _approval_asked(frame: Frame, said: HookPayload, memory: Memory) -> Mapped | None:
    row = ROWS["event.approval.requested"]
    return _asked(frame, said, memory, hooks.fill(row, said)) if row.needs(said) else None


def _question_asked(frame: Frame, said: HookPayload, memory: Memory) -> Mapped | None:
    if said.id is None:
        return None
    fields = read_questions(frame.payload.get("questions"))
    draft = hooks.fill(ROWS["event.question.requested"], said)
    below = bare("form")(said)
    prompt = Field(("prompt",), Capture.REDACTED, form_prompt(fields) or below, below)
    draft = evolve(draft, fields=(*draft.fields, prompt, *form_specs(fields)))
    return _asked(frame, said, memory, draft, fields)


def _asked(
    frame: Frame,
    said: HookPayload,
    memory: Memory,
    draft: Draft,
    fields: tuple[FormField, ...] = (),
) -> Mapped:
    # Before 0.42.0 there is no `agent_id`; `agentId` is the asker's there, too. An ask that has
    # neither names no run, and its refusal is of whoever has that call.
    agent = frame.word("agent_id") or frame.word("agentId")
    ask_id = said.id or ""
    return Mapped(
        drafts=(draft,),
        memory=memory.with_ask(ask_id, Ask(said.tool_call_id, agent, fields)),
        run=_run(frame, said) if agent == MAIN else None,
        agent=agent or frame.agent,
        call=said.tool_call_id and short(said.tool_call_id),
        ask=short(ask_id),
    )


def _approval_resolved(frame: Frame, said: HookPayload, memory: Memory) -> Mapped | None:
    key = f"{frame.type} {said.decision}"
    if key not in ROWS:
        return _over(frame, said, memory, hooks.fill(ROWS[frame.type], said))
    answered = hooks.fill(ROWS[key], said)
    mapped = _over(frame, said, memory, answered, hooks.fill(RESOLVED, said))
    return mapped and evolve(mapped, is_for_session=frame.word("scope") == "session")


def _question_answered(frame: Frame, said: HookPayload, memory: Memory) -> Mapped | None:
    ask = memory.ask(said.id) if said.id else None
    answered = hooks.fill(ROWS[frame.type], said)
    answer = read_answers(frame.payload.get("answers"), ask.fields if ask else ())
    answered = evolve(answered, fields=(*answer, *answered.fields))
    return _over(frame, said, memory, answered, hooks.fill(RESOLVED, said))


def _question_dismissed(frame: Frame, said: HookPayload, memory: Memory) -> Mapped | None:
    return _over(frame, said, memory, hooks.fill(ROWS[frame.type], said))


def _over(frame: Frame, said: HookPayload, memory: Memory, *drafts: Draft) -> Mapped | None:
    if said.id is None:
        return None
    ask = memory.ask(said.id)
    is_refused = said.decision == "rejected"
    return Mapped(
        drafts=tuple(evolve(draft, subject=said.id) for draft in drafts),
        memory=memory.without_ask(said.id, is_refused=is_refused),
        agent=(ask and ask.agent) or frame.agent,
        call=ask.call_id if ask else None,
        ask=short(said.id),
    )


# --- the rest --------------------------------------------------------------------------------


def _work_changed(frame: Frame, _: HookPayload, memory: Memory) -> Mapped | None:
    facts = {"busy": frame.flag("busy"), "pending_interaction": frame.word("pending_interaction")}
    fields = tuple(
        Field((name,), Capture.METADATA, facts[name])
        for name in WORK_FACTS
        if facts[name] is not None
    )
    return Mapped(drafts=(Draft(WORK_CHANGED, fields=fields),), memory=memory, agent=frame.agent)


_Handler: TypeAlias = Callable[[Frame, HookPayload, Memory], Mapped | None]

_HANDLERS: dict[str, _Handler] = {
    "turn.started": _turn_started,
    "turn.ended": _turn_ended,
    "tool.call.started": _call_started,
    "tool.result": _call_ended,
    "event.approval.requested": _approval_asked,
    "event.approval.resolved": _approval_resolved,
    "event.question.requested": _question_asked,
    "event.question.answered": _question_answered,
    "event.question.dismissed": _question_dismissed,
    "event.session.work_changed": _work_changed,
}
"""Who reads a frame; None of one means that it lacks what its row needs."""
