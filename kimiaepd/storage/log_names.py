"""The names of the log's files: one to one with sessions, whatever a session is called (rule I25).

Rules:
- `<stem>.jsonl` is written to; `<stem>@<ns>.jsonl` is closed for good; `<either>.torn-<ns>` holds
  what a crash left behind.
- A stem is the session's id with every byte outside `[A-Za-z0-9._-]` percent-encoded, and a leading
  dot too. An id with an upper-case letter, which a file system that folds case would take for
  another, and one that is too long, end in `~` and 128 bits of the id's hash.
- `~`, `@` and a lone `%` never come out of an id, so no two ids share a name, folded or not.

Pure: it looks at no directory. A file whose name is not one of these is not ours, and stays.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote_to_bytes

from attrs import frozen

_STEM_BYTES = 200
_HASH_DIGITS = 32
_STAMP_DIGITS = 19  # nanoseconds since 1970, until the year 2286

_NAME = re.compile(
    rf"(?P<stem>[A-Za-z0-9._%-]+(?:~[0-9a-f]{{{_HASH_DIGITS}}})?)"
    rf"(?:@(?P<stamp>[0-9]{{{_STAMP_DIGITS}}}))?\.jsonl(?P<torn>\.torn-[0-9]{{{_STAMP_DIGITS}}})?"
)


@frozen
class LogName:
    """What a file's name says.

    Attributes:
        file: the name itself.
        stem: the session, encoded.
        stamp: when the file was closed, in ns; None while it is written to.
        torn: whether it holds a torn tail rather than lines.
    """

    file: str
    stem: str
    stamp: int | None
    torn: bool


def stem_of(session: str) -> str:
    """The part of a file's name that stands for the session; at most 200 bytes of ASCII."""
    raw = session.encode("utf-8", "surrogatepass")
    stem = re.sub(r"[^A-Za-z0-9._-]", _percent, raw.decode("latin-1"))
    if stem.startswith("."):
        stem = "%2E" + stem[1:]
    if len(stem) > _STEM_BYTES or raw != raw.lower():
        readable = re.sub(r"%[0-9A-F]?\Z", "", stem[: _STEM_BYTES - 1 - _HASH_DIGITS])
        return f"{readable}~{hashlib.sha256(raw).hexdigest()[:_HASH_DIGITS]}"
    return stem or "%"


def _percent(byte: re.Match[str]) -> str:
    return f"%{ord(byte[0]):02X}"


def session_of_stem(stem: str) -> str | None:
    """The session that a stem stands for; None where it was too long to say, or is no stem."""
    readable = stem.partition("~")[0]
    try:
        raw = b"" if readable == "%" else unquote_to_bytes(readable)
        session = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return session if stem_of(session) == stem else None


def active_name(stem: str) -> str:
    """The file that a session is written to."""
    return f"{stem}.jsonl"


def closed_name(stem: str, stamp: int) -> str:
    """The file that a session was written to until `stamp`, in ns since 1970."""
    return f"{stem}@{stamp:0{_STAMP_DIGITS}d}.jsonl"


def torn_name(file: str, stamp: int) -> str:
    """Where the torn tail of a file goes that was found at `stamp`, in ns since 1970."""
    return f"{file}.torn-{stamp:0{_STAMP_DIGITS}d}"


def parse_name(file: str) -> LogName | None:
    """Read a file's name; None where it is none of ours."""
    if not (found := _NAME.fullmatch(file)):
        return None
    stem, stamp = found["stem"], found["stamp"]
    if "~" not in stem and session_of_stem(stem) is None:
        return None  # another program's idea of a session's name
    return LogName(file, stem, int(stamp) if stamp else None, found["torn"] is not None)
