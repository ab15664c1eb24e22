"""What a scripted `kimi web` server keeps: a home's token, its sessions, and a journal of each.

Rules, as observed (0.28.0 to 2.1.0):
- A home is shared by its servers, and outlives them: the same journal, with the same epoch, goes on
  after a restart.
- What a session does is known to the server that runs it alone (`Work`): a restart forgets it.
- A journal has what is durable; a volatile frame has the place of the last durable one.

It sends nothing and listens nowhere (`kap_server.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from attrs import define, field

from kimiaepd.mapping.json_value import JSON, JSONObject

TOKEN = "t0k_en-" + "x" * 36
GLOBAL = "__global__"
LONGEST_GAP = 1000
"""Frames that are replayed at most."""

NOW = "2026-12-01T00:00:00.000Z"

_numbers = count(1)


def ulid() -> str:
    """An id like the vendor's, each greater than the one before."""
    return f"01KAP{next(_numbers):021d}"


def words(value: JSON) -> list[str]:
    """The strings of a list; what is no list is an empty one."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def members(value: JSON) -> JSONObject:
    """An object; what is none is an empty one."""
    return value if isinstance(value, dict) else {}


@define(eq=False)
class Journal:
    """The durable frames of one session, or of the server as a whole.

    Attributes:
        seq: of the last frame.
        frames: those that can be replayed; not all, where it was begun in the middle.
    """

    epoch: str = field(factory=lambda: f"ep_{ulid()}")
    seq: int = 0
    frames: list[JSONObject] = field(factory=list)

    def add(self, frame: JSONObject) -> None:
        """Keep a frame that has its place already."""
        seq = frame["seq"]
        assert isinstance(seq, int)
        assert seq > self.seq, "a journal only grows"
        self.seq = seq
        self.frames.append(frame)

    def cursor(self) -> JSONObject:
        """Where it stands."""
        return {"seq": self.seq, "epoch": self.epoch}

    def since(self, cursor: JSONObject) -> list[JSONObject] | str:
        """What comes after a cursor, or why that cannot be told."""
        at = max(0, _number(cursor.get("seq")))
        if cursor.get("epoch", self.epoch) != self.epoch or at > self.seq:
            return "epoch_changed"
        if self.seq - at > LONGEST_GAP:
            return "buffer_overflow"
        return [frame for frame in self.frames if _number(frame["seq"]) > at]


def _number(value: JSON) -> int:
    """As JavaScript compares it: text counts too."""
    return int(value) if isinstance(value, int | float | str) else 0


@define(eq=False)
class Session:
    """One session of a home, live or cold.

    Attributes:
        title: the person's.
        last_turn_reason: how its last turn ended.
        woken: the calls that woke it while it was cold; each ran the person's hooks.
        used: the greater, the later.
    """

    id: str
    journal: Journal = field(factory=Journal)
    title: str = ""
    is_archived: bool = False
    last_turn_reason: str | None = None
    woken: list[str] = field(factory=list)
    used: int = field(factory=lambda: next(_numbers))

    def note(self, frame: JSONObject) -> None:
        """Take in what was said of it."""
        self.used = next(_numbers)
        payload = members(frame["payload"])
        match frame["type"]:
            case "turn.ended" if payload.get("agentId") == "main":
                self.last_turn_reason = str(payload.get("reason"))
            case "event.session.archived":
                self.is_archived = True


@define(eq=False)
class Work:
    """What a live session does, at the server that runs it.

    Attributes:
        is_busy: something runs in it.
        turn_is_active: a turn of the main agent does.
        turn: that turn, once it was said to have begun.
        approvals: those that nobody has answered, by id.
        questions: the same.
        answered: the ids of those that somebody has.
    """

    is_busy: bool = False
    turn_is_active: bool = False
    turn: JSONObject | None = None
    approvals: dict[str, JSONObject] = field(factory=dict)
    questions: dict[str, JSONObject] = field(factory=dict)
    answered: set[str] = field(factory=set)

    @property
    def pending(self) -> str:
        """What waits for a person."""
        return "approval" if self.approvals else "question" if self.questions else "none"

    def note(self, frame: JSONObject) -> None:
        """Take in what was said of the session."""
        payload = members(frame["payload"])
        match frame["type"]:
            case "event.session.work_changed":
                self.is_busy = payload.get("busy") is True
                self.turn_is_active = payload.get("main_turn_active") is True
            case "turn.started" if payload.get("agentId") == "main":
                self.is_busy = self.turn_is_active = True
                self.turn = {
                    "turn_id": payload.get("turnId"),
                    "assistant_text": "",
                    "thinking_text": "",
                    "running_tools": [],
                    "current_prompt_id": payload.get("promptId"),
                }
            case "turn.ended" if payload.get("agentId") == "main":
                self.is_busy, self.turn_is_active, self.turn = False, False, None
            case "event.approval.requested":
                self.approvals[str(payload["approval_id"])] = _asked(payload)
            case "event.question.requested":
                self.questions[str(payload["question_id"])] = _asked(payload)
            case "event.approval.resolved":
                self._answer(self.approvals, payload.get("approval_id"))
            case "event.question.answered" | "event.question.dismissed":
                self._answer(self.questions, payload.get("question_id"))

    def _answer(self, asks: dict[str, JSONObject], name: JSON) -> None:
        asks.pop(str(name), None)
        self.answered.add(str(name))


def _asked(payload: JSONObject) -> JSONObject:
    """An ask as the REST calls have it."""
    return {
        name: value
        for name, value in payload.items()
        if name not in ("type", "agentId", "sessionId")
    }


@define(eq=False)
class KapHome:
    """A Kimi home, as far as its servers see it.

    Attributes:
        path: the folder, `$KIMI_CODE_HOME`.
        token: what its servers take now.
        sessions: all of them, by id.
        journal: the one of what concerns no session.
    """

    path: Path
    token: str = TOKEN
    sessions: dict[str, Session] = field(factory=dict)
    journal: Journal = field(factory=Journal)

    def __attrs_post_init__(self) -> None:
        self.instances.mkdir(parents=True, exist_ok=True)
        self.rotate(self.token)

    @property
    def instances(self) -> Path:
        """Where each server says where it is."""
        return self.path / "server/instances"

    def rotate(self, token: str) -> None:
        """`kimi web rotate-token`: running servers take the new one at once, and it alone."""
        self.token = token
        file = self.path / "server.token"
        file.touch(mode=0o600)
        file.write_text(token)

    def session(self, name: str, *, epoch: str | None = None, seq: int = 0) -> Session:
        """A session that is there, cold where no server runs it.

        Args:
            name: its id.
            epoch: its journal's, where it is not there yet.
            seq: where that journal stands; nothing before that is replayed.
        """
        if name not in self.sessions:
            journal = Journal(seq=seq) if epoch is None else Journal(epoch, seq)
            self.sessions[name] = Session(name, journal)
        return self.sessions[name]

    def latest(self) -> Iterator[Session]:
        """The sessions, the last used first."""
        return iter(sorted(self.sessions.values(), key=lambda one: -one.used))
