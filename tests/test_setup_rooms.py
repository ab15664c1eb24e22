"""The planning half of setup touches nothing: no file, no clock, no environment."""

from __future__ import annotations

import ast

import pytest

from conftest import ROOT

PLANNING = (
    "events", "command", "vendor_schema", "toml_statements", "config_text", "splice", "block",
    "placeholder", "config_edit",
)  # fmt: skip
IMPURE = {"os", "sys", "time", "datetime", "pathlib", "subprocess", "tempfile", "socket", "trio"}
OUTWARD = {"config_file", "install", "installed_shim", "interpreter", "kimi_version", "standing"}


@pytest.mark.parametrize("name", PLANNING)
def test_a_planning_module_imports_nothing_that_touches_the_world(name: str) -> None:
    tree = ast.parse((ROOT / f"kimiaepd/setup/{name}.py").read_text(encoding="utf-8"))
    imported = {
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        for part in (*(getattr(node, "module", None) or "").split("."), *alias.name.split("."))
    }
    assert not imported & (IMPURE | OUTWARD)
