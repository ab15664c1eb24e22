"""What the vendor tests share: each version of the real CLI, a provider, a scratch place.

A test that asks for `kimi` runs once for each version, and skips with the reason where npm or tmux
cannot give what it needs (CI forbids skips).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from vendor.install import UnavailableError, install, node
from vendor.kimi import Kimi
from vendor.place import Place, plain_config, scratch_place
from vendor.provider import Provider

VERSIONS = os.environ.get("KIMIAEPD_TEST_KIMI", "0.28.0 2.1.0").split()
"""The oldest release that hooks were tried with and the newest; the variable names others."""


@pytest.fixture(scope="session", params=VERSIONS)
def kimi(request: pytest.FixtureRequest) -> Kimi:
    """The real CLI; installed where it is not there yet."""
    version = str(request.param)
    try:
        return Kimi(version, (install(version), node().bin))
    except UnavailableError as why:
        pytest.skip(f"no kimi {version} to test with: {why}")


@pytest.fixture(scope="session")
def tmux() -> None:
    """Skips where there is no tmux, and so no terminal for the terminal UI."""
    if not shutil.which("tmux"):
        pytest.skip("no tmux here: the terminal UI needs one")


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture(scope="module")
def place(kimi: Kimi) -> Iterator[Place]:
    """A scratch user, one for each version and test file."""
    with scratch_place() as made:
        yield made


@pytest.fixture(scope="module")
def config(kimi: Kimi, provider: Provider) -> bytes:
    """A config.toml without hooks."""
    return plain_config(kimi.version, provider.url)
