"""The real `kimi web` server on a place's home: its settings save and its sessions, over REST.

The server is started on a port of its own choosing and found as any client finds it: the instances
file, the token file. It is ended by its pid, and that it ends is part of it.

It opens no WebSocket: one that is open keeps the server from ending.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import evolve, frozen

from kimiaepd.mapping.json_value import JSONObject
from vendor.kimi import Kimi
from vendor.place import Place
from vendor.waiting import until

ANSWER_DEADLINE_S = 20
START_DEADLINE_S = 40
STOP_DEADLINE_S = 20


@frozen
class Web:
    """A running server: where it listens, the bearer that it asks for, its process."""

    port: int
    token: str
    process: subprocess.Popen[bytes]

    def with_token(self, token: str) -> Web:
        """The same server, asked with another token."""
        return evolve(self, token=token)

    def save(self, patch: JSONObject) -> None:
        """Save settings as the web page does."""
        self.ask("POST", "/config", patch)

    def session(self, folder: Path) -> str:
        """A session in a folder, in which nothing has run."""
        return str(self.ask("POST", "/sessions", {"metadata": {"cwd": str(folder)}})["id"])

    def prompt(self, session: str, text: str) -> None:
        """Begin a turn."""
        # The server does not apply `default_model` to a fresh session.
        said: JSONObject = {"content": [{"type": "text", "text": text}], "model": "mock"}
        self.ask("POST", f"/sessions/{session}/prompts", said)

    def turn(self, folder: Path, prompt: str) -> None:
        """A session of its own in a folder, with one turn, to its end."""
        session = self.session(folder)
        self.prompt(session, prompt)

        def is_over() -> bool:
            seen = self.ask("GET", f"/sessions/{session}")
            return not seen["busy"] and seen["last_turn_reason"] == "completed"

        until(is_over, "the end of the turn")

    def ask(
        self, method: str, path: str, body: JSONObject | None = None, *, code: int = 0
    ) -> JSONObject:
        """The data of the answer to any call; `code` is what it is to be answered with."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_DEADLINE_S)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(
                method, f"/api/v1{path}", None if body is None else json.dumps(body), headers
            )
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert answer["code"] == code, answer
        data = answer["data"]
        assert isinstance(data, dict)
        return data


@contextmanager
def serving(kimi: Kimi, place: Place) -> Iterator[Web]:
    """`kimi web` on the place's home, ready to be asked; a test may kill it, and nothing else."""
    said = place.root / "web.out"
    with said.open("wb") as out:
        process = subprocess.Popen(
            ["kimi", "web", "--no-open", "--port", "0"],
            executable=kimi.programs[0] / "kimi",
            cwd=place.work,
            env=place.environ(kimi.programs),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )

    def ready() -> Web | None:
        assert process.poll() is None, f"the server ended: {said.read_text()}"
        port = _port(place, process.pid)
        return Web(port, _token(place), process) if port and _listens(port) else None

    with process:
        try:
            found = until(ready, "the server's port", seconds=START_DEADLINE_S)
            assert found
            yield found
        finally:
            process.terminate()
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert process.returncode in (0, -signal.SIGKILL), said.read_text()


def _port(place: Place, pid: int) -> int:
    """Where the server of this process listens; 0 while it does not say so."""
    for path in place.kimi_home.glob("server/instances/*.json"):
        try:
            instance = json.loads(path.read_bytes())
        except (FileNotFoundError, json.JSONDecodeError):  # it is being written
            continue
        if instance["pid"] == pid:
            return int(instance["port"])
    return 0


def _listens(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_DEADLINE_S)
    try:
        connection.request("GET", "/api/v1/healthz")
        return connection.getresponse().status == http.client.OK
    except ConnectionError:
        return False
    finally:
        connection.close()


def _token(place: Place) -> str:
    return (place.kimi_home / "server.token").read_text()
