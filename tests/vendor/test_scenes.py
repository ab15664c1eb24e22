"""The mock provider itself: the vendor tests lean on it, so it must say the same thing every time.

These need no CLI and run everywhere.
"""

from __future__ import annotations

import http.client
import json
import threading
from urllib.parse import urlsplit

import pytest

from kimiaepd.mapping.json_value import JSON, JSONObject
from vendor.likeness import Seen, seen
from vendor.provider import Provider
from vendor.scenes import SCENES, Hang, Refuse, Say, Use, UseAll, events, reply_to


def conversation(*messages: tuple[str, JSON]) -> JSONObject:
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def test_a_tool_result_brings_the_scene_one_step_further() -> None:
    asked = conversation(("system", "mock:plain in the system prompt"), ("user", "mock:bashok go"))
    answered = conversation(("user", "mock:bashok go"), ("tool", "from-the-tool"))

    assert reply_to(asked)[1] == Use("Bash", {"command": "echo from-the-tool"})
    assert reply_to(answered)[1] == Say("Prompt 1 is done.")


def test_the_last_prompt_chooses_the_scene_and_the_clis_reminders_do_not() -> None:
    talk = conversation(
        ("user", "mock:bashok go"),
        ("tool", "from-the-tool"),
        ("assistant", "Prompt 1 is done."),
        ("user", [{"type": "text", "text": "mock:rm now"}]),
        ("user", "<system-reminder>\nthe user said mock:plain once</system-reminder>"),
    )

    assert reply_to(talk) == ("call_rm_2_0", Use("Bash", {"command": "rm -rf build"}))


def test_of_an_interrupted_prompt_and_the_next_in_one_message_the_next_counts() -> None:
    talk = conversation(("user", "mock:slow go\n\nmock:plain go"))

    assert reply_to(talk)[1] == Say("Prompt 1 is done.")


@pytest.mark.parametrize("scene", SCENES)
def test_a_reply_depends_on_the_conversation_alone(scene: str) -> None:
    def said() -> list[bytes]:
        call_id, step = reply_to(conversation(("user", f"mock:{scene} go")))
        return [] if isinstance(step, Refuse) else list(events(call_id, step))

    assert said() == said()


def test_every_scene_ends() -> None:
    for scene, steps in SCENES.items():
        assert not isinstance(steps[-1], Use | UseAll), f"{scene} would call its tool for ever"


def post(provider: Provider, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(provider.url).netloc, timeout=10)
    try:
        connection.request("POST", "/v1/chat/completions", body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_requests_are_kept_byte_for_byte_and_in_order() -> None:
    odd = b' {"messages": [ ],\n "b":1, "a":2}'
    with Provider(latency_s=0) as provider:
        assert post(provider, odd)[0] == 200
        assert post(provider, json.dumps(conversation(("user", "mock:err500"))).encode())[0] == 500
        kept = provider.take()

    assert kept[0].body == odd
    assert len(kept) == 2
    assert provider.take() == []


def test_a_reply_that_hangs_ends_with_the_provider() -> None:
    body = json.dumps(conversation(("user", "mock:slow"))).encode()
    said: list[tuple[int, bytes]] = []
    with Provider(latency_s=0) as provider:
        connection = http.client.HTTPConnection(urlsplit(provider.url).netloc, timeout=10)
        connection.request("POST", "/v1/chat/completions", body)
        response = connection.getresponse()
        reader = threading.Thread(target=lambda: said.append((response.status, response.read())))
        reader.start()
    reader.join()
    connection.close()

    ((status, text),) = said
    assert status == 200
    assert isinstance(SCENES["slow"][0], Hang)
    assert b"I begin to think." in text
    assert b"[DONE]" not in text


def test_runs_are_alike_only_where_every_byte_is() -> None:
    from vendor.kimi import Turn
    from vendor.provider import Request

    def run(body: bytes, stdout: str = "said\n") -> Seen:
        request = Request("/v1/chat/completions", (("content-length", str(len(body))),), body)
        return seen([Turn(0, stdout, "", 1.0)], [request])

    one = b'{"key": "session_7f73c985-88f4-45bb-a966-273f4132a242"}'
    other = b'{"key": "session_31981800-2f8a-4e33-a803-90e1394097e5"}'
    assert run(one) == run(other)
    assert run(one) != run(one + b" ")
    assert run(one) != run(one, stdout="said\n{}\n")
