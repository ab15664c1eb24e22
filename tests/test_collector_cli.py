"""The whole loop with nothing else installed: hooks, a daemon, `kimiaepd collector`, a consumer."""

from __future__ import annotations

import json
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from aep_sdk.control import ControlClient

from kimiaepd.mapping.json_value import JSONObject
from live import Live, scratch
from test_doctor_relay import CERTIFICATE

READY = re.compile(
    r"kimiaepd collector ready: (https?://127\.0\.0\.1:\d+), token: kimiaepd token show,"
    r" code ([\w-]{22}) \(once, within 60 s\)\n"
)


@contextmanager
def collector(live: Live, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`kimiaepd collector` on a port of its own; its URL."""
    with coded(live, *options) as (process, url, _):
        yield process, url


@contextmanager
def coded(live: Live, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The same, with the code on its ready line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kimiaepd", "collector", "--port", "0", *options],
        env=live.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = READY.fullmatch(line)
            assert found, line
            yield process, found[1], found[2]
        finally:
            process.kill()


def held(url: str, token: str) -> list[JSONObject]:
    """Everything that the collector holds."""
    with httpx.Client(trust_env=False, timeout=10) as client:
        headers = {"Authorization": f"Bearer {token}"}
        answer = client.get(f"{url}/stream?from=all&live=0", headers=headers)
    assert answer.status_code == 200
    return [
        json.loads(line.removeprefix("data: "))
        for line in answer.text.split("\n")
        if line.startswith("data: ")
    ]


def test_what_hooks_say_is_held_for_a_consumer_that_comes_later() -> None:
    with scratch() as live, collector(live) as (process, url):
        token = live.run("token", "show").stdout.strip()
        live.environ |= {"AEP_RELAY_URL": url, "AEP_TOKEN": token}
        live.start()
        for event in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"):
            live.ask({"hook_event_name": event, "session_id": "s", "reason": "exit"})
        assert live.stop() == 0  # a stop delivers what is there
        assert held(url, token) == live.events("s")
        assert token not in (live.home / "stderr").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_the_code_on_the_ready_line_lets_one_client_in_that_has_no_headers() -> None:
    with scratch() as live, coded(live, "--buffer", "7") as (process, url, code):
        with httpx.Client(trust_env=False, timeout=10, base_url=url) as client:
            answer = client.post("/session", json={"code": code}).json()
            assert answer["role"] == "control"
            assert client.post("/session", json={"code": code}).status_code == 401
            query = {"from": "all", "live": "0", "access_token": answer["token"]}
            assert client.get("/stream", params=query).status_code == 200
            bearer = {"Authorization": f"Bearer {answer['token']}"}
            found = client.get("/events", headers=bearer).json()
            assert found["capabilities"]["replay"]["buffer"] == 7
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert process.stderr.read() == "", "nothing is logged of a URL or a code"


def test_with_a_certificate_everything_is_encrypted_and_nothing_else_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = tmp_path / "pair.pem"
    pair.write_text(CERTIFICATE)
    monkeypatch.setenv("SSL_CERT_FILE", str(pair))
    options = ("--cert", str(pair), "--key", str(pair))
    with scratch() as live, coded(live, *options) as (process, url, code):
        assert url.startswith("https://")
        with httpx.Client(
            trust_env=False, timeout=10, verify=ssl.create_default_context()
        ) as client:
            token = client.post(f"{url}/session", json={"code": code}).json()["token"]
            query = {"from": "all", "live": "0", "access_token": token}
            assert client.get(f"{url}/stream", params=query).status_code == 200
            with pytest.raises(httpx.TransportError):
                client.get(url.replace("https", "http") + "/healthz")
        commander = ControlClient(url, agent="console", host="desk", token=token)
        commander.connect()
        assert commander.roster() == []
        commander.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_rotated_token_counts_at_once_and_one_that_observes_is_another() -> None:
    with scratch() as live, collector(live) as (_, url):
        first = live.run("token", "show").stdout.strip()
        assert held(url, first) == []
        second = live.run("token", "rotate").stdout.strip()
        assert second != first
        assert held(url, second) == []
        with pytest.raises(AssertionError):
            held(url, first)
        assert held(url, live.run("token", "show", "--read-only").stdout.strip()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--host", "0.0.0.0"), "give --cert and --key"),
        (("--host", "localhost"), "is no address in numbers"),
        (("--cert", sys.executable), "--cert and --key go together"),
        (("--port", "70000"), "--port"),
        (("--buffer", "0"), "--buffer"),
    ],
)
def test_what_would_give_a_token_away_or_cannot_be_is_refused(
    options: tuple[str, ...], said: str
) -> None:
    with scratch() as live:
        done = live.run("collector", *options)
        assert done.returncode == 64
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_not_fought_over() -> None:
    with scratch() as live, collector(live) as (_, url):
        port = url.rpartition(":")[2]
        process = subprocess.Popen(
            [sys.executable, "-m", "kimiaepd", "collector", "--port", port],
            env=live.environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None
            line = process.stdout.readline()
            process.terminate()
        assert "ready: http://127.0.0.1:" in line
        assert f":{port}," not in line
