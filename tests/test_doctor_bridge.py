"""What the doctor makes of the bridge's status."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.cli import talk
from kimiaepd.doctor.bridge import examine
from kimiaepd.doctor.check import Level
from kimiaepd.mapping.json_value import JSON, JSONObject

SERVER: JSONObject = {
    "pid": 7, "url": "http://127.0.0.1:1/api/v1", "version": "2.1.0", "link": "connected",
    "for_s": 3, "sessions": 2, "frames": 9, "odd": 0, "gaps": 0, "last_error": None, "crashes": 0,
}  # fmt: skip


def status(*servers: JSONObject, **more: JSON) -> JSONObject:
    bridge: JSONObject = {
        "mode": "primary", "control": True, "frames": 9, "gaps": 0, "last_error": None,
        "servers": list(servers), **more,
    }  # fmt: skip
    return {"web": bridge}


def test_a_server_that_is_watched_is_well() -> None:
    (check,) = examine(status(SERVER))
    assert check.level is Level.OK
    assert "2 sessions" in check.said
    assert "primary" in check.said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"link": "waiting", "last_error": "kimi web refuses the token (HTTP 401)"}, "HTTP 401"),
        ({"link": "connecting"}, "does not answer yet"),
        ({"gaps": 2}, "missed: 2"),
        ({"odd": 3}, "understood: 3"),
        ({"crashes": 1}, "defect of kimiaepd: 1"),
    ],
)
def test_what_is_wrong_with_a_server_is_one_warning_that_says_what_to_do(
    change: JSONObject, said: str
) -> None:
    warned = [one for one in examine(status({**SERVER, **change})) if one.level is Level.WARNING]
    (check,) = warned
    assert said in check.said
    assert check.remedy


def test_no_daemon_says_nothing_and_no_bridge_says_so() -> None:
    assert examine(None) == ()
    assert examine({}) == ()
    (off,) = examine({"web": None})
    assert "off" in off.said
    (idle,) = examine(status())
    assert "no server runs" in idle.said
    (blind,) = examine(status(last_error="/x: Permission denied"))
    assert blind.level is Level.WARNING


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("shown", [examine, talk.web_line], ids=["doctor", "status"])
@given(st.fixed_dictionaries({"web": ODD | st.fixed_dictionaries({"servers": ODD})}))
def test_no_status_breaks_the_look(shown: Callable[[JSONObject], object], odd: JSONObject) -> None:
    assert shown(odd) is not None


def test_the_status_line_shows_each_server() -> None:
    line = talk.web_line(status(SERVER, {**SERVER, "pid": 8, "link": "waiting", "gaps": 4}))
    assert "primary, with control" in line
    assert "pid 7" in line
    assert "4 gaps" in line
    assert talk.web_line({"web": None}) == "off"
    assert talk.web_line(status()) == "primary, with control; no server runs"
