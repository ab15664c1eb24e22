"""When two runs of the CLI are the same run, as its provider and its terminal see it.

Compared byte for byte, in order: path, headers and body of every request, exit status, stdout,
stderr. `BY_NATURE` lists all that is taken out before: what differs between any two runs of the
CLI, with hooks or without.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import frozen

from vendor.kimi import Kimi, Turn
from vendor.place import Place
from vendor.provider import Provider, Request

SESSION = re.compile(rb"session_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

BY_NATURE = (
    # The random id of the session: a cache key in 2.1.0's requests, the advice on stderr in both.
    (SESSION, b"SESSION"),
    # 0.28.0's system prompt gives the moment of the session's start, to the millisecond.
    (re.compile(rb"(?<=ISO format is `)\d{4}-\d\d-\d\dT[\d:.]+Z"), b"MOMENT"),
    # 2.1.0 reminds of the date: two runs can lie around midnight.
    (re.compile(rb"(?<=Today's date is )\d{4}-\d\d-\d\d"), b"DATE"),
    # 2.1.0 tells the model how long each tool took.
    (re.compile(rb"(?<=Wall time: )[\d.]+(?= seconds)"), b"DURATION"),
)


@frozen
class Seen:
    """One run as the outside saw it, comparable with `==`."""

    requests: tuple[Request, ...]
    statuses: tuple[int, ...]
    stdout: tuple[bytes, ...]
    stderr: tuple[bytes, ...]


def settled(said: bytes) -> bytes:
    """The bytes without what differs by nature."""
    for pattern, word in BY_NATURE:
        said = pattern.sub(word, said)
    return said


def _headers(request: Request) -> tuple[tuple[str, str], ...]:
    """All but the length of the body, which follows from the body."""
    return tuple(pair for pair in request.headers if pair[0].lower() != "content-length")


def seen(turns: Sequence[Turn], requests: Sequence[Request]) -> Seen:
    """What is compared of these turns and the requests they made."""
    return Seen(
        requests=tuple(
            Request(request.path, _headers(request), settled(request.body)) for request in requests
        ),
        statuses=tuple(turn.status for turn in turns),
        stdout=tuple(settled(turn.stdout.encode()) for turn in turns),
        stderr=tuple(settled(turn.stderr.encode()) for turn in turns),
    )


def watch(
    kimi: Kimi, place: Place, provider: Provider, config: bytes, script: Sequence[Sequence[str]]
) -> Seen:
    """Run the script (the arguments of each call of `kimi`) from a first day with this config."""
    place.renew(config)
    provider.take()
    turns = [kimi.run(place, *arguments) for arguments in script]
    return seen(turns, provider.take())
