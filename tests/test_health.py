"""What is wrong with the daemon is said once when it begins, and once when it ends."""

from __future__ import annotations

import json
from pathlib import Path

from daemon_room import opened
from faults import Faults
from judge import judge
from kimiaepd.emitter import source_of
from kimiaepd.health import Health
from kimiaepd.mapping.json_value import JSONObject


def test_a_trouble_is_said_once_and_its_end_once() -> None:
    said: list[JSONObject] = []
    health = Health()
    health.changed = lambda: said.append(health.status())
    health.recovered("log")
    health.degraded("log", "ENOSPC")
    health.degraded("log", "EIO")
    health.degraded("relay", "KeyError")
    health.recovered("log")
    health.recovered("log")
    health.recovered("relay")
    assert said == [
        {"log": "ENOSPC"},
        {"log": "ENOSPC", "relay": "KeyError"},
        {"relay": "KeyError"},
        {},
    ]
    assert health.is_well


async def test_a_log_that_takes_no_events_is_a_trouble_until_it_does(
    tmp_path: Path,
) -> None:
    said: list[JSONObject] = []
    with opened(tmp_path) as room, Faults() as faults:
        emitter = room.observer.book.emitter
        emitter.health.changed = lambda: said.append(
            json.loads(emitter.aside(emitter.health.draft(), source_of("host")))
        )
        await room.hook("SessionStart", {"source": "startup"})
        assert said == []
        faults.disk_takes(0)
        await room.hook("UserPromptSubmit", {"prompt": []})
        assert [event["data"] for event in said] == [{"status": "degraded"}]
        faults.mend()
        await room.hook("Stop")
        assert [event["data"] for event in said] == [{"status": "degraded"}, {"status": "ok"}]
    judge(said)
