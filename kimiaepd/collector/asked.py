"""What a consumer asks for, read from JSON or from a query: filter, ceiling, positions (AEP-0003).

It fails closed: what cannot be read is refused with one line, and never taken for "everything".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kimiaepd.collector.attr_match import FilterError, FilterTooLargeError, compile_filter
from kimiaepd.collector.hub import Demand
from kimiaepd.mapping.event import Capture
from kimiaepd.mapping.json_value import JSON, MalformedJSONError, parse
from kimiaepd.storage.journal import Position

MOST_POSITIONS = 500
"""Positions in one `from`: as many as sessions are held."""

LONGEST_TEXT = 64 << 10
"""Characters of a query's parameter."""

_LAST_EVENT_ID = re.compile(r"(.+):(\d{1,15}):(\d{1,15})", re.DOTALL)
_LEVELS = {level.word: level for level in Capture}


class AskedError(ValueError):
    """What was asked for cannot be understood; `str()` is the `detail`."""


class TooMuchError(AskedError):
    """It is more than a limit allows; `str()` names the limit."""


def read_demand(filter_: JSON, capture: JSON, since: JSON) -> Demand:
    """A subscription's wish.

    Raises:
        AskedError: it is malformed.
        TooMuchError: it asks for more than a limit allows.
    """
    try:
        compiled = compile_filter({} if filter_ is None else filter_)
    except FilterTooLargeError as error:
        raise TooMuchError(str(error)) from None
    except FilterError as error:
        raise AskedError(str(error)) from None
    if since == "all":
        return Demand(compiled, _ceiling(capture), everything=True)
    return Demand(compiled, _ceiling(capture), _positions(since))


def read_query(query: Mapping[str, str], last_event_id: str | None) -> Demand:
    """The same from a query string; `from` wins over Last-Event-ID (section 3.3).

    Raises:
        AskedError: it is malformed.
        TooMuchError: it asks for more than a limit allows.
    """
    since: JSON = query.get("from")
    if since is not None and since != "all":
        since = _json(query["from"], "from")
    elif since is None and last_event_id and (found := _LAST_EVENT_ID.fullmatch(last_event_id)):
        since = [{"session": found[1], "epoch": int(found[2]), "seq": int(found[3])}]
    text = query.get("filter")
    return read_demand(_json(text, "filter") if text else None, query.get("capture"), since)


def _ceiling(value: JSON) -> Capture | None:
    if value is None or value == "":
        return None
    level = _LEVELS.get(value) if isinstance(value, str) else None
    if level is None:
        raise AskedError(f"capture must be one of {', '.join(_LEVELS)}")
    return level


def _positions(value: JSON) -> tuple[tuple[str, Position], ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise AskedError('from must be a list of {session, epoch, seq}, or "all"')
    if len(value) > MOST_POSITIONS:
        raise TooMuchError(f"from has more than {MOST_POSITIONS} positions")
    return tuple(_position(one) for one in value)


def _position(value: JSON) -> tuple[str, Position]:
    match value:
        case {"session": str(session), "seq": int(seq), **rest} if seq is not True:
            epoch = rest.get("epoch", 0)
            if isinstance(epoch, int) and not isinstance(epoch, bool):
                return session, (epoch, seq)
    raise AskedError("each position of from needs a session, and an epoch and a seq in numbers")


def _json(text: str, name: str) -> JSON:
    if len(text) > LONGEST_TEXT:
        raise TooMuchError(f"{name} is longer than {LONGEST_TEXT} characters")
    try:
        return parse(text.encode("utf-8", "replace"))
    except MalformedJSONError as error:
        raise AskedError(f"{name} is not JSON: {error}") from None
