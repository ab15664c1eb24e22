"""A scratch place for one user: home, vendor home, working directory, the daemon's state and log.

Everything lies under one short directory in /tmp (a socket path has 103 bytes), and nothing of the
real home is read or written. `renew` brings the CLI's part back to its first day at the same paths,
so that two runs see the same world.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

# Where the CLI is sent for all that is not its provider (tips, updates): nobody listens there, and
# no packet leaves the machine.
NOWHERE = "http://127.0.0.1:9"

# 0.28.0 has its own word for the attempts. Without the limit a refused request takes two minutes.
ATTEMPTS = {"0.28.0": "max_retries_per_step"}

CONFIG = """\
default_model = "mock"
telemetry = false
[providers.mock]
type = "openai"
base_url = "{url}"
api_key = "sk-test-not-real"
[models.mock]
provider = "mock"
model = "mock-model"
max_context_size = 100000
capabilities = ["tool_use"]
[loop_control]
{attempts} = 1
"""


@frozen
class Place:
    """Where one scratch user's things are."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def kimi_home(self) -> Path:
        return self.home / ".kimi-code"

    @property
    def config_file(self) -> Path:
        return self.kimi_home / "config.toml"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def state_dir(self) -> Path:
        return self.root / "state"

    @property
    def socket(self) -> Path:
        return self.state_dir / "hook.sock"

    @property
    def shim(self) -> Path:
        return self.home / ".local/share/kimiaepd/shim.py"

    @property
    def log_dir(self) -> Path:
        return self.root / "log"

    def environ(self, programs: tuple[Path, ...]) -> dict[str, str]:
        """The CLI's whole environment: nothing of ours is in it, nothing of the tester's leaks."""
        return {
            "HOME": str(self.home),
            "KIMI_CODE_HOME": str(self.kimi_home),
            "KIMI_CODE_NO_AUTO_UPDATE": "1",
            "HTTP_PROXY": NOWHERE,
            "HTTPS_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1",
            "LANG": "C.UTF-8",
            "PATH": os.pathsep.join([*map(str, programs), "/usr/local/bin", "/usr/bin", "/bin"]),
        }

    def renew(self, config: bytes) -> None:
        """The CLI's first day: an empty working directory, and a home with this config alone."""
        for folder in (self.kimi_home, self.work):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self.config_file.write_bytes(config)


def plain_config(version: str, url: str) -> bytes:
    """A config.toml with the mock provider and no hook."""
    attempts = ATTEMPTS.get(version, "max_attempts_per_step")
    return CONFIG.format(url=url, attempts=attempts).encode()


@contextmanager
def scratch_place() -> Iterator[Place]:
    """A place that is gone afterwards."""
    root = Path(tempfile.mkdtemp(prefix="aepd-", dir="/tmp")).resolve()
    try:
        yield Place(root)
    finally:
        # What the CLI left running may still write its last file.
        shutil.rmtree(root, ignore_errors=True)
