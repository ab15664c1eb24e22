"""What an install or an uninstall did, or would do: for people, for programs, and as a diff.

It is told everything, and looks at nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from kimiaepd.mapping.json_value import JSON, JSONObject
from kimiaepd.setup.config_edit import Action


@frozen
class Report:
    """What was done, or would be done where it was only tried.

    Attributes:
        config: the vendor's file.
        action: what was done to it.
        old: its bytes before; None where there was no file.
        new: its bytes after.
        shim: where the installed hook program has its place.
        shim_action: what was done to it.
        shim_kept: why an uninstall left it, for people.
        events: the events that have a hook of ours now.
        backup: the copy of the old bytes, if one was made.
        warnings: what was left as it is, a line each.
    """

    config: Path
    action: Action
    old: bytes | None
    new: bytes
    shim: Path
    shim_action: Action = Action.UNCHANGED
    shim_kept: str | None = None
    events: tuple[str, ...] = ()
    backup: Path | None = None
    warnings: tuple[str, ...] = ()

    @property
    def shim_changed(self) -> bool:
        """Whether the hook program was written or removed."""
        return self.shim_action is not Action.UNCHANGED

    @property
    def changed(self) -> bool:
        """Whether anything on disk is other than before."""
        return self.shim_changed or self.action is not Action.UNCHANGED

    def diff(self) -> str:
        """The change of the file as a unified diff; empty where there is none.

        As everywhere in TOML, a line ends at a newline alone: a carriage return before it stays.
        """
        old, new = _lines(self.old or b""), _lines(self.new)
        name = _on_one_line(self.config)
        before = "/dev/null" if self.old is None else name
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(old, new, before, name)
        )

    def as_json(self) -> JSONObject:
        """The same for programs; the names stay as they are.

        `action` and `shim.action` are one of unchanged, added, refreshed, removed.
        """
        events: list[JSON] = [*self.events]
        warnings: list[JSON] = [*self.warnings]
        return {
            "config": str(self.config),
            "action": self.action.name.lower(),
            "changed": self.changed,
            "events": events,
            "backup": str(self.backup) if self.backup else None,
            "shim": {
                "path": str(self.shim),
                "action": self.shim_action.name.lower(),
                "kept": self.shim_kept,
            },
            "warnings": warnings,
        }


def _lines(raw: bytes) -> list[str]:
    # Not `splitlines`: it also ends a line at a form feed, a lone carriage return and U+2028.
    return list(_cut(raw.decode("utf-8")))


def _cut(text: str) -> Iterator[str]:
    *whole, rest = text.split("\n")
    yield from (f"{line}\n" for line in whole)
    if rest:
        yield rest


def _on_one_line(path: Path) -> str:
    text = str(path)
    return repr(text) if "\n" in text else text
