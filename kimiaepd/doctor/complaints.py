"""What a running daemon says against itself: its version, its places, and every count above zero.

Each is a warning: the daemon works, and a person should know what it could not do.
"""

from __future__ import annotations

from collections.abc import Iterator

from kimiaepd import __version__
from kimiaepd.doctor.check import Check, warning
from kimiaepd.log_lines import tame
from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.settings import Settings

_STDERR = "what it wrote to stderr says why"

_COUNTED = (
    (
        "events",
        "lost",
        "events lost, because they could not be written",
        f"{_STDERR}; see the disk",
    ),
    ("log", "failed_syncs", "syncs that the disk refused (a power cut may lose events)", _STDERR),
    (
        "connections",
        "over_limit",
        "hooks turned away, because too many came at once",
        "set hooks.connections higher",
    ),
    (
        "connections",
        "not_accepted",
        "times without a free file descriptor for a hook",
        "start it with a higher ulimit -n",
    ),
    (
        "connections",
        "oversized",
        "hooks too large to be read (each has an error.raised in the log)",
        "set hooks.frame_mib higher",
    ),
    (
        "connections",
        "no_room",
        "large hooks let go, because they did not fit into memory together",
        "set hooks.frame_mib higher",
    ),
    (
        "connections",
        "slow_read",
        "hooks cut off, because they came too slowly",
        "find out what keeps the machine busy",
    ),
    (
        "connections",
        "foreign_user",
        "connections of another user refused",
        "find out who has access to the socket",
    ),
    (
        "connections",
        "garbage",
        "connections that did not speak the hooks' protocol",
        "find out which other program uses the socket",
    ),
    (
        "connections",
        "handler_error",
        "requests that met a defect of kimiaepd",
        "report the traceback in what it wrote to stderr",
    ),
    (
        "relay",
        "rejected",
        "events that the relay refused",
        "rejected.jsonl in the state directory has them, and why",
    ),
    (
        "relay",
        "lost",
        "events removed or missing before the relay had them",
        "set log.keep_mib or log.keep_days higher, where the relay is away for long",
    ),
    ("relay", "crashes", "times that delivery failed by a defect of kimiaepd", _STDERR),
    ("relay.own", "crashes", "times that our own relay failed by a defect of kimiaepd", _STDERR),
    (
        None,
        "unsynced",
        'hooks back before their events were on disk, although log.sync is "always"',
        "find out why the disk is slow",
    ),
)
"""Where in the status a number stands that should be 0, what it counts, and what to do."""


def complaints(name: str, settings: Settings, status: JSONObject) -> Iterator[Check]:
    """Each thing that is not as it should be, the gravest first.

    Args:
        name: the subject of each check.
        settings: as they are read now; the daemon may have started with others.
        status: what the daemon answered; any member of it may be missing or of another type.
    """
    if (version := _text(status, "version")) != __version__:
        yield warning(
            name,
            f"it runs version {version}, and version {__version__} is installed",
            "start it again",
        )
    if (log_dir := _text(status, "log_dir")) != str(settings.paths.log_dir):
        yield warning(
            name,
            f"it writes to {log_dir}, and the settings here say {settings.paths.log_dir}",
            "start it again, with the settings that it shall have",
        )
    for table, key, said, remedy in _COUNTED:
        if count := _count(_inner(status, table) if table else status, key):
            yield warning(name, f"{said}: {count} since it started", remedy)
    kinds = _inner(status, "not_understood")
    # Those over the size limit are among the connections already.
    if times := [f"{tame(kind)} {_count(kinds, kind)}" for kind in kinds if kind != "too-large"]:
        yield warning(
            name,
            f"hooks not understood: {', '.join(times)} since it started",
            "the error.raised events in the log say which",
        )


def _inner(status: JSONObject, key: str) -> JSONObject:
    """A table of the status by its path, such as `relay.own`; an empty one where it has none."""
    for name in key.split("."):
        found = status.get(name)
        status = found if isinstance(found, dict) else {}
    return status


def _count(table: JSONObject, key: str) -> int:
    found: JSON = table.get(key)
    return found if isinstance(found, int) else 0


def _text(table: JSONObject, key: str) -> str:
    found = table.get(key)
    return tame(found) if isinstance(found, str) else "unknown"
