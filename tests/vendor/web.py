"""The vendor's own settings save: the real `kimi web` server on a place's home, and its REST API.

The server is started on a port of its own choosing and found as any client finds it: the instances
file, the token file. It is ended by its pid, and that it ends is part of it.

It speaks of `/api/v1/config` alone, and opens no WebSocket: one that is open keeps the server from
ending.
"""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen

from kimiaepd.mapping.json_value import JSONObject
from vendor.kimi import Kimi
from vendor.place import Place
from vendor.waiting import until

ANSWER_DEADLINE_S = 20
START_DEADLINE_S = 40
STOP_DEADLINE_S = 20


@frozen
class Web:
    """A running server: where it listens, and the bearer that it asks for."""

    port: int
    token: str

    def save(self, patch: JSONObject) -> JSONObject:
        """Save settings as the web page does; the whole config that the server answers with."""
        answer = self._post("/api/v1/config", patch)
        assert answer["code"] == 0, answer
        data = answer["data"]
        assert isinstance(data, dict)
        return data

    def _post(self, path: str, body: JSONObject) -> JSONObject:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_DEADLINE_S)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request("POST", path, json.dumps(body), headers)
            found = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert isinstance(found, dict)
        return found


@contextmanager
def serving(kimi: Kimi, place: Place) -> Iterator[Web]:
    """`kimi web` on the place's home, ready to be asked."""
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
        return Web(port, _token(place)) if port and _listens(port) else None

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
    assert process.returncode == 0, said.read_text()


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
