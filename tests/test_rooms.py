"""The house stands as its documents say: pure rooms stay pure, and the arrows run one way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT
from kimiaepd.mapping import hooks, web_rows

PACKAGE = ROOT / "kimiaepd"
PURE = sorted([*(PACKAGE / "mapping").glob("*.py"), *(PACKAGE / "lifecycle").glob("*.py")])
IMPURE = {"trio", "os", "time", "socket", "pathlib", "subprocess", "random", "structlog", "io"}
FLOORS = {"mapping": 0, "lifecycle": 1}
POLICY = {
    "policy": {"mapping", "path_glob", "shell_words"},
    "path_glob": set(),
    "shell_words": set(),
}
"""What each module of the gate's policy may know of the rest."""


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("file", PURE, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_pure_room_knows_no_clock_no_file_and_no_trio(file: Path) -> None:
    names = set(imports(file))
    assert {name.partition(".")[0] for name in names} & IMPURE == set()
    own = {name for name in names if name.startswith("kimiaepd")}
    allowed = (
        ("kimiaepd.mapping",)
        if file.parent.name == "mapping"
        else tuple(f"kimiaepd.{room}" for room in FLOORS)
    )
    assert all(name.startswith(allowed) for name in own)


@pytest.mark.parametrize("name", POLICY)
def test_the_gate_s_policy_is_pure_and_knows_little(name: str) -> None:
    tree = ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))
    names = set(imports(PACKAGE / f"{name}.py"))
    assert {one.partition(".")[0] for one in names} & IMPURE == set()
    own = {one.split(".")[1] for one in names if one.startswith("kimiaepd.")}
    own |= {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "kimiaepd"
        for alias in node.names
    }
    assert own <= POLICY[name]


def test_only_the_emitter_builds_an_event() -> None:
    makers = [
        file.name
        for file in PACKAGE.rglob("*.py")
        if any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "Event"
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        )
    ]
    assert makers == ["emitter.py"]


def test_the_shim_imports_nothing_of_the_package_and_stays_short() -> None:
    shim = PACKAGE / "shim.py"
    assert not [name for name in imports(shim) if name.startswith("kimiaepd")]
    code = [line for line in shim.read_text().splitlines() if line.strip()]
    assert len(code) < 100


def test_every_module_says_what_it_holds() -> None:
    for file in PACKAGE.rglob("*.py"):
        assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))), file


def test_the_page_of_events_names_every_event_of_the_table() -> None:
    page = (ROOT / "docs/events.md").read_text(encoding="utf-8")
    types = {row.type for row in [*hooks.HOOKS.values(), *hooks.DECISIONS.values(), hooks.STEERED]}
    types |= {hooks.fallback_type(name) for name in hooks.FACTS}
    assert [name for name in sorted(types) if f"`{name}`" not in page] == []
    assert [name for name in [*hooks.HOOKS, *hooks.FACTS] if name not in page] == []


def test_the_page_of_events_names_every_frame_of_the_table_and_its_event() -> None:
    page = (ROOT / "docs/events.md").read_text(encoding="utf-8")
    table = page.partition("## What `kimi web` says")[2]
    types = {row.type for row in [*web_rows.ROWS.values(), web_rows.RESOLVED]}
    types.add(web_rows.WORK_CHANGED)
    assert [name for name in sorted(types) if f"`{name}`" not in table] == []
    frames = {key.partition(" ")[0] for key in web_rows.ROWS}
    assert [name for name in sorted(frames) if f"\n| {name}" not in table] == []
