"""What a session of `kimi web` says of its turns, calls and asks, in the vendor's order and words.

Each function says on a server what the real one says of one step, volatile frames left out
(`vendor/web.md`, part 6, and the captures). A test that needs another order says the frames itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kap_journal import NOW, ulid
from kimiaepd.mapping.json_value import JSON, JSONObject

if TYPE_CHECKING:
    from kap_server import KapServer

BASH = "Bash"
COMMAND = "echo probe"


def begin(
    server: KapServer, session: str, turn: int = 0, prompt: str = "hello", origin: str = "user"
) -> None:
    """A turn of the main agent begins."""
    payload: JSONObject = {"turnId": turn, "origin": {"kind": origin}}
    if server.is_old:
        work_changed(server, session)
        server.say(session, "turn.started", payload)
    else:
        payload |= {"promptId": f"msg_{ulid()}", "prompt": prompt}
        server.say(session, "turn.started", payload)
        work_changed(server, session)


def end(
    server: KapServer,
    session: str,
    turn: int = 0,
    reason: str = "completed",
    error: JSONObject | None = None,
) -> None:
    """It ends: "completed", "cancelled" or "failed"; the last has an error."""
    prompt = _prompt(server, session)
    payload: JSONObject = {"turnId": turn, "reason": reason, "durationMs": 5}
    if error is not None:
        payload["error"] = error
    server.say(session, "turn.ended", payload)
    if error is not None and not server.is_old:
        server.say(session, "error", error)
    work_changed(server, session, ended=reason)
    if error is not None and server.is_old:
        server.say(session, "error", error)
    if reason == "cancelled":
        server.say(session, "prompt.aborted", {"promptId": prompt, "abortedAt": NOW})
    else:
        over: JSONObject = {"promptId": prompt, "finishedAt": NOW, "reason": reason}
        server.say(session, "prompt.completed", over)


def call(
    server: KapServer,
    session: str,
    name: str,
    turn: int = 0,
    *,
    tool: str = BASH,
    args: JSONObject | None = None,
) -> None:
    """A call of a tool begins; where it was asked for, only after the answer."""
    started: JSONObject = {"turnId": turn, "toolCallId": name, "name": tool}
    server.say(session, "tool.call.started", {**started, "args": args or {"command": COMMAND}})


def result(
    server: KapServer,
    session: str,
    name: str,
    turn: int = 0,
    output: JSON = "probe\n",
    *,
    is_error: bool = False,
) -> None:
    """It ends; of a success nothing says that it is no error."""
    payload: JSONObject = {"turnId": turn, "toolCallId": name, "output": output}
    server.say(session, "tool.result", payload | ({"isError": True} if is_error else {}))


def ask(
    server: KapServer,
    session: str,
    name: str = "call_1",
    turn: int = 0,
    *,
    tool: str = BASH,
    command: str = COMMAND,
) -> str:
    """A call waits for a person's approval; gives the approval's id, at 0.28.0 the call's own."""
    approval = name if server.is_old else f"approval_{name}"
    display: JSONObject = {"kind": "command", "command": command, "cwd": "/home/user/project"}
    asked: JSONObject = {"turnId": turn, "toolCallId": name, "toolName": tool, "display": display}
    asked |= {"action": f"Running: {command}", "toolInput": {"command": command}}
    if not server.is_old:
        asked["id"] = approval
    server.say(session, "permission.approval.requested", asked)
    work_changed(server, session, pending="approval")
    payload: JSONObject = {"approval_id": approval, "session_id": session, "turn_id": turn}
    payload |= {"tool_call_id": name, "tool_name": tool, "action": f"Running: {command}"}
    payload |= {"tool_input_display": display, "created_at": NOW, "expires_at": NOW}
    if not server.is_old:
        payload["agent_id"] = "main"
    server.say(session, "event.approval.requested", payload)
    return approval


def resolve(
    server: KapServer, session: str, approval: str, verdict: JSONObject | None = None
) -> None:
    """It was answered, or, without a verdict, is no longer asked. What the call does is said apart.

    Args:
        server: where.
        session: its id.
        approval: what `ask` gave.
        verdict: the body of the answer: `decision`, and perhaps `scope` and `feedback`.
    """
    asked = server.live[session].approvals.get(approval, {})
    kept = ("decision", "feedback", "scope", "selected_label")
    said = {name: value for name, value in (verdict or {}).items() if name in kept}
    resolved: JSONObject = {"approval_id": approval, **said, "resolved_at": NOW}
    if server.is_old:
        if verdict is not None:
            work_changed(server, session)
        server.say(session, "event.approval.resolved", resolved)
    else:
        server.say(session, "event.approval.resolved", resolved)
        work_changed(server, session)
    if verdict is not None:
        twin: JSONObject = {**said, "toolCallId": asked.get("tool_call_id")}
        server.say(session, "permission.approval.resolved", twin)


def question(server: KapServer, session: str, name: str = "call_1", turn: int = 0) -> str:
    """A form waits for a person; gives its id."""
    form = f"question_{name}"
    options: list[JSON] = [
        {"id": "opt_0_0", "label": "dev", "description": "development"},
        {"id": "opt_0_1", "label": "prod", "description": "production"},
    ]
    asked: JSONObject = {"id": "q_0", "question": "Which env should I use?", "options": options}
    payload: JSONObject = {"question_id": form, "session_id": session, "turn_id": turn}
    payload |= {"tool_call_id": name, "questions": [asked], "created_at": NOW}
    call(server, session, name, turn, tool="AskUserQuestion", args={"questions": [asked]})
    work_changed(server, session, pending="question")
    server.say(session, "event.question.requested", payload)
    return form


def abort(server: KapServer, session: str) -> None:
    """What the running turn comes to when it is aborted; nothing where none runs."""
    work = server.live[session]
    if work.turn is None:
        return
    turn, prompt = work.turn["turn_id"], _prompt(server, session)
    for form in list(work.questions):
        name = str(work.questions[form]["tool_call_id"])
        dismissed: JSONObject = {"question_id": form, "dismissed_at": NOW}
        if server.is_old:
            work_changed(server, session)
            server.say(session, "event.question.dismissed", dismissed)
        else:
            server.say(session, "event.question.dismissed", dismissed)
            work_changed(server, session)
        server.say(session, "tool.result", {"turnId": turn, "toolCallId": name, "output": "{}"})
    interrupted: JSONObject = {"turnId": turn, "step": 1, "reason": "aborted"}
    server.say(session, "turn.step.interrupted", interrupted)
    ended: JSONObject = {"turnId": turn, "reason": "cancelled", "durationMs": 5}
    server.say(session, "turn.ended", ended)
    if server.is_old:
        work_changed(server, session, ended="cancelled")
    for approval in list(work.approvals):
        resolve(server, session, approval)
    if not server.is_old:
        work_changed(server, session, ended="cancelled")
    server.say(session, "prompt.aborted", {"promptId": prompt, "abortedAt": NOW})


def work_changed(
    server: KapServer, session: str, *, pending: str = "none", ended: str | None = None
) -> None:
    """What the session does now: a turn, in which something may wait, or none any longer."""
    is_busy = ended is None
    changed: JSONObject = {"busy": is_busy, "main_turn_active": is_busy}
    changed["pending_interaction"] = pending
    if ended is not None:
        changed["last_turn_reason"] = ended
    server.say(session, "event.session.work_changed", changed)


def _prompt(server: KapServer, session: str) -> JSON:
    turn = server.live[session].turn
    return (turn and turn["current_prompt_id"]) or f"msg_{ulid()}"
