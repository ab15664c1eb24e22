"""Stories from the log on disk: which sessions there are, and what each of them tells.

Rules:
- Nothing but the log's files is needed: no relay, no daemon. They are read and never changed.
- What is damaged costs itself alone, and is counted: a line that is no event, a file that cannot be
  read.
- A session is meant by its name, or by its beginning where no other begins so.

What a story is: `story.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen

from kimiaepd.errors import UserError
from kimiaepd.storage.log_files import closed_stamps
from kimiaepd.storage.log_names import active_name, closed_name, stem_of
from kimiaepd.storage.log_reader import JournalError, LogReader, as_object
from kimiaepd.views.story import Story
from kimiaepd.views.words import harmless, is_meant, short

_SHOWN = 5
"""Names that an error says, of those that may be meant."""


@frozen
class Told:
    """A session's story, as far as its log can be read.

    Attributes:
        story: what it tells.
        damage: what cannot be read of it, in one line; None where all can.
    """

    story: Story
    damage: str | None


def sessions(directory: Path) -> list[str]:
    """The sessions that have a log, the one that was written to last first.

    Raises:
        UserError: the log cannot be read.
    """
    try:
        found = list(LogReader(directory).sessions())
    except JournalError as error:
        if not directory.exists():
            return []
        raise UserError(f"{directory}: the log cannot be read: {harmless(str(error))}") from None
    return sorted(found, key=lambda name: _written_at(directory, name), reverse=True)


def meant(typed: str, names: Iterable[str]) -> str:
    """The one session that a person means by the beginning of its name.

    Raises:
        UserError: there is none, or more than one.
    """
    found = [name for name in names if is_meant(name, typed)]
    if typed in found:
        return typed
    if not found:
        raise UserError(
            f"no session in the log begins with {harmless(typed)!r}; to see which there are: "
            "kimiaepd sessions"
        )
    if len(found) > 1:
        some = ", ".join(map(harmless, found[:_SHOWN]))
        more = ", ..." if len(found) > _SHOWN else ""
        raise UserError(f"{len(found)} sessions begin so: {some}{more}; say more of the name")
    return found[0]


def tell(directory: Path, session: str) -> Told:
    """A session's story."""
    reader, story, lost = LogReader(directory), Story(session), None
    try:
        for line in reader.read(session):
            event = as_object(line)
            if event is not None:  # the reader saw to it
                story.take(event)
    except JournalError as error:
        lost = harmless(str(error))
    return Told(story, _damage(session, reader.skipped + story.passed_over, lost))


def _damage(session: str, lines: int, lost: str | None) -> str | None:
    parts = []
    if lines:
        parts.append(f"{lines} line{'s' * (lines > 1)} cannot be read and stand in no story")
    if lost is not None:
        parts.append(f"a part cannot be read: {lost}")
    return f"the log of session {short(session)} is damaged: {'; '.join(parts)}" if parts else None


def _written_at(directory: Path, session: str) -> float:
    stem = stem_of(session)
    names = [active_name(stem)]
    with contextlib.suppress(OSError):
        names += [closed_name(stem, stamp) for stamp in closed_stamps(directory, stem)[-1:]]
    for name in names:
        with contextlib.suppress(OSError):
            return (directory / name).stat().st_mtime
    return 0.0
