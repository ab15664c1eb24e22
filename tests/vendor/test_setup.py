"""`kimiaepd setup` before the real CLI: what it makes of a config.toml, the vendor takes and runs.

Also after the vendor's own settings save, while its server runs, after an update of the vendor, and
from places whose names a shell could stumble over. What `setup` refuses is in `test_silenced.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from attrs import evolve, frozen

from kimiaepd.mapping.json_value import JSONObject
from kimiaepd.setup.command import quote
from kimiaepd.setup.interpreter import running_interpreter
from vendor.daemon import hooks_taken, running
from vendor.kimi import Kimi
from vendor.logged import Log, log_files, runs_are_closed
from vendor.place import Place
from vendor.user import PLAIN_TURN, User, events_of, foreign, living, ours, parsed, said_of
from vendor.waiting import until
from vendor.web import Web as Server
from vendor.web import serving

pytestmark = pytest.mark.vendor

STORY = ["session.started", "run.started", "run.finished"]


@pytest.fixture(scope="module")
def user(kimi: Kimi, place: Place, config: bytes) -> Iterator[User]:
    with living(kimi, place, config) as user:
        yield user


def newest_log(place: Place) -> Log:
    return Log.read(log_files(place)[-1])


def one_set(user: User) -> None:
    """Each event of this release once, and nothing of ours besides."""
    found = [str(hook["event"]) for hook in ours(user.config)]
    assert len(found) == len(set(found)) == events_of(user.kimi.version)


# --- install ---------------------------------------------------------------------------------


def test_install_writes_what_the_vendor_takes_and_runs(user: User) -> None:
    user.place.renew(user.own)

    said = user.setup("install")

    version = user.kimi.version
    assert f"{events_of(version)} hooks for kimi {version} ({user.kimi.programs[0]}" in said
    assert user.config.startswith(user.own)
    user.vendor_is_content()
    user.turn_runs(ours=PLAIN_TURN, theirs=True)
    until(lambda: runs_are_closed([newest_log(user.place)], 1), "the turn in the log")
    assert newest_log(user.place).story[:3] == STORY


def test_paths_that_a_shell_could_stumble_over(user: User) -> None:
    odd = evolve(user, place=Place(user.place.root / 'it\'s é & "$HOME" ;#'))
    odd.place.root.mkdir()
    python = odd.place.root / "python"
    python.symlink_to(running_interpreter())

    odd.install_anew()
    registered = odd.config.replace(in_toml(running_interpreter()), in_toml(python))
    assert registered.count(in_toml(python)) == 2 * events_of(odd.kimi.version)
    odd.place.config_file.write_bytes(registered)
    with running(odd.kimi, odd.place):
        odd.turn_runs(ours=PLAIN_TURN, theirs=True)

    assert newest_log(odd.place).story[:3] == STORY


def in_toml(path: Path) -> bytes:
    """How a path stands in a registered command, in a basic string of TOML."""
    return quote(str(path)).replace("\\", r"\\").replace('"', r"\"").encode()


# --- the vendor's own save -------------------------------------------------------------------

SAVES: Mapping[str, JSONObject] = {
    "a-table": {"thinking": {"enabled": True}},
    "a-top-level-key": {"default_permission_mode": "manual"},
}


@frozen
class Saved:
    """The file with our hooks before and after one save."""

    before: bytes
    after: bytes


@frozen
class Web:
    """What came of one running server.

    Attributes:
        saves: one after the other.
        doctor: what it said of the server.
        ran: the hooks of ours that ran in a session before we uninstalled, and in one after.
    """

    saves: Mapping[str, Saved]
    doctor: str
    ran: tuple[int, int]


@pytest.fixture(scope="module")
def web(user: User) -> Web:
    user.install_anew()
    saves = {}
    with serving(user.kimi, user.place) as server:
        for name, patch in SAVES.items():
            was = user.config
            server.save(patch)
            saves[name] = Saved(was, user.config)
        _, report = user.doctor("--kimi-version", user.kimi.version)
        before = hooks_in_a_session(user, server)
        user.uninstall()
        ran = before, hooks_in_a_session(user, server)
    return Web(saves, said_of(report, "kimi web"), ran)


def hooks_in_a_session(user: User, server: Server) -> int:
    """How many hooks of ours a new session of the server runs."""
    before = hooks_taken(user.place)
    server.turn(user.place.work, "mock:plain go")
    return hooks_taken(user.place) - before


@pytest.fixture(params=SAVES)
def save(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_save_of_the_vendor_keeps_every_hook(user: User, web: Web, save: str) -> None:
    before, after = web.saves[save].before, web.saves[save].after

    assert parsed(after) == {**parsed(before), **SAVES[save]}
    # 0.28.0 writes the whole file anew, and no comment is left. So does 2.1.0 for a key at the top;
    # a table it splices in (0.42.0 too), below our block.
    if save == "a-table" and user.kimi.version != "0.28.0":
        assert after == before + b"[thinking]\nenabled = true\n"
    else:
        assert b"#" not in after


def test_after_a_save_install_finds_its_own(user: User, web: Web, save: str) -> None:
    user.place.renew(web.saves[save].after)

    assert "nothing changed" in user.install()

    assert user.config == web.saves[save].after
    one_set(user)


def test_a_stale_set_is_mended_once_after_a_save(user: User, web: Web, save: str) -> None:
    after = web.saves[save].after
    stale = after.replace(b' 0.25"', b' 0.5"')
    assert stale != after
    user.place.renew(stale)

    user.install()

    once = user.config
    one_set(user)
    assert foreign(once) == foreign(stale)
    assert ours(once) == ours(after)
    user.install()
    assert user.config == once
    if save == "a-top-level-key":
        user.turn_runs(ours=PLAIN_TURN, theirs=True)


def test_doctor_sees_the_vendors_server(user: User, web: Web) -> None:
    assert web.doctor.startswith("ok: pid ")
    assert f"answers and takes the token, version {user.kimi.version}" in web.doctor


def test_a_server_that_runs_keeps_the_hooks_that_it_began_with(web: Web) -> None:
    """Also in new sessions: what setup does takes effect when `kimi web` is started again."""
    before, after = web.ran

    assert before > 0
    assert after > 0


# --- uninstall -------------------------------------------------------------------------------


def test_uninstall_gives_the_file_back_and_nothing_of_ours_runs(user: User) -> None:
    user.install_anew()

    user.uninstall()

    assert user.config == user.own
    user.vendor_is_content()
    user.turn_runs(ours=0, theirs=True)


def test_uninstall_after_a_save_takes_ours_alone(user: User, web: Web, save: str) -> None:
    after = web.saves[save].after
    user.install_anew()
    user.place.renew(after)

    user.uninstall()

    assert parsed(user.config) == foreign(after)
    assert b"kimiaepd" not in user.config
    if b"#" in after:  # spliced: all else is as it was
        assert user.config == user.own + b"[thinking]\nenabled = true\n"
    if save == "a-top-level-key":
        user.vendor_is_content()
        user.turn_runs(ours=0, theirs=True)


# --- another release -------------------------------------------------------------------------


def test_hooks_of_another_release_are_brought_to_this_one(user: User) -> None:
    other = "2.1.0" if user.kimi.version == "0.28.0" else "0.28.0"
    user.place.renew(user.own)
    user.install(version=other)
    assert len(ours(user.config)) == events_of(other)
    if other == "2.1.0":  # an event that 0.28.0 does not know: it drops every hook
        assert "hooks" in user.turn_runs(ours=0, theirs=False)
        assert ".event: Invalid option" in user.vendor_complains()

    user.setup("install")

    one_set(user)
    assert user.config.startswith(user.own)
    user.vendor_is_content()
    user.turn_runs(ours=PLAIN_TURN, theirs=True)
