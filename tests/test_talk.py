"""What `kimiaepd status` says of gate, notifier and steering; other tests have the rest."""

from __future__ import annotations

import pytest

from kimiaepd.cli import talk
from kimiaepd.mapping.json_value import JSONObject

HELD: JSONObject = {
    "enabled": True, "mode": "auto", "controlled": True, "answerable": True, "held": 2,
    "stood_down": 0, "calls": {},
}  # fmt: skip
TOLD: JSONObject = {
    "enabled": True, "told": 3, "failed": {}, "dropped": 0, "waiting": 0, "running": 1,
}  # fmt: skip
TAKEN: JSONObject = {"queued": 3, "delivered": 1, "kept": 0, "waiting": 2}


@pytest.mark.parametrize(
    ("name", "said", "line"),
    [
        ("gate", {"enabled": False}, "off"),
        ("gate", HELD, "auto, 2 held now"),
        (
            "gate",
            {**HELD, "answerable": False, "calls": {"nobody there": 4}},
            "auto, 2 held now, nobody could answer, so no call is held, so far: nobody there 4",
        ),
        (
            "gate",
            {**HELD, "controlled": False, "answerable": False},
            "auto, 2 held now, there is no relay with a token, so no call is held",
        ),
        (
            "gate",
            {**HELD, "stood_down": 1},
            "auto, 2 held now, stood down in 1 sessions, where nobody answered",
        ),
        ("notifier", {**TOLD, "enabled": False}, "off"),
        ("notifier", TOLD, "3 told"),
        (
            "notifier",
            {**TOLD, "failed": {"too slow": 1, "cannot be run": 2}, "dropped": 5, "waiting": 6},
            "3 told, 1 too slow, 2 cannot be run, 5 dropped, 6 waiting",
        ),
        ("instruct", None, "off"),
        ("instruct", TAKEN, "2 waiting, 3 queued, 1 delivered"),
        (
            "instruct",
            {**TAKEN, "kept": 1},
            "2 waiting, 3 queued, 1 delivered, 1 went back, as their reply did not arrive",
        ),
    ],
)
def test_a_line_says_how_it_stands(name: str, said: JSONObject | None, line: str) -> None:
    shown = "steering" if name == "instruct" else name
    assert talk._lines({name: said})[shown] == line
