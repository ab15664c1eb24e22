"""A scratch user: a daemon that runs, a config.toml of their own, and another tool's hook in it.

That hook is the measure of a turn: where it runs and ours do not, ours are gone; where neither
runs, the vendor dropped them all, as it does for one bad entry. A hook of ours that runs is counted
by the daemon.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from kimiaepd.mapping.json_value import JSONObject
from vendor.daemon import ask, hooks_taken, running
from vendor.kimi import Kimi
from vendor.place import Place
from vendor.waiting import until

PROMPT = ("-p", "mock:plain go")

PLAIN_TURN = 4
"""The hooks of a turn without a tool. 0.28.0: SessionStart, UserPromptSubmit, Stop, SessionEnd;
from 0.42.0 TurnStarted comes and SessionEnd does not."""

CLEAN = "All checked config files are valid."

OWN = """\
# the user's comment
future_key = true
{config}
[future.table]  # the user's, too
a = 'b'

[[hooks]] # another tool's
event = 'SessionStart'
command = '''cat >/dev/null; echo ran >> "{mark}"'''
"""


@frozen
class User:
    """One scratch user.

    Attributes:
        own: the config.toml before us: comments, a key and a table that no release knows, a hook.
        mark: what that hook writes.
    """

    kimi: Kimi
    place: Place
    own: bytes
    mark: Path

    @property
    def config(self) -> bytes:
        """The config.toml as it is now."""
        return self.place.config_file.read_bytes()

    def setup(self, command: str, *options: str) -> str:
        """What `kimiaepd setup` says, where it does not refuse."""
        done = ask(self.kimi, self.place, "setup", command, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, *, version: str = "") -> str:
        """What `setup install` says; it is told the release, because asking kimi takes seconds."""
        return self.setup("install", "--kimi-version", version or self.kimi.version)

    def install_anew(self) -> bytes:
        """Their own file, with our hooks in it."""
        self.place.renew(self.own)
        self.install()
        return self.config

    def uninstall(self) -> None:
        """Uninstall, and put the hook program back: a hook that was left behind would be heard."""
        program = self.place.shim.read_bytes()
        self.setup("uninstall")
        assert not self.place.shim.exists()
        self.place.shim.parent.mkdir(exist_ok=True)
        self.place.shim.write_bytes(program)

    def doctor(self, *options: str) -> tuple[int, JSONObject]:
        """The exit status of `kimiaepd doctor`, and its report."""
        done = ask(self.kimi, self.place, "doctor", "--json", *options)
        assert not done.stderr
        return done.returncode, json.loads(done.stdout)

    def vendor_is_content(self) -> None:
        """Hold `kimi doctor` to find nothing."""
        done = self.kimi.run(self.place, "doctor")
        assert (done.status, done.stderr) == (0, ""), done
        assert CLEAN in done.stdout

    def vendor_complains(self) -> str:
        """What `kimi doctor` has to say, where it has something."""
        done = self.kimi.run(self.place, "doctor")
        assert (done.status, done.stdout) == (1, ""), done
        return done.stderr

    def turn_runs(self, *, ours: int, theirs: bool) -> str:
        """Have a turn; hold against it how many of our hooks ran, and whether the other tool's did.

        Returns what the CLI said on stderr. It waits for the first hook of a turn and for the last,
        so one of ours that ran where none may has been counted when it ends.
        """
        self.mark.unlink(missing_ok=True)
        before = hooks_taken(self.place)
        turn = self.kimi.run(self.place, *PROMPT)
        assert turn.status == 0, turn
        if ours:
            until(lambda: hooks_taken(self.place) - before >= ours, f"{ours} hooks of ours")
        assert hooks_taken(self.place) - before == ours
        assert self.mark.exists() == theirs
        return turn.stderr


@contextmanager
def living(kimi: Kimi, place: Place, config: bytes) -> Iterator[User]:
    """A user whose daemon runs; `config` is what their config.toml needs for the provider."""
    mark = place.root / "their-hook-ran"
    own = OWN.format(config=config.decode(), mark=mark).encode()
    place.renew(own)
    with running(kimi, place):
        yield User(kimi, place, own, mark)


def events_of(version: str) -> int:
    """How many events a release knows."""
    return 16 if version == "0.28.0" else 20


def parsed(raw: bytes) -> dict[str, object]:
    """A config.toml, as the vendor reads it."""
    return tomllib.loads(raw.decode())


def hooks(raw: bytes) -> list[Mapping[str, object]]:
    """Every hook, whoever wrote it."""
    found = parsed(raw).get("hooks", [])
    assert isinstance(found, list)
    return found


def ours(raw: bytes) -> list[Mapping[str, object]]:
    """Our hooks: those that name the hook program."""
    return [hook for hook in hooks(raw) if "/kimiaepd/shim.py" in str(hook["command"])]


def foreign(raw: bytes) -> dict[str, object]:
    """All that is not ours."""
    mine = ours(raw)
    return {**parsed(raw), "hooks": [hook for hook in hooks(raw) if hook not in mine]}


def said_of(report: JSONObject, name: str) -> str:
    """What the doctor's report says of one subject, a line a check."""
    checks = report["checks"]
    assert isinstance(checks, list)
    found = (check for check in checks if isinstance(check, dict) and check["name"] == name)
    return "\n".join(f"{check['level']}: {check['said']}" for check in found)
