"""A story that the stream of `kimi web` tells too: one session's hooks and frames, in virtual time.

Frames are mapped as `primary` maps them; the clock of the server is the story's own.
"""

from __future__ import annotations

from attrs import define, field

from kimiaepd.lifecycle.stream import Said
from kimiaepd.mapping import web
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.mapping.web_frames import read_frame
from kimiaepd.mapping.web_memory import Memory
from story import Story

JOURNAL = "ep_1"


@define
class StreamStory(Story):
    """A story, and what the server has said of it."""

    memory: Memory = field(factory=Memory)
    _seq: int = 0

    def streamed(self, *, is_streamed: bool = True) -> None:
        """The bridge comes, or goes."""
        self.machine.is_streamed = is_streamed

    def told(self, event: str, fields: JSONObject, after: float = 0.0) -> None:
        """Let time pass, then take one hook in."""
        self.wait(after)
        self.take({"hook_event_name": event, "session_id": "s", **fields})

    def frame(
        self,
        kind: str,
        after: float = 0.0,
        *,
        said_at: float | None = None,
        command: str | None = None,
        **payload: JSON,
    ) -> None:
        """Let time pass, then take in one frame; the server said it now, or when said."""
        self.wait(after)
        self._seq += 1
        raw: JSONObject = {
            "type": kind, "seq": self._seq, "session_id": "s", "epoch": JOURNAL,
            "payload": {"agentId": "main", **payload},
        }  # fmt: skip
        frame = read_frame(raw)
        mapped = web.primary(frame, self.memory)
        self.memory = mapped.memory
        said_ns = round((self.now if said_at is None else said_at) * 1e9)
        self.machine.frame(Said(mapped, web.visibility(frame), self.now, said_ns, command))

    # --- what a server says, by what it means ---

    def turn(self, number: int, after: float = 0.0, said_at: float | None = None) -> None:
        origin: JSON = {"kind": "user"}
        self.frame("turn.started", after, said_at=said_at, turnId=number, origin=origin)

    def turn_ends(
        self, number: int, after: float = 0.0, reason: str = "completed", command: str | None = None
    ) -> None:
        self.frame("turn.ended", after, turnId=number, reason=reason, command=command)

    def call(self, number: int, call_id: str, said_at: float | None = None) -> None:
        self.frame(
            "tool.call.started", said_at=said_at, turnId=number, toolCallId=call_id, name="Bash",
            args={"command": call_id},
        )  # fmt: skip

    def result(self, number: int, call_id: str, *, is_error: bool = False) -> None:
        # None is as absent, which is what the vendor makes of a success.
        failed = is_error or None
        self.frame("tool.result", turnId=number, toolCallId=call_id, output="x", isError=failed)

    def asks(self, number: int, ask: str, call_id: str) -> None:
        self.frame(
            "event.approval.requested", turn_id=number, approval_id=ask, tool_call_id=call_id,
            tool_name="Bash", action="Running", agent_id="main",
        )  # fmt: skip

    def answered(self, ask: str, decision: str | None, command: str | None = None) -> None:
        kind = "event.approval.resolved"
        self.frame(kind, command=command, approval_id=ask, decision=decision)
