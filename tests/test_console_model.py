"""The console's model of the sessions, by its own tests in Node: no browser is needed for those."""

from __future__ import annotations

import os
import subprocess

from conftest import ROOT
from kimiaepd.collector.page import FOLDER
from vendor.install import node


def test_the_model_knows_what_events_say_and_keeps_no_more_than_it_may() -> None:
    # Node would take a folder without a package.json for one of scripts, and say so.
    quiet = {**os.environ, "CONSOLE": str(FOLDER), "NODE_NO_WARNINGS": "1"}
    said = subprocess.run(
        [node().program, "--test", ROOT / "tests/console_model.test.mjs"],
        env=quiet,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
