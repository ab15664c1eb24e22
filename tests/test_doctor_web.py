"""The doctor's look at `kimi web`: servers made up on loopback, and files of every kind."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from http_server import Reply, Request, Server, http, serving
from kimiaepd.doctor import web
from kimiaepd.mapping.json_value import JSON
from kimiaepd.web.home import read_instance
from live import Live, scratch
from patients import lines, patient

TOKEN = "t0k_en-" + "x" * 36
HEALTHY: Reply = http(200, {"code": 0, "msg": "success", "data": {"ok": True}})
ME = os.getpid()


def meta(request: Request) -> bytes:
    """The call as the real server answers it."""
    if request.headers.get("authorization") != f"Bearer {TOKEN}":
        return http(401, {"code": 40101, "msg": "Unauthorized", "data": None})
    return http(200, {"code": 0, "data": {"server_version": "2.1.0", "backend": "v2"}})


GOOD: dict[str, Reply] = {"/api/v1/healthz": HEALTHY, "/api/v1/meta": meta}


@pytest.fixture
def live() -> Iterator[Live]:
    with scratch() as live:
        home = live.where.kimi_home
        (home / "server/instances").mkdir(parents=True)
        (home / "server.token").write_text(TOKEN)
        (home / "server.token").chmod(0o600)
        yield live


def instance(live: Live, port: JSON, *, pid: JSON = ME, host: JSON = "127.0.0.1") -> Path:
    """The file that a server leaves."""
    folder = live.where.kimi_home / "server/instances"
    file = folder / f"{len(list(folder.iterdir()))}.json"
    said = {"server_id": "01", "pid": pid, "host": host, "port": port, "host_version": "2.1.0"}
    file.write_text(json.dumps(said))
    return file


async def see(live: Live) -> list[str]:
    with trio.fail_after(20):
        return lines(await web.examine(patient(live.environ)))


@asynccontextmanager
async def server(
    live: Live, replies: dict[str, Reply], host: str = "127.0.0.1"
) -> AsyncIterator[Server]:
    async with serving(replies) as running:
        instance(live, running.port, host=host)
        yield running


async def test_a_server_that_is_older_than_the_config_may_run_other_hooks(live: Live) -> None:
    config = live.where.kimi_home / "config.toml"
    config.write_text("")
    changed = config.stat().st_mtime
    moments: list[JSON] = [(changed - 10) * 1000, (changed + 10) * 1000, None, "soon"]
    for began in moments:
        async with serving(GOOD) as running:
            file = instance(live, running.port)
            file.write_text(json.dumps({**json.loads(file.read_text()), "started_at": began}))
            found = await see(live)
            file.unlink()
        assert len(found) == (2 if began == moments[0] else 1), found
        if began == moments[0]:
            assert f"began before {config} was last changed" in found[1]
            assert "-> start kimi web again" in found[1]


# --- servers that live ---------------------------------------------------------------------------


async def test_none_running_is_well(live: Live) -> None:
    assert await see(live) == ["ok kimi web: none running -> None"]
    (live.where.kimi_home / "server/instances").rmdir()
    assert await see(live) == ["ok kimi web: none running -> None"]


async def test_a_server_in_order(live: Live) -> None:
    async with server(live, GOOD) as running:
        assert await see(live) == [
            (
                f"ok kimi web: pid {ME} at 127.0.0.1:{running.port} answers and takes the token,"
                " version 2.1.0 -> None"
            )
        ]


async def test_two_calls_are_made_and_no_other_and_the_first_has_no_token(live: Live) -> None:
    async with server(live, GOOD) as running:
        await see(live)
    assert [request.path for request in running.asked] == ["/api/v1/healthz", "/api/v1/meta"]
    assert "authorization" not in running.asked[0].headers


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_dead_proxy_does_not_matter(
    live: Live, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    async with server(live, GOOD):
        (line,) = await see(live)
    assert "takes the token" in line


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "localhost"])
async def test_a_server_that_listens_everywhere_is_asked_on_this_machine(
    live: Live, host: str
) -> None:
    async with server(live, GOOD, host):
        (line,) = await see(live)
    assert "takes the token" in line


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "kimi.example", "127.0.0.1@kimi.example", "2001:db8::1"]
)
async def test_no_other_machine_is_asked(live: Live, host: str) -> None:
    instance(live, 58627, host=host)
    assert await see(live) == [
        (
            f"ok kimi web: pid {ME} at {host}:58627 is not asked: its address is not this"
            " machine's own -> None"
        )
    ]


async def test_every_server_is_asked_at_once(live: Live, autojump_clock: MockClock) -> None:
    async with serving({"/api/v1/healthz": None}) as one, serving({"/api/v1/healthz": None}) as two:
        instance(live, one.port)
        instance(live, two.port)
        began = trio.current_time()
        assert await see(live) == [
            f"warning kimi web: pid {ME} at 127.0.0.1:{port} does not answer: no answer within 2 s"
            " -> if it is not just starting or stopping, start kimi web again"
            for port in (one.port, two.port)
        ]
        assert trio.current_time() - began < 3


# --- and those that are not as they should be ----------------------------------------------------


async def test_a_server_that_is_starting_is_well(live: Live) -> None:
    instance(live, 0)
    assert await see(live) == [f"ok kimi web: pid {ME} is starting: it has no port yet -> None"]


async def test_a_server_that_refuses_is_a_warning(live: Live) -> None:
    instance(live, 1)
    assert await see(live) == [
        (
            f"warning kimi web: pid {ME} at 127.0.0.1:1 does not answer: connection refused -> if"
            " it is not just starting or stopping, start kimi web again"
        )
    ]


@pytest.mark.parametrize(
    "reply", [http(404), http(200, b"<html>"), http(200, [0]), http(200, {"code": 1}), http(302)]
)
async def test_what_is_not_kimi_web_never_sees_the_token(live: Live, reply: Reply) -> None:
    async with server(live, {"/api/v1/healthz": reply, "/api/v1/meta": meta}) as running:
        (line,) = await see(live)
    assert line.startswith("warning kimi web: what listens where pid")
    assert [request.path for request in running.asked] == ["/api/v1/healthz"]


async def test_a_token_that_is_refused_is_a_warning_without_the_token(live: Live) -> None:
    token = live.where.kimi_home / "server.token"
    token.write_text("another")
    async with server(live, GOOD) as running:
        assert await see(live) == [
            (
                f"warning kimi web: pid {ME} at 127.0.0.1:{running.port} refuses the token in"
                f" {token} -> it may be another home's server: start kimi web again"
            )
        ]


@pytest.mark.parametrize(
    "content", [None, b"", b"two words", b"\xff", "тайна".encode(), b"a\r\nb: c"]
)
async def test_a_token_file_without_a_token_is_a_warning(live: Live, content: bytes | None) -> None:
    token = live.where.kimi_home / "server.token"
    if content is None:
        token.unlink()
    else:
        token.write_bytes(content)
    async with server(live, GOOD) as running:
        assert await see(live) == [
            (
                f"warning kimi web: pid {ME} at 127.0.0.1:{running.port} answers, version 2.1.0;"
                f" {token} has no token for it -> start kimi web again, or run: kimi web"
                " rotate-token"
            )
        ]
    assert len(running.asked) == 1


async def test_a_fifo_in_the_place_of_the_token_does_not_hang_the_look(live: Live) -> None:
    (live.where.kimi_home / "server.token").unlink()
    os.mkfifo(live.where.kimi_home / "server.token", 0o600)
    async with server(live, GOOD):
        (line,) = await see(live)
    assert "has no token for it" in line


async def test_a_token_that_others_can_read_is_a_warning(live: Live) -> None:
    token = live.where.kimi_home / "server.token"
    token.chmod(0o644)
    async with server(live, GOOD):
        _, line = await see(live)
    assert line == (
        f"warning kimi web: {token} can be read by others (mode 0644): who has it controls every"
        f" session -> run: chmod 600 {token}; then: kimi web rotate-token"
    )


async def test_a_server_without_a_lock_on_its_door_is_a_warning(live: Live) -> None:
    open_to_all = http(200, {"code": 0, "data": {"dangerous_bypass_auth": True}})
    async with server(live, {**GOOD, "/api/v1/meta": open_to_all}):
        (line,) = await see(live)
    assert line.startswith("warning kimi web:")
    assert line.endswith("it runs with --dangerous-bypass-auth -> start it without")


@pytest.mark.parametrize(
    "reply", [http(500), http(200, {"code": 0, "data": None}), b"", b"SSH-2.0\r\n"]
)
async def test_a_meta_call_that_fails_is_a_warning(live: Live, reply: Reply) -> None:
    async with server(live, {**GOOD, "/api/v1/meta": reply}):
        (line,) = await see(live)
    assert line.startswith("warning kimi web: pid")
    assert "meta" in line


async def test_a_server_that_sends_for_ever_is_cut_off(live: Live) -> None:
    endless = http(200, b"x" * 4_000_000)
    async with server(live, {**GOOD, "/api/v1/meta": endless}):
        (line,) = await see(live)
    assert "gives no meta data (HTTP 200)" in line


# --- files ---------------------------------------------------------------------------------------


async def test_files_of_dead_servers_are_a_note(live: Live) -> None:
    gone = 2**30  # no system gives such a pid
    instance(live, 1, pid=gone)
    instance(live, 2, pid=gone)
    assert await see(live) == [
        "ok kimi web: files of servers that are gone: 2; the next one removes them -> None"
    ]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"pid":1}', b'{"pid":-1,"host":"x","port":1}', b"\xff", b"[" * 70_000],
)
async def test_a_file_of_another_kind_is_a_warning(live: Live, content: bytes) -> None:
    file = live.where.kimi_home / "server/instances/a.json"
    file.write_bytes(content)
    assert await see(live) == [
        (
            f"warning kimi web: {file} does not say where a server is -> remove it, or report it:"
            " kimi may have changed its format"
        )
    ]


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(pid=any_json, host=any_json, port=any_json, version=any_json)
def test_no_file_breaks_the_look(pid: JSON, host: JSON, port: JSON, version: JSON) -> None:
    said = {"pid": pid, "host": host, "port": port, "host_version": version}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.json"
        file.write_text(json.dumps(said))
        server = read_instance(file)
    if server:
        assert server.pid > 0
        assert 0 <= server.port <= 65535
        contact = server.contact()
        assert contact is None or contact in ("localhost", "[::1]") or contact.startswith("127.")
