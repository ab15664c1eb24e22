"""The doctor's look at who may answer, who is told, and who may instruct."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.doctor import people
from kimiaepd.doctor.check import Patient
from kimiaepd.hook_socket.client import request
from kimiaepd.mapping.json_value import JSON, JSONObject
from live import Live, scratch
from patients import bad, lines, patient

ON = {"AEP_KIMI_CONTROL": "1", "AEP_INSTRUCT": "1"}


@pytest.fixture
def live() -> Iterator[Live]:
    with scratch() as made:
        yield made


def see(live: Live, status: JSONObject | None = None) -> list[str]:
    return lines(people.examine(patient(live.environ), status))


def amiss(live: Live, status: JSONObject | None = None) -> list[str]:
    return bad(people.examine(patient(live.environ), status))


def test_everything_off_is_well(live: Live) -> None:
    assert see(live) == [
        "ok gate: off (gate.enabled): no call is held -> None",
        "ok notifier: off (gate.notify_command): nobody is told that a call is held -> None",
        "ok steering: off (instruct.enabled): no instruction is taken -> None",
    ]


def test_on_it_says_the_three_times_that_make_a_hold_end_by_itself(live: Live) -> None:
    live.environ |= {**ON, "AEP_ATTENTION_TIMEOUT_MS": "20500"}
    gate, _, steering = see(live)
    assert gate == (
        "ok gate: on, mode manual: a call is held for 20.5 s at most, its hook waits 23.5 s,"
        " kimi 60 s -> None"
    )
    assert steering.startswith("ok steering: on: an instruction from the relay goes with")


def notify_by(live: Live, program: str) -> None:
    live.configure(f'[gate]\nnotify_command = ["{program}", "an argument"]\n')


@pytest.mark.parametrize("is_on_path", [True, False])
def test_a_program_that_can_be_run_is_well(live: Live, *, is_on_path: bool) -> None:
    program = live.home / "tell"
    program.touch(0o755)
    live.environ |= {**ON, "PATH": f"{live.home}:{os.environ['PATH']}"}
    notify_by(live, program.name if is_on_path else str(program))
    assert f"ok notifier: {program} is run as a hold begins and as it ends -> None" in see(live)
    assert amiss(live) == []


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("{home}/nothing", "is no program that can be run"),
        ("{home}", "is no program that can be run"),
        ("{home}/plain", "is no program that can be run"),
        ("no-such-program-at-all", "is not on PATH"),
    ],
)
def test_a_program_that_cannot_be_run_is_a_finding(live: Live, program: str, why: str) -> None:
    live.environ |= ON
    (live.home / "plain").touch(0o600)
    program = program.format(home=live.home)
    notify_by(live, program)
    assert amiss(live) == [
        (
            f"finding notifier: gate.notify_command: {program} {why}, so nobody is told that a call"
            " is held -> name one that can be run, by its absolute path; chmod +x it"
        )
    ]


def test_a_notifier_without_a_gate_is_a_warning(live: Live) -> None:
    notify_by(live, "/bin/sh")
    assert amiss(live) == [
        (
            "warning notifier: gate.notify_command is set, and gate.enabled is not: nobody is told"
            " anything -> set gate.enabled = true, or take gate.notify_command out"
        )
    ]


def test_what_did_not_get_through_is_a_warning(live: Live) -> None:
    live.environ |= ON
    notify_by(live, "/bin/sh")
    said: JSONObject = {"failed": {"too slow": 2, "failed": 0}, "dropped": 3}
    assert amiss(live, {"notifier": said}) == [
        (
            "warning notifier: notices that did not get through: too slow 2, dropped 3 since the"
            " daemon started -> what it wrote to stderr says why"
        )
    ]


def test_steering_without_a_relay_is_a_warning(live: Live) -> None:
    live.environ |= {"AEP_INSTRUCT": "1", "KIMIAEPD_COLLECTOR": "0"}
    assert amiss(live) == [
        (
            "warning steering: instruct.enabled is set, but without a relay no instruction can come"
            " -> set collector.enabled = true, or instruct.enabled = false"
        )
    ]


@pytest.mark.parametrize("is_on_here", [True, False])
async def test_a_daemon_that_runs_with_other_settings_is_a_warning(
    live: Live, *, is_on_here: bool
) -> None:
    before = dict(live.environ)
    live.environ |= {} if is_on_here else ON
    live.start()
    status = await request(live.where.socket, "status", timeout=5)
    assert amiss(live, status) == []
    live.environ = before | (ON if is_on_here else {})
    is_so = "off in the daemon that runs, and on" if is_on_here else "on in the daemon that runs"
    gate, steering = amiss(live, status)
    assert gate.startswith(f"warning gate: it is {is_so}")
    assert steering.startswith(f"warning steering: it is {is_so}")
    assert steering.endswith("-> start it again, with the settings that it shall have")


JSONS: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
WHO: Patient = patient({"HOME": "/nowhere", **ON})


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "gate": JSONS | st.fixed_dictionaries({"enabled": JSONS}),
            "notifier": JSONS | st.fixed_dictionaries({"failed": JSONS, "dropped": JSONS}),
            "instruct": JSONS,
            "relay": JSONS,
        },
    )
)
def test_whatever_a_daemon_says_is_one_line_each(status: JSONObject) -> None:
    for line in lines(people.examine(WHO, status)):
        assert line.isprintable()


def test_nothing_is_run(live: Live, tmp_path: Path) -> None:
    program = tmp_path / "tell"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    live.environ |= ON
    notify_by(live, str(program))
    assert amiss(live) == []
    assert not (tmp_path / "ran").exists()
