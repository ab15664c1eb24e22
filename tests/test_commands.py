"""Control intake: one decision a command, one answer, and the same bytes when it is asked again."""

from __future__ import annotations

import pytest
from attrs import define, field
from structlog.testing import capture_logs

from kimiaepd import commands as room
from kimiaepd.commands import ACCEPTED, Command, Commands, Decision, read_command
from kimiaepd.mapping.event import Draft
from kimiaepd.mapping.json_value import JSON, JSONObject

COMMAND: JSONObject = {
    "aep": "0.1", "id": "c1", "type": "control.cancel", "source": "aep://phone", "agent": "phone",
    "session": "s", "data": {"scope": "run"},
}  # fmt: skip


@define
class Desk:
    """Commands with everything around them written down."""

    is_authenticated: bool = True
    acknowledged: list[tuple[str, Draft]] = field(factory=list)
    again: list[bytes] = field(factory=list)
    handled: list[Command] = field(factory=list)
    decision: Decision = ACCEPTED
    declined: int = 0
    now: float = 0.0
    commands: Commands = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.commands = Commands(
            is_known=lambda session: session == "s",
            acknowledge=self._acknowledge,
            decline=self._decline,
            again=self.again.append,
            is_authenticated=lambda: self.is_authenticated,
            clock=lambda: self.now,
        )
        self.commands.register("control.cancel", self._handle)

    def _acknowledge(self, command: Command, draft: Draft) -> bytes:
        self.acknowledged.append((command.id, draft))
        return b"ack %d" % len(self.acknowledged)

    def _decline(self, command: Command, draft: Draft) -> bytes:
        self.declined += 1
        return self._acknowledge(command, draft)

    def _handle(self, command: Command) -> Decision:
        self.handled.append(command)
        return self.decision

    def take(self, **changes: JSON) -> str:
        """Take a command; gives back what the last acknowledgement says."""
        self.commands.take({**COMMAND, **changes})
        draft = self.acknowledged[-1][1]
        reasons = [str(one.value) for one in draft.fields if one.path == ("reason",)]
        return " ".join([draft.type, *reasons])


def test_an_accepted_command_is_handled_once_and_acknowledged_once() -> None:
    desk = Desk()
    assert desk.take() == "control.accepted"
    assert desk.handled == [
        Command("c1", "aep://phone", "control.cancel", "s", None, {"scope": "run"})
    ]
    assert desk.again == []


def test_a_repeated_command_gets_the_recorded_answer_and_nothing_is_done() -> None:
    desk = Desk()
    desk.take()
    desk.decision = Decision("refused")
    for _ in range(3):
        desk.commands.take(dict(COMMAND))
    assert desk.again == [b"ack 1"] * 3
    assert len(desk.handled) == len(desk.acknowledged) == 1
    assert desk.commands.repeated == 3


def test_the_key_is_the_source_and_the_id() -> None:
    desk = Desk()
    desk.take()
    desk.take(source="aep://laptop")
    desk.take(id="c2")
    assert len(desk.handled) == 3


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"type": "control.pause"}, "control.rejected unsupported"),
        ({"type": "x.acme.control.dance"}, "control.rejected unsupported"),
        ({"type": "control.dance"}, "control.rejected unsupported"),
        ({"session": "unknown"}, "control.rejected invalid"),
        ({"session": "unknown", "type": "control.pause"}, "control.rejected unsupported"),
    ],
)
def test_what_cannot_be_done_is_rejected_with_the_standards_reason(
    changes: dict[str, JSON], answer: str
) -> None:
    desk = Desk()
    assert desk.take(**changes) == answer
    assert desk.handled == []


def test_without_authentication_nothing_is_done() -> None:
    desk = Desk(is_authenticated=False)
    assert desk.take() == "control.rejected unauthorized"
    assert desk.handled == []


def test_a_rejection_carries_its_detail_at_the_redacted_level() -> None:
    desk = Desk(decision=Decision("refused", "not on a Sunday"))
    assert desk.take() == "control.rejected refused"
    levels = {one.path[0]: one.level.word for one in desk.acknowledged[-1][1].fields}
    assert levels == {"reason": "metadata", "detail": "redacted"}


def test_what_comes_of_a_command_comes_once_and_after_its_answer() -> None:
    done: list[int] = []
    desk = Desk()
    desk.decision = Decision(then=lambda: done.append(len(desk.acknowledged)))
    assert desk.take() == "control.accepted"
    desk.commands.take(dict(COMMAND))
    assert done == [1]


def test_what_fails_to_come_of_a_command_costs_no_other() -> None:
    def broken() -> None:
        raise RuntimeError("oh")

    desk = Desk(decision=Decision(then=broken))
    with capture_logs() as logs:
        assert desk.take() == "control.accepted"
    assert [line["log_level"] for line in logs] == ["error"]
    desk.decision = ACCEPTED
    assert desk.take(id="c2") == "control.accepted"


def test_a_handler_that_fails_costs_its_own_command_alone() -> None:
    desk = Desk()

    def broken(_: Command) -> Decision:
        raise RuntimeError("oh")

    desk.commands.register("control.cancel", broken)
    assert desk.take() == "control.rejected refused"
    assert desk.take(id="c2", type="control.pause") == "control.rejected unsupported"


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": 7},
        {**COMMAND, "type": "tool.completed"},
        {**COMMAND, "type": "control.accepted"},
        {**COMMAND, "type": "control.rejected"},
        {**COMMAND, "type": "x.acme.run.control.dance"},
        {**COMMAND, "id": None},
        {**COMMAND, "id": ""},
        {**COMMAND, "id": "x" * 257},
        {**COMMAND, "source": ["a"]},
        {**COMMAND, "session": None},
    ],
)
def test_what_is_no_command_is_ignored(event: JSONObject) -> None:
    desk = Desk()
    desk.commands.take(event)
    assert desk.acknowledged == []
    assert desk.commands.ignored == 1


def test_a_payload_of_another_type_is_an_empty_one() -> None:
    command = read_command({**COMMAND, "data": [1], "subject": 7})
    assert command is not None
    assert (command.data, command.subject) == ({}, None)


def test_the_memory_is_bounded_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST", 3)
    desk = Desk()
    for number in range(5):
        desk.take(id=f"c{number}")
    desk.commands.take({**COMMAND, "id": "c4"})
    assert desk.again == [b"ack 5"]
    desk.commands.take({**COMMAND, "id": "c0"})
    assert len(desk.handled) == 6


def test_a_flood_is_busy_and_neither_handled_nor_logged() -> None:
    desk = Desk()
    answers = [desk.take(id=f"c{number}") for number in range(room.BURST + 50)]
    assert answers[room.BURST :] == ["control.rejected busy"] * 50
    assert (len(desk.handled), desk.declined) == (room.BURST, 50)
    desk.now += 10
    answers = [desk.take(id=f"later{number}") for number in range(30)]
    assert answers.count("control.accepted") == 10 * room.PER_SECOND
    desk.commands.take({**COMMAND, "id": "c0"})
    assert desk.again == [b"ack 1"], "an answer that was given is given again"


def test_a_persons_words_are_not_in_a_commands_repr() -> None:
    assert "run" not in repr(read_command(COMMAND))
