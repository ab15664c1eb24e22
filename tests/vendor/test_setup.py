"""`kimiaepd setup` before the real CLI: what it makes of a config.toml, the vendor takes and runs.

The user's file has comments, a key and a table that no release knows, and another tool's hook. That
hook is the measure: where it runs and ours do not, ours are gone; where neither runs, the vendor
dropped them all, as it does for one bad entry. One daemon listens all the while, so a hook of ours
that runs is counted.

Each release is found on PATH, as `setup install` finds it for its user.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from attrs import evolve, frozen

from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.setup.command import quote
from kimiaepd.setup.interpreter import running_interpreter
from vendor.daemon import ask, hooks_taken, running
from vendor.kimi import Kimi
from vendor.logged import Log, log_files, runs_are_closed
from vendor.place import Place
from vendor.waiting import until
from vendor.web import serving

pytestmark = pytest.mark.vendor

PROMPT = ("-p", "mock:plain go")
REFUSED = 78

CLEAN = "All checked config files are valid."

USERS = """\
# the user's comment
future_key = true
{config}
[future.table]  # the user's, too
a = 'b'

[[hooks]] # another tool's
event = 'SessionStart'
command = '''cat >/dev/null; echo ran >> "{mark}"'''
"""

PLAIN_TURN = 4
"""The hooks of a turn without a tool. 0.28.0: SessionStart, UserPromptSubmit, Stop, SessionEnd;
from 0.42.0 TurnStarted comes and SessionEnd does not."""


def events_of(version: str) -> int:
    return 16 if version == "0.28.0" else 20


def other_release(version: str) -> str:
    """One that knows other events than this one."""
    return "2.1.0" if version == "0.28.0" else "0.28.0"


@frozen
class House:
    """One scratch user with a running daemon.

    Attributes:
        users: the config.toml before us.
        mark: what the other tool's hook in it writes.
    """

    kimi: Kimi
    place: Place
    users: bytes
    mark: Path

    @property
    def config(self) -> bytes:
        return self.place.config_file.read_bytes()

    def install(self, *options: str) -> str:
        """What `setup install` says, where it does not refuse."""
        done = ask(self.kimi, self.place, "setup", "install", *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install_anew(self) -> bytes:
        """The user's file, and our hooks in it. Nobody is asked which release it is, for speed."""
        self.place.renew(self.users)
        self.install("--kimi-version", self.kimi.version)
        return self.config

    def vendor_is_content(self) -> None:
        done = self.kimi.run(self.place, "doctor")
        assert (done.status, done.stderr) == (0, ""), done
        assert CLEAN in done.stdout

    def vendor_complains(self) -> str:
        done = self.kimi.run(self.place, "doctor")
        assert (done.status, done.stdout) == (1, ""), done
        return done.stderr

    def turn_runs(self, *, ours: int, theirs: bool = True) -> str:
        """Have a turn, and hold against it how many of our hooks ran, and whether theirs did.

        Returns what the CLI said on stderr. The CLI waits for the first hook and the last of a
        turn, so one that nobody awaits here has been counted when it ends.
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


@pytest.fixture(scope="module")
def house(kimi: Kimi, place: Place, config: bytes) -> Iterator[House]:
    mark = place.root / "their-hook-ran"
    users = USERS.format(config=config.decode(), mark=mark).encode()
    place.renew(users)
    with running(kimi, place):
        yield House(kimi, place, users, mark)


def parsed(raw: bytes) -> dict[str, object]:
    return tomllib.loads(raw.decode())


def hooks(raw: bytes) -> list[Mapping[str, object]]:
    found = parsed(raw).get("hooks", [])
    assert isinstance(found, list)
    return found


def ours(raw: bytes) -> list[Mapping[str, object]]:
    """Our entries: those that name the hook program."""
    return [hook for hook in hooks(raw) if "/kimiaepd/shim.py" in str(hook["command"])]


def foreign(raw: bytes) -> JSONObject:
    """All that is not ours, as the vendor reads it."""
    mine = ours(raw)
    rest = [hook for hook in hooks(raw) if hook not in mine]
    return {**parsed(raw), "hooks": rest}  # type: ignore[dict-item]  # as TOML has it


def one_set(house: House) -> None:
    """Each event of this release once, and nothing of ours besides."""
    found = [str(hook["event"]) for hook in ours(house.config)]
    assert len(found) == len(set(found)) == events_of(house.kimi.version)


# --- install ---------------------------------------------------------------------------------


def test_the_vendor_takes_what_install_writes_and_runs_it(house: House) -> None:
    house.place.renew(house.users)

    said = house.install()

    assert f"{events_of(house.kimi.version)} hooks for kimi {house.kimi.version}" in said
    assert house.config.startswith(house.users)
    house.vendor_is_content()
    house.turn_runs(ours=PLAIN_TURN)
    until(lambda: runs_are_closed([newest(house.place)], 1), "the turn in the log")
    assert newest(house.place).story[:3] == ["session.started", "run.started", "run.finished"]


def newest(place: Place) -> Log:
    return Log.read(log_files(place)[-1])


def test_paths_that_a_shell_could_stumble_over(house: House) -> None:
    odd = evolve(house, place=Place(house.place.root / 'it\'s é & "$HOME" ;#'))
    odd.place.root.mkdir()
    python = odd.place.root / "python"
    python.symlink_to(running_interpreter())

    odd.place.renew(odd.users)
    with running(odd.kimi, odd.place):
        odd.install()
        odd.place.config_file.write_bytes(
            odd.config.replace(in_toml(running_interpreter()), in_toml(python))
        )
        assert odd.config.count(in_toml(python)) == 2 * events_of(odd.kimi.version)
        odd.turn_runs(ours=PLAIN_TURN)

    assert newest(odd.place).story[:3] == ["session.started", "run.started", "run.finished"]


def in_toml(path: Path) -> bytes:
    """How a path stands in a registered command, in a basic string of TOML."""
    return quote(str(path)).replace("\\", r"\\").replace('"', r"\"").encode()


# --- the vendor's own save -------------------------------------------------------------------

SAVES: Mapping[str, JSONObject] = {
    "a-table": {"thinking": {"enabled": True}},
    "a-top-level-key": {"default_permission_mode": "manual"},
}


@pytest.fixture(scope="module")
def saved(house: House) -> Mapping[str, tuple[bytes, bytes]]:
    """The file with our hooks before and after each save, one after the other."""
    house.install_anew()
    files = {}
    with serving(house.kimi, house.place) as web:
        for name, patch in SAVES.items():
            before = house.config
            web.save(patch)
            files[name] = (before, house.config)
    return files


@pytest.mark.parametrize("save", SAVES)
def test_a_save_of_the_vendor_keeps_every_hook(
    house: House, saved: Mapping[str, tuple[bytes, bytes]], save: str
) -> None:
    before, after = saved[save]

    assert parsed(after) == {**parsed(before), **SAVES[save]}
    # From 0.42.0 a change inside a table is spliced in, and below our block; a change at the top
    # still writes the whole file anew, and so does every change at 0.28.0: no comment is left.
    if save == "a-table" and house.kimi.version != "0.28.0":
        assert after == before + b"[thinking]\nenabled = true\n"
    else:
        assert b"#" not in after


@pytest.mark.parametrize("save", SAVES)
def test_after_a_save_install_still_finds_its_own(
    house: House, saved: Mapping[str, tuple[bytes, bytes]], save: str
) -> None:
    _, after = saved[save]
    house.place.renew(after)

    said = house.install("--kimi-version", house.kimi.version)

    assert "nothing changed" in said
    assert house.config == after
    one_set(house)


@pytest.mark.parametrize("save", SAVES)
def test_a_stale_set_is_brought_up_to_date_after_a_save(
    house: House, saved: Mapping[str, tuple[bytes, bytes]], save: str
) -> None:
    _, after = saved[save]
    stale = after.replace(b"timeout = 10\n", b"timeout = 11\n")
    assert stale != after
    house.place.renew(stale)

    house.install("--kimi-version", house.kimi.version)

    once = house.config
    one_set(house)
    assert foreign(once) == foreign(stale)
    assert ours(once) == ours(after)
    house.install("--kimi-version", house.kimi.version)
    assert house.config == once
    if save == "a-top-level-key":
        house.vendor_is_content()
        house.turn_runs(ours=PLAIN_TURN)


# --- uninstall -------------------------------------------------------------------------------


def uninstall(house: House) -> None:
    """Uninstall, and put the hook program back: a hook that was left behind would be heard."""
    program = house.place.shim.read_bytes()
    done = ask(house.kimi, house.place, "setup", "uninstall")
    assert done.returncode == 0, done.stderr
    assert not house.place.shim.exists()
    house.place.shim.parent.mkdir(exist_ok=True)
    house.place.shim.write_bytes(program)


def test_uninstall_gives_the_file_back_and_nothing_of_ours_runs(house: House) -> None:
    house.install_anew()

    uninstall(house)

    assert house.config == house.users
    house.vendor_is_content()
    house.turn_runs(ours=0, theirs=True)


@pytest.mark.parametrize("save", SAVES)
def test_uninstall_after_a_save_takes_ours_alone(
    house: House, saved: Mapping[str, tuple[bytes, bytes]], save: str
) -> None:
    _, after = saved[save]
    house.install_anew()
    house.place.renew(after)

    uninstall(house)

    assert parsed(house.config) == foreign(after)
    assert b"kimiaepd" not in house.config
    if save == "a-top-level-key":
        house.vendor_is_content()
        house.turn_runs(ours=0, theirs=True)


# --- another release -------------------------------------------------------------------------


def test_hooks_of_another_release_are_brought_to_this_one(house: House) -> None:
    house.place.renew(house.users)
    other = other_release(house.kimi.version)
    house.install("--kimi-version", other)
    assert len(ours(house.config)) == events_of(other)
    if house.kimi.version == "0.28.0":  # an event that it does not know: it drops every hook
        assert "hooks" in house.turn_runs(ours=0, theirs=False)
        assert ".event: Invalid option" in house.vendor_complains()

    house.install()

    one_set(house)
    assert house.config.startswith(house.users)
    house.vendor_is_content()
    house.turn_runs(ours=PLAIN_TURN)


# --- what silences every hook ----------------------------------------------------------------


def test_a_key_below_our_block_is_refused_and_its_remedy_works(house: House) -> None:
    good = house.install_anew()
    house.place.config_file.write_bytes(good + b"yolo = true\n")
    last = events_of(house.kimi.version)  # the other tool's is hook 0
    assert f'hooks[{last}]: Unrecognized key: "yolo"' in house.vendor_complains()
    assert "hooks" in house.turn_runs(ours=0, theirs=False)

    refused = ask(house.kimi, house.place, "setup", "install")

    line = good.count(b"\n") + 1
    assert refused.returncode == REFUSED
    assert f"{house.place.config_file}:{line}: `yolo` stands inside our last" in refused.stderr
    assert "move it above the first table of the file" in refused.stderr
    assert house.config == good + b"yolo = true\n"

    house.place.config_file.write_bytes(b"yolo = true\n" + good)
    house.install()
    house.vendor_is_content()
    house.turn_runs(ours=PLAIN_TURN)


def test_a_placeholder_that_kimi_could_not_start_beside_is_set_aside(
    house: House, config: bytes
) -> None:
    seeded = b"hooks = []\n" + config
    house.place.renew(seeded + b'[[hooks]]\nevent = "Stop"\ncommand = "true"\n')
    # 0.28.0 says that this is no TOML; 2.1.0 reads nothing of it, and misses the model.
    assert house.kimi.run(house.place, *PROMPT).status == 1
    assert "Invalid TOML" in house.vendor_complains()
    house.place.renew(seeded)
    house.vendor_is_content()

    house.install()

    house.vendor_is_content()
    house.turn_runs(ours=PLAIN_TURN, theirs=False)
    uninstall(house)
    assert house.config == seeded
