"""The console's page: to whom it is served, with which orders to a browser, and its files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import httpx
import pytest

from collector_room import collecting
from kimiaepd.collector.page import FOLDER
from vendor.install import node

FILES = sorted(path.name for path in FOLDER.iterdir())
PROGRAMS = [name for name in FILES if name.endswith(".js")]
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|document\.write|DOMParser"
    r"|setHTML|\beval\b|new Function|srcdoc|javascript:"
)
"""What makes markup, or a program, of text."""

NOT_TEXT = re.compile(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=|https?://", re.IGNORECASE)
"""What a page has in it that runs or looks like something without a file of ours, or of others."""


async def test_the_page_and_its_files_need_no_token_and_a_browser_is_given_strict_orders(
    tmp_path: Path,
) -> None:
    async with collecting(tmp_path) as place, place.client(None) as client:
        for path in ("/", *(f"/console/{name}" for name in FILES)):
            answer = await client.get(path)
            assert answer.status_code == 200
            headers = answer.headers
            policy = dict(
                one.strip().partition(" ")[::2]
                for one in headers["content-security-policy"].split(";")
            )
            assert policy == {
                "default-src": "'none'",
                "script-src": "'self'",
                "style-src": "'self'",
                "img-src": "'self'",
                "connect-src": f"'self' ws://127.0.0.1:{place.port}",
                "base-uri": "'none'",
                "form-action": "'none'",
                "frame-ancestors": "'none'",
                "require-trusted-types-for": "'script'",
                "trusted-types": "'none'",
            }
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cache-control"] == "no-store"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert "set-cookie" not in headers


async def test_each_file_says_what_it_is(tmp_path: Path) -> None:
    kinds = {".html": "text/html", ".js": "text/javascript", ".css": "text/css",
             ".svg": "image/svg+xml"}  # fmt: skip
    async with collecting(tmp_path) as place, place.client(None) as client:
        for name in FILES:
            answer = await client.get(f"/console/{name}")
            assert answer.headers["content-type"].partition(";")[0] == kinds[Path(name).suffix]
            assert answer.content == (FOLDER / name).read_bytes()


@pytest.mark.parametrize(
    "path",
    ["/console/", "/console/none.js", "/console/../page.py", "/console/%2e%2e%2fpage.py",
     "/console/%2Fetc%2Fpasswd", "/index.html"],
)  # fmt: skip
async def test_no_other_file_is_served(tmp_path: Path, path: str) -> None:
    async with collecting(tmp_path) as place, place.client(None) as client:
        answer = await client.get(httpx.URL(place.url).copy_with(raw_path=path.encode()))
        assert answer.status_code == 404


@pytest.mark.parametrize("path", ["/", "/console/console.js"])
@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}]
)
async def test_a_request_that_was_not_meant_for_us_gets_no_page(
    tmp_path: Path, path: str, headers: dict[str, str]
) -> None:
    async with collecting(tmp_path) as place, place.client(None) as client:
        answer = await client.get(path, headers=headers)
        assert answer.status_code == 403
        assert b"<" not in answer.content


async def test_the_page_can_be_read_and_nothing_else(tmp_path: Path) -> None:
    async with collecting(tmp_path) as place, place.client(None) as client:
        assert (await client.post("/", json={})).status_code == 405
        assert (await client.head("/")).status_code == 200


# --- its files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_is_one_and_makes_no_markup_of_text(name: str, tmp_path: Path) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert MARKUP.findall(text) == []
    module = tmp_path / f"{Path(name).stem}.mjs"
    module.write_text(text, encoding="utf-8")
    said = subprocess.run(
        [node().program, "--check", module], capture_output=True, text=True, timeout=20, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_takes_from_our_own_files_alone(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    taken = re.findall(
        r"""^(?:import|export)\b[^"']*?from\s+["']([^"']+)["']""", text, re.MULTILINE
    )
    assert {one.removeprefix("./") for one in taken} <= set(PROGRAMS)
    assert "http://" not in text
    assert "https://" not in text.replace('"https:"', "")


def test_the_page_has_no_program_and_no_look_in_it_that_is_not_a_file_of_ours() -> None:
    text = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert NOT_TEXT.findall(text) == []
    named = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert {one.removeprefix("/console/") for one in named} <= set(FILES)


def test_the_looks_fetch_nothing() -> None:
    text = (FOLDER / "console.css").read_text(encoding="utf-8")
    assert re.findall(r"url\(|@import|https?:", text) == []
