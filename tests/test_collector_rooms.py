"""The collector's rules touch nothing: no clock, no file, no network, and no other task."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from conftest import ROOT

PURE = ("attr_match", "downlevel", "envelope", "history", "roster")
IMPURE = {
    *("trio", "os", "sys", "io", "time", "datetime", "pathlib", "socket", "subprocess", "random"),
    *("threading", "structlog", "starlette", "hypercorn"),
}
ROOMS = (
    *("kimiaepd.mapping.", "kimiaepd.standard"),
    *("kimiaepd.validate.finding", "kimiaepd.validate.levels", "kimiaepd.validate.shape"),
)
"""Where what they share with others may be; the standard's files are package data, read once."""

ALIASES = {("kimiaepd.storage.journal", "Position")}
"""Names of types that say what a value means, and bring nothing with them that is called."""


def imported(name: str) -> Iterator[tuple[str, str]]:
    """The (module, name) pairs that a module of the collector imports."""
    file = ROOT / f"kimiaepd/collector/{name}.py"
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.mark.parametrize("name", PURE)
def test_a_rule_of_the_collector_knows_no_world_outside(name: str) -> None:
    pairs = set(imported(name))
    assert {module.partition(".")[0] for module, _ in pairs} & IMPURE == set()
    own = {module for module, _ in pairs - ALIASES if module.startswith("kimiaepd")}
    siblings = {f"kimiaepd.collector.{other}" for other in PURE}
    assert [module for module in own - siblings if not module.startswith(ROOMS)] == []


def test_what_decides_is_not_written_a_second_time_elsewhere() -> None:
    """The envelope's rules are the checker's: the collector holds no schema, pattern or list."""
    assert {module for module, _ in imported("envelope")} == {
        "__future__",
        "kimiaepd.mapping.event",
        "kimiaepd.mapping.json_value",
        "kimiaepd.validate.shape",
    }
