"""What installing and uninstalling make of config.toml: bytes in, bytes out, or a refusal.

Rules:
- A first install appends one block and changes no byte before it; an uninstall of what an install
  made gives back the very bytes.
- An entry is known by its command, because the vendor drops comments when it rewrites the file.
  Entries that say the right thing are left alone, however they are spelt. A stale block is replaced
  where it stands, and a second one goes; what others put among our lines stays.
- A line `hooks = []` stands aside, as a comment, for as long as our tables are there.
- Every result is read back before it is handed out: it parses, everything foreign is equal, in
  meaning and line by line, ours are as wanted, and none of them breaks the vendor's schema.

What is refused rather than handled: a file that does not parse; `hooks` as anything but tables or
that one line; a key that somebody wrote into one of our tables (it would be lost, and while it
stands it turns off every hook); and, on install, another tool's entry that turns off every hook:
ours would never run, and an install that says "done" would be lying. An uninstall never minds what
others wrote.

How the bytes are cut is `block.py`'s business; the file itself is `config_file.py`'s.
"""

from __future__ import annotations

import enum

from attrs import frozen

from kimiaepd.setup import block, placeholder
from kimiaepd.setup.command import Entry
from kimiaepd.setup.config_text import BOM, ConfigText, EditRefusedError, read
from kimiaepd.setup.events import Version, known_to
from kimiaepd.setup.splice import apply
from kimiaepd.setup.toml_statements import Kind
from kimiaepd.setup.vendor_schema import KEYS, doubt, fault, too_great

_OUR_KEYS = ("event", "command", "timeout")


class Action(enum.Enum):
    """What a plan does to the file."""

    UNCHANGED = enum.auto()
    ADDED = enum.auto()
    REFRESHED = enum.auto()
    REMOVED = enum.auto()


@frozen
class Plan:
    """The file as it shall be.

    Attributes:
        action: what is done.
        new: the bytes to write.
        warnings: a line each, about what was left as it is.
    """

    action: Action
    new: bytes
    warnings: tuple[str, ...] = ()


def plan_install(old: bytes, wanted: tuple[Entry, ...], version: Version | None) -> Plan:
    """Make our entries exactly the wanted ones.

    Args:
        old: the file as it is; empty where there is none.
        wanted: the entries.
        version: the installed release, for the schema of what others registered.

    Raises:
        EditRefusedError: it cannot be done without loss, or the hooks would not run afterwards.
    """
    config = read(old)
    if config.bad_hooks:
        raise config.bad_hooks
    _refuse_strangers(config, _OUR_KEYS)
    _refuse_silencers(config, version)
    warnings = _warnings(config, version)
    if _is_current(config, wanted):
        return Plan(Action.UNCHANGED, old, warnings)
    line = config.placeholder
    room = read(placeholder.set_aside(old, line)) if line else config
    runs = block.find(room)
    new = block.put(room.raw, runs, wanted)
    _read_back(config, new, wanted, version)
    return Plan(Action.REFRESHED if runs else Action.ADDED, new, warnings)


def plan_uninstall(old: bytes) -> Plan:
    """Take our entries out, and nothing else.

    Raises:
        EditRefusedError: ours cannot be told from the rest, or something would be lost with them.
    """
    config = read(old)
    if config.bad_hooks and any(hook.ours for hook in config.hooks):
        raise config.bad_hooks
    _refuse_strangers(config, KEYS)
    cuts = [*block.take_out(old, block.find(config)), *placeholder.put_back(config)]
    if not cuts:
        return Plan(Action.UNCHANGED, old)
    new = apply(old, cuts)
    _read_back(config, new, (), None)
    return Plan(Action.REMOVED, new)


# --- what stands in the way ------------------------------------------------------------------


def _refuse_strangers(config: ConfigText, keys: tuple[str, ...]) -> None:
    for hook in config.hooks:
        found = config.stranger(hook, keys) if hook.ours else None
        if not found:
            continue
        line, key = found
        if key in KEYS:
            raise EditRefusedError(
                line,
                f"`{key}` was added to one of our hooks, and would be lost",
                "remove it, then run this again",
            )
        last = next(one for one in reversed(config.hooks) if one.ours)
        table = "our last [[hooks]] table" if hook is last else "a [[hooks]] table of ours"
        if any(part.line == line and part.kind is Kind.HEADER for part in hook.statements):
            remedy = "delete that table"
        elif key == "hooks":
            remedy = "delete it"
        else:
            remedy = "move it above the first table of the file, or under its own table's header"
        raise EditRefusedError(
            line,
            f"`{key}` stands inside {table}, so kimi takes it for a key of that hook and drops"
            " every hook",
            f"{remedy}, then run this again",
        )


def _refuse_silencers(config: ConfigText, version: Version | None) -> None:
    """Refuse beside an entry of another tool that drops every hook: ours would never run."""
    for hook in config.hooks:
        found = None if hook.ours else fault(hook.values, version)
        if found:
            raise EditRefusedError(
                hook.line,
                f"another tool's hook makes kimi drop every hook: {found}",
                "mend or remove it (`kimi doctor` names it too), then run this again",
            )


def _warnings(config: ConfigText, version: Version | None) -> tuple[str, ...]:
    found = []
    if config.raw.startswith(BOM):
        found.append(
            "line 1: the file begins with a byte-order mark, and kimi refuses to read such a file;"
            " save it as UTF-8 without one"
        )
    if line := config.first_line_with(too_great):
        found.append(
            f"line {line}: kimi refuses to read a file with a whole number as great as this one"
        )
    for hook in config.hooks:
        doubtful = None if hook.ours else doubt(hook.values, version)
        if doubtful:
            found.append(f"line {hook.line}: {doubtful}; if not, kimi drops every hook")
    return tuple(found)


def _is_current(config: ConfigText, wanted: tuple[Entry, ...]) -> bool:
    entries = [hook.entry() for hook in config.hooks if hook.ours]
    return sorted(entry for entry in entries if entry) == sorted(wanted) and None not in entries


# --- the proof -------------------------------------------------------------------------------


def _read_back(
    old: ConfigText, new: bytes, wanted: tuple[Entry, ...], version: Version | None
) -> None:
    """Hold the result against what it must be; a failure here is a fault of ours, found in time."""
    try:
        config = read(new)
    except EditRefusedError as error:
        raise _fault_of_ours(f"it does not parse ({error.reason})") from None
    if config.foreign() != old.foreign() or _foreign_lines(config) != _foreign_lines(old):
        raise _fault_of_ours("something that is not ours would change")
    if not _is_current(config, wanted):
        raise _fault_of_ours("our hooks would not be the intended ones")
    safe = known_to(version)
    if any(entry.event not in safe for entry in wanted) or any(
        fault(hook.values, version) for hook in config.hooks if hook.ours
    ):
        raise _fault_of_ours("our hooks would break kimi's schema")


def _foreign_lines(config: ConfigText) -> list[bytes]:
    """Every line of others to the byte, their comments too; only blank lines do not count."""
    lines = (placeholder.remark(config, line) for line in block.others(config))
    return [line for line in lines if line]


def _fault_of_ours(what: str) -> EditRefusedError:
    return EditRefusedError(
        None, f"the edited file would be wrong: {what}", "nothing was written; please report this"
    )
