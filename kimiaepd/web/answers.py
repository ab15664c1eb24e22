"""The shapes of what a `kimi web` server answers: the JSON edge, after which everything has a type.

Rules:
- Only what somebody needs has a field; what else comes is left where it is.
- A field that must be there is an id or a position. Everything else has the default that the
  vendor's older releases imply by leaving it out.
- Types are held, never made: the number 1 is no id "1". An answer with one thing of another type
  is odd as a whole, because what is missing from a list would look like what has ended.

Arguments of tools, questions and texts stay JSON: the mapping reads them, and bounds them.
"""

from __future__ import annotations

from typing import NewType, TypeVar

import cattrs
from attrs import frozen
from cattrs.gen import make_dict_structure_fn

from kimiaepd.http_call import Answer
from kimiaepd.mapping.json_value import JSON
from kimiaepd.web.errors import OddAnswerError, RefusedError

LiveSession = NewType("LiveSession", str)
"""The id of a session that is known to be live at the server that is asked.

Every call about one session but `session` wakes a cold one (observed at 0.28.0 and 2.1.0), and that
runs the user's SessionStart hooks. A session is live where the server accepted a subscription to
it, or says that it is busy. It is live at that server alone.
"""

T = TypeVar("T")

_OK = 200


@frozen
class Meta:
    """The server itself."""

    server_version: str
    dangerous_bypass_auth: bool = False


@frozen
class Session:
    """One session as a list has it.

    Attributes:
        id: the vendor's, which is also the hooks' session id.
        busy: something runs in it: a turn, or a compaction.
        main_turn_active: a turn of the main agent runs.
        pending_interaction: "none", "approval" or "question".
        created_at: when it began, as the vendor writes it.
    """

    id: str
    busy: bool = False
    main_turn_active: bool = False
    pending_interaction: str = "none"
    archived: bool = False
    created_at: JSON = None

    @property
    def live(self) -> LiveSession | None:
        """Its id where it is surely live. None where it is idle: no list tells that from cold."""
        is_live = self.busy or self.pending_interaction != "none"
        return LiveSession(self.id) if is_live else None


@frozen
class SessionPage:
    """A part of the list, the last used first."""

    items: tuple[Session, ...]
    has_more: bool = False


@frozen
class Approval:
    """An approval that nobody has answered.

    Attributes:
        approval_id: what an answer names; the call's id at 0.28.0, another one later.
        tool_input_display: what would be done, for people.
    """

    approval_id: str
    tool_call_id: str
    tool_name: str
    turn_id: int
    agent_id: str = "main"
    action: JSON = None
    tool_input_display: JSON = None


@frozen
class Approvals:
    """Those of one session."""

    items: tuple[Approval, ...]


@frozen
class Question:
    """A form that nobody has filled in; `questions` is what `mapping.web_forms` reads."""

    question_id: str
    tool_call_id: str
    turn_id: int
    agent_id: str = "main"
    questions: JSON = None


@frozen
class Questions:
    """Those of one session."""

    items: tuple[Question, ...]


@frozen
class InFlightTurn:
    """The main agent's turn that runs now."""

    turn_id: int
    current_prompt_id: str | None = None


@frozen
class Snapshot:
    """How a session stands at one position of its stream.

    Attributes:
        as_of_seq: the position: what comes after it, the stream says.
        epoch: the journal that the position is of.
        in_flight_turn: None where no turn runs.
    """

    as_of_seq: int
    epoch: str
    session: Session
    in_flight_turn: InFlightTurn | None = None
    pending_approvals: tuple[Approval, ...] = ()
    pending_questions: tuple[Question, ...] = ()


@frozen
class Resolved:
    """Whether an answer was the one that counted."""

    resolved: bool


@frozen
class Aborted:
    """Whether a turn was aborted; the vendor says so of an idle session too."""

    aborted: bool


def opened(answer: Answer) -> JSON:
    """The data in the vendor's envelope.

    Raises:
        OddAnswerError: there is no envelope.
        RefusedError: its code says no.
    """
    if answer.is_cut:
        raise OddAnswerError(f"an answer of more than {len(answer.body)} bytes")
    envelope = answer.json() or {}
    number, said = envelope.get("code"), envelope.get("msg")
    # Its routes that do not exist answer without a code: {message, error, statusCode}.
    if type(number) is not int:  # a bool is an int to isinstance
        raise OddAnswerError(f"HTTP {answer.status} without kimi web's envelope")
    if number != 0:
        raise RefusedError(number, said if isinstance(said, str) else "")
    if answer.status != _OK:
        raise OddAnswerError(f"HTTP {answer.status} with the code of a success")
    return envelope.get("data")


def read(kind: type[T], data: JSON) -> T:
    """The data as a type.

    Raises:
        OddAnswerError: it has another shape; where is said, and no value of it.
    """
    if not isinstance(data, dict):
        raise OddAnswerError(f"no data for {kind.__name__}")
    try:
        return _CONVERTER.structure(data, kind)
    except cattrs.BaseValidationError as error:
        found = cattrs.transform_error(error, path="$", format_exception=lambda *_: "unfit")
        raise OddAnswerError(f"data for {kind.__name__}: {found[0]}") from None


def _exactly(value: object, kind: type[T]) -> T:
    if type(value) is not kind:  # a bool is an int to isinstance
        raise ValueError(f"must be {kind.__name__}")
    return value


def _items(value: object, kind: type[tuple[T, ...]]) -> tuple[T, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list")  # noqa: TRY004 - what the converter collects
    (item, _) = kind.__args__  # type: ignore[attr-defined]  # a generic alias has them
    return tuple(_CONVERTER.structure(one, item) for one in value)


def _json(value: JSON, _: object) -> JSON:
    return value


_CONVERTER = cattrs.Converter()
for _kind in (str, int, bool):
    _CONVERTER.register_structure_hook(_kind, _exactly)
_CONVERTER.register_structure_hook_func(
    lambda kind: getattr(kind, "__origin__", None) is tuple, _items
)
_CONVERTER.register_structure_hook(
    Session,
    make_dict_structure_fn(Session, _CONVERTER, created_at=cattrs.override(struct_hook=_json)),
)
_CONVERTER.register_structure_hook(
    Approval,
    make_dict_structure_fn(
        Approval,
        _CONVERTER,
        action=cattrs.override(struct_hook=_json),
        tool_input_display=cattrs.override(struct_hook=_json),
    ),
)
_CONVERTER.register_structure_hook(
    Question,
    make_dict_structure_fn(Question, _CONVERTER, questions=cattrs.override(struct_hook=_json)),
)
