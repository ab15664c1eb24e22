"""Who claims what, and where a command goes (AEP-0003 section 4.1, AEP-0004 section 4).

Rules:
- A connection claims a session by sending an event that has a place in its order: the owner's
  alone has one (AEP-0001 section 5.2). A consumer that is not an emitter too claims nothing.
- A command goes to at most one connection. Where two claim its session, it goes to none.
- What a connection declared is said and obeyed as it came: nothing is merged, guessed or added. One
  that declared no `control.accepts` accepts nothing (AEP-0003 section 4 rule 5).
- A connection with too many claims loses its own that was least lately of use, never another's.

Worst case in memory: `CLAIMS` names of `LONGEST_NAME` characters, 18 MiB, and for each connection
`MOST_DECLARED` bytes of JSON, which may be thirty times as many once they are parsed. As JSON a
roster has at most `CLAIMS` times what a claim and a declaration have; in practice 300 bytes each.

Pure. It sends nothing; a connection is whatever can be told apart from others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Literal, TypeAlias, TypeVar

from attrs import define, field, frozen

from kimiaepd.mapping.json_value import JSON, JSONObject, dump

CLAIMS = 4_000
"""Of all connections together."""

CLAIMS_EACH = 1_000
"""Of one connection."""

LONGEST_NAME = 1_024
"""Characters of a session's name; one that is longer cannot be claimed."""

MOST_DECLARED = 4_096
"""Bytes of what a connection declares; one that declares more can claim nothing."""

Code: TypeAlias = Literal["unauthorized", "unsupported", "ambiguous", "no-route"]
"""Why a command goes nowhere: all that 0.1 defines (AEP-0004 section 4 rule 2)."""

Connection = TypeVar("Connection", bound=Hashable)


@frozen
class Refusal:
    """Why a command goes nowhere; it is said to the sender alone and enters no history.

    Attributes:
        code: for programs.
        detail: for people.
    """

    code: Code
    detail: str


@define(eq=False)
class _Member:
    """One connection.

    Attributes:
        declared: its part of every entry, as it came; None: it can claim nothing.
        accepts: the types of command that it takes.
        claims: its sessions, the one that was claimed last at the end.
    """

    declared: JSONObject | None
    accepts: frozenset[str]
    claims: OrderedDict[str, None] = field(factory=OrderedDict)


@define(eq=False)
class Roster(Generic[Connection]):
    """The live claims.

    Attributes:
        most: claims of all connections.
        most_each: claims of one.
        claims: how many there are.
        dropped: claims that were not taken on, or given up, because there were too many.
    """

    most: int = CLAIMS
    most_each: int = CLAIMS_EACH
    claims: int = 0
    dropped: int = 0
    _members: dict[Connection, _Member] = field(factory=dict)
    _claimants: dict[str, dict[Connection, None]] = field(factory=dict)

    def joined(self, connection: Connection, hello: JSONObject) -> bool:
        """Take on a connection that has said hello; a second hello begins it anew.

        Returns:
            Whether it can claim sessions: it is an emitter, and declares no more than
            `MOST_DECLARED` bytes.
        """
        self.left(connection)
        declared = _declared(hello)
        can_claim = hello.get("role") in ("emitter", "both") and _is_small(declared)
        self._members[connection] = (
            _Member(declared, _accepts(declared)) if can_claim else _Member(None, frozenset())
        )
        return can_claim

    def claimed(self, connection: Connection, session: str) -> bool:
        """Note that a connection sent an event of a session that is its own.

        Returns:
            Whether it claims the session now. It does not where it never joined, or has left.
        """
        member = self._members.get(connection)
        if member is None or member.declared is None or len(session) > LONGEST_NAME:
            return False
        if session in member.claims:
            member.claims.move_to_end(session)
            return True
        if not self._make_room(connection, member):
            return False
        member.claims[session] = None
        self._claimants.setdefault(session, {})[connection] = None
        self.claims += 1
        return True

    def _make_room(self, connection: Connection, member: _Member) -> bool:
        if len(member.claims) < self.most_each and self.claims < self.most:
            return True
        self.dropped += 1
        if not member.claims:
            return False
        self._give_up(connection, member.claims.popitem(last=False)[0])
        return True

    def _give_up(self, connection: Connection, session: str) -> None:
        claimants = self._claimants[session]
        del claimants[connection]
        if not claimants:
            del self._claimants[session]
        self.claims -= 1

    def left(self, connection: Connection) -> None:
        """Forget a connection and its claims; one that is not there is none."""
        member = self._members.pop(connection, None)
        for session in member.claims if member else ():
            self._give_up(connection, session)

    def entries(self) -> list[JSONObject]:
        """One entry for each live claim, of connections in the order in which they joined.

        What was declared is shared between them: write them out, and change nothing.
        """
        return [
            {"session": session, **member.declared}
            for member in self._members.values()
            if member.declared is not None
            for session in member.claims
        ]

    def route(self, command: JSONObject, *, is_authenticated: bool) -> Connection | Refusal:
        """The one connection that a command goes to, or why there is none.

        Args:
            command: the event, checked.
            is_authenticated: whether its sender may command at all.
        """
        if not is_authenticated:
            return Refusal("unauthorized", "a command needs a token that may control")
        session = command.get("session")
        claimants = self._claimants.get(session) if isinstance(session, str) else None
        if not claimants:
            return Refusal("no-route", "no connected emitter claims this session")
        if len(claimants) > 1:
            return Refusal("ambiguous", f"{len(claimants)} connected emitters claim this session")
        (target,) = claimants
        kind = command.get("type")
        if not isinstance(kind, str) or kind not in self._members[target].accepts:
            return Refusal("unsupported", "the session's emitter does not accept this command")
        return target


def _declared(hello: JSONObject) -> JSONObject:
    """What of a hello stands in a roster, where it was said at all."""
    identity, capabilities = _object(hello.get("identity")), _object(hello.get("capabilities"))
    return _only(identity, "agent", "instance") | _only(capabilities, "control", "emits")


def _only(declared: JSONObject, *names: str) -> JSONObject:
    return {name: declared[name] for name in names if name in declared}


def _is_small(declared: JSONObject) -> bool:
    try:
        return len(dump(declared)) <= MOST_DECLARED
    except RecursionError:
        return False


def _accepts(declared: JSONObject) -> frozenset[str]:
    accepts = _object(declared.get("control")).get("accepts")
    kinds = accepts if isinstance(accepts, list) else []
    return frozenset(kind for kind in kinds if isinstance(kind, str))


def _object(value: JSON) -> JSONObject:
    return value if isinstance(value, dict) else {}
