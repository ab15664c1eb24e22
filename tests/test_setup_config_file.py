"""The edit of a file that another program also writes: nothing lost, nothing changed but bytes."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults import Faults
from kimiaepd.errors import ConfigError
from kimiaepd.setup import config_file
from kimiaepd.setup.config_file import ATTEMPTS, BACKUPS_KEPT, backups, edit, peek

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC)
_NOBODY = 65534


def add(old: bytes) -> bytes:
    return old + b"ours\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_bytes(b"theirs\n")
    return path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_an_edit_writes_and_keeps_a_private_copy_beside(file: Path) -> None:
    file.chmod(0o644)
    edited = edit(file, add, NOW)
    assert file.read_bytes() == edited.new == b"theirs\nours\n"
    assert edited.changed
    backup = file.with_name("config.toml.kimiaepd-20260102T030405.000678Z.bak")
    assert edited.backup == backup
    assert backup.read_bytes() == b"theirs\n"
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert names(file.parent) == [file.name, backup.name]


def test_a_plan_that_changes_nothing_writes_nothing(file: Path) -> None:
    before = file.stat()
    edited = edit(file, lambda old: old, NOW)
    assert not edited.changed
    assert edited.backup is None
    assert names(file.parent) == [file.name]
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o777])
def test_the_mode_stays(file: Path, mode: int) -> None:
    file.chmod(mode)
    edit(file, add, NOW)
    assert stat.S_IMODE(file.stat().st_mode) == mode


def test_the_owner_stays(file: Path) -> None:
    # Only root can give a file away; for anybody else the owner is the one it would be anyway.
    owner = (os.getuid(), os.getgid()) if os.getuid() else (12345, 23456)
    os.chown(file, *owner)
    edit(file, add, NOW)
    assert (file.stat().st_uid, file.stat().st_gid) == owner


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path) -> None:
    home, dotfiles = tmp_path / "home", tmp_path / "dotfiles"
    home.mkdir()
    dotfiles.mkdir()
    target = dotfiles / "kimi.toml"
    target.write_bytes(b"theirs\n")
    link = home / "config.toml"
    link.symlink_to("../dotfiles/kimi.toml")
    edited = edit(link, add, NOW)
    assert link.is_symlink()
    assert target.read_bytes() == b"theirs\nours\n"
    assert names(dotfiles) == ["kimi.toml"]  # the copy stands beside the link, not in a repository
    assert edited.backup
    assert edited.backup.parent == home


def test_a_missing_file_is_created_private_and_has_no_copy(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    edited = edit(path, add, NOW)
    assert (edited.old, edited.backup) == (None, None)
    assert path.read_bytes() == b"ours\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(tmp_path) == ["config.toml"]


def test_a_link_to_nothing_creates_its_target(tmp_path: Path) -> None:
    (tmp_path / "config.toml").symlink_to(tmp_path / "elsewhere.toml")
    edit(tmp_path / "config.toml", add, NOW)
    assert (tmp_path / "elsewhere.toml").read_bytes() == b"ours\n"


# --- another writer ---------------------------------------------------------------------------


def test_a_write_between_read_and_rename_is_planned_again(file: Path) -> None:
    seen: list[bytes] = []

    def plan(old: bytes) -> bytes:
        seen.append(old)
        if len(seen) == 1:
            file.write_bytes(b"theirs, saved meanwhile\n")
        return add(old)

    edited = edit(file, plan, NOW)
    assert seen == [b"theirs\n", b"theirs, saved meanwhile\n"]
    assert file.read_bytes() == b"theirs, saved meanwhile\nours\n"
    assert edited.backup
    assert edited.backup.read_bytes() == b"theirs, saved meanwhile\n"
    assert names(file.parent) == [file.name, edited.backup.name]


def test_a_rename_in_between_and_one_of_the_same_length_are_seen_too(file: Path) -> None:
    saved = file.with_name("saved")

    def plan(old: bytes) -> bytes:
        if old == b"theirs\n":
            saved.write_bytes(b"THEIRS\n")
            os.utime(saved, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
            saved.replace(file)
        return add(old)

    edit(file, plan, NOW)
    assert file.read_bytes() == b"THEIRS\nours\n"


def test_a_file_that_is_created_or_removed_meanwhile_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"

    def create(old: bytes) -> bytes:
        if not old:
            path.write_bytes(b"theirs\n")
        return add(old)

    edit(path, create, NOW)
    assert path.read_bytes() == b"theirs\nours\n"

    def remove(old: bytes) -> bytes:
        path.unlink(missing_ok=True)
        return add(old)

    edit(path, remove, NOW + dt.timedelta(seconds=1))
    assert path.read_bytes() == b"ours\n"


def test_a_file_that_never_rests_is_left_to_its_writer(file: Path) -> None:
    tries = 0

    def plan(old: bytes) -> bytes:
        nonlocal tries
        tries += 1
        file.write_bytes(b"theirs %d\n" % tries)
        return add(old)

    with pytest.raises(ConfigError, match="another program keeps writing it"):
        edit(file, plan, NOW)
    assert tries == ATTEMPTS
    assert file.read_bytes() == b"theirs %d\n" % ATTEMPTS
    assert names(file.parent) == [file.name]


def test_a_mode_or_a_link_that_changes_meanwhile_is_not_undone(file: Path) -> None:
    link = file.with_name("link.toml")
    link.symlink_to(file.name)
    other = file.with_name("other.toml")
    other.write_bytes(b"other\n")
    seen: list[bytes] = []

    def plan(old: bytes) -> bytes:
        seen.append(old)
        if len(seen) == 1:
            file.chmod(0o640)
        if len(seen) == 2:
            link.unlink()
            link.symlink_to(other.name)
        return add(old)

    edit(link, plan, NOW)
    assert seen == [b"theirs\n", b"theirs\n", b"other\n"]
    assert file.read_bytes() == b"theirs\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert other.read_bytes() == b"other\nours\n"


STEPS = ("open", "fstat", "fchmod", "fsync", "close", "replace", "unlink")


def test_a_write_at_any_step_survives_but_at_the_very_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole window: the file was compared, is closed, and is renamed over."""
    lost: list[str] = []
    rest = [b"ours", b"theirs"]
    at = 0
    while True:
        file = tmp_path / str(at) / "config.toml"
        file.parent.mkdir()
        file.write_bytes(b"theirs\n")
        with monkeypatch.context() as patch:
            step = write_at(at, file, patch)
            edit(file, add, NOW)
        if not step:
            break
        if b"later\n" not in file.read_bytes():
            lost += step
        assert sorted(file.read_bytes().split()) in ([b"later", *rest], rest)
        at += 1
    assert at > 12
    assert lost == ["close", "replace"]


def write_at(at: int, file: Path, patch: pytest.MonkeyPatch) -> list[str]:
    """Have another program write before one of the edit's system calls; which, once it did."""
    count = 0
    step: list[str] = []

    def write() -> None:
        handle = real["open"](file, os.O_WRONLY | os.O_APPEND)
        os.write(handle, b"later\n")  # type: ignore[arg-type]
        real["close"](handle)

    real: dict[str, Callable[..., object]] = {name: getattr(os, name) for name in STEPS}
    for name in STEPS:

        def call(*args: object, _name: str = name, **kwargs: object) -> object:
            nonlocal count
            if count == at:
                step.append(_name)
                write()
            count += 1
            return real[_name](*args, **kwargs)

        patch.setattr(os, name, call)
    return step


WRITER = """
import os, sys
path, number = sys.argv[1], 0
for manner in sys.stdin:
    with open(path, "rb") as file:
        data = file.read() + b"theirs %d\\n" % number
    number += 1
    place = path if manner.strip() == "in place" else path + ".tmp"
    with open(place, "wb") as file:
        file.write(data)
    if place != path:
        os.replace(place, path)
    print("done", flush=True)
"""


def test_fifty_writes_of_another_process_while_ours_is_planned_all_survive(file: Path) -> None:
    file.write_bytes(b"")
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", WRITER, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdin
        assert writer.stdout
        theirs = 0
        for number in range(50):
            is_written = False

            def plan(old: bytes) -> bytes:
                nonlocal is_written, theirs
                if not is_written:
                    is_written = True
                    manner = "in place" if theirs % 2 else "replace"
                    print(manner, file=writer.stdin, flush=True)
                    assert writer.stdout
                    assert writer.stdout.readline() == "done\n"
                    theirs += 1
                return add(old)

            edit(file, plan, NOW + dt.timedelta(seconds=number))
    lines = file.read_bytes().splitlines()
    assert [line for line in lines if line != b"ours"] == [b"theirs %d" % n for n in range(50)]
    assert lines.count(b"ours") == 50


# --- what cannot be edited --------------------------------------------------------------------


def test_a_plan_that_fails_leaves_everything_as_it_was(file: Path) -> None:
    def plan(_: bytes) -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        edit(file, plan, NOW)
    assert names(file.parent) == [file.name]
    assert file.read_bytes() == b"theirs\n"


@pytest.mark.parametrize("call", ["fsync", "fchmod", "open"])
def test_a_full_or_broken_disk_leaves_the_file_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real_open = os.open

    def fail(*args: object) -> int:
        if call == "open" and not str(args[0]).endswith(".bak"):
            return real_open(*args)  # type: ignore[arg-type]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"kimiaepd.setup.config_file.os.{call}", fail)
    with pytest.raises(ConfigError, match=r"config\.toml: cannot be edited: No space left"):
        edit(file, add, NOW)
    monkeypatch.undo()
    assert names(file.parent) == [file.name]
    assert file.read_bytes() == b"theirs\n"


def every_fault() -> Iterator[tuple[str, int]]:
    for name in (*STEPS, "link"):
        yield from ((name, after) for after in range(12))


@pytest.mark.parametrize("old", [b"theirs\n", b"", None])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EPERM])
def test_a_fault_at_any_step_leaves_the_old_file_and_no_litter(
    tmp_path: Path, number: int, old: bytes | None
) -> None:
    failed = set()
    for name, after in every_fault():
        file = tmp_path / f"{name} {after}" / "config.toml"
        file.parent.mkdir()
        if old is not None:
            file.write_bytes(old)
        said = ""
        with Faults() as faults:
            faults.fail(os, name, number, after=after, times=1)
            try:
                edit(file, add, NOW)
            except ConfigError as error:
                said = str(error)
        if not said:
            assert peek(file) == (old or b"") + b"ours\n"
            assert len(backups(file)) == (old is not None)
            continue
        failed.add(name)
        assert said.endswith(f"cannot be edited: {os.strerror(number)}; nothing was changed")
        assert peek(file) == old
        assert names(file.parent) == ([] if old is None else [file.name])
    made, changed = {"open", "fsync", "link"}, {"open", "fstat", "fchmod", "fsync", "replace"}
    assert failed == made if old is None else failed >= changed


@pytest.mark.parametrize("shrinks", [False, True])
def test_a_disk_that_fills_up_for_real_leaves_the_old_file_and_no_litter(
    file: Path, *, shrinks: bool
) -> None:
    old = b"#" * 2**20
    file.write_bytes(old)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, hard))
    try:
        with pytest.raises(ConfigError, match=os.strerror(errno.EFBIG)):
            edit(file, lambda old: b"ours" if shrinks else add(old), NOW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_bytes() == old
    assert names(file.parent) == [file.name]


@contextlib.contextmanager
def an_ordinary_user() -> Iterator[Path]:
    """A directory of the tests' own user; root may write anywhere, and so becomes another one."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder)
        if os.geteuid() != 0:
            yield place
            return
        os.chown(place, _NOBODY, -1)
        os.seteuid(_NOBODY)
        try:
            yield place
        finally:
            os.seteuid(0)


def test_a_directory_that_takes_no_files_is_an_error_and_changes_nothing() -> None:
    with an_ordinary_user() as place:
        file = place / "config.toml"
        file.write_bytes(b"theirs\n")
        place.chmod(0o500)
        with pytest.raises(ConfigError, match=r"Permission denied; nothing was changed"):
            edit(file, add, NOW)
        assert names(place) == [file.name]
        assert file.read_bytes() == b"theirs\n"
        place.chmod(0o700)


def test_an_empty_file_is_a_file(file: Path) -> None:
    file.write_bytes(b"")
    file.chmod(0o640)
    edited = edit(file, add, NOW)
    assert edited.old == b""
    assert edited.backup
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert file.read_bytes() == b"ours\n"


def test_a_hard_link_is_parted_and_the_other_name_keeps_the_old_bytes(file: Path) -> None:
    other = file.with_name("other")
    other.hardlink_to(file)
    edit(file, add, NOW)
    assert (other.read_bytes(), file.read_bytes()) == (b"theirs\n", b"theirs\nours\n")


def test_a_chain_of_links_is_followed_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "end").write_bytes(b"theirs\n")
    (tmp_path / "middle").symlink_to("end")
    (tmp_path / "config.toml").symlink_to(tmp_path / "middle")
    edit(tmp_path / "config.toml", add, NOW)
    assert (tmp_path / "end").read_bytes() == b"theirs\nours\n"
    assert (tmp_path / "middle").is_symlink()
    assert (tmp_path / "config.toml").is_symlink()


def test_a_read_only_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "it's $HOME" / "config.toml"
    file.parent.mkdir()
    file.write_bytes(b"theirs\n")
    file.chmod(0o444)
    with pytest.raises(ConfigError, match="is read-only; allow writing with: chmod") as caught:
        edit(file, add, NOW)
    assert file.read_bytes() == b"theirs\n"
    edit(file, lambda old: old, NOW)  # nothing to write, nothing to complain about
    subprocess.run(["sh", "-c", str(caught.value).partition("with: ")[2]], check=True)
    edit(file, add, NOW)
    assert file.read_bytes() == b"theirs\nours\n"


def test_a_pipe_or_a_directory_in_the_files_place_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for name in ("pipe", "directory"):
        for use in (lambda path: edit(path, add, NOW), peek):
            with pytest.raises(ConfigError, match=f"{name}: is no regular file"):
                use(tmp_path / name)


def test_a_link_that_leads_to_itself_is_an_error_with_the_name(tmp_path: Path) -> None:
    (tmp_path / "config.toml").symlink_to("config.toml")
    with pytest.raises(ConfigError, match=r"config\.toml: cannot be edited"):
        edit(tmp_path / "config.toml", add, NOW)


# --- copies -----------------------------------------------------------------------------------


def test_the_newest_five_copies_of_ours_are_kept_and_others_are_not_touched(file: Path) -> None:
    others = ["config.toml.bak", "config.toml.kimiaepd-mine.bak", "x.kimiaepd-20250101.bak"]
    for name in others:
        file.with_name(name).write_bytes(b"")
    kept = [
        edit(file, add, NOW + dt.timedelta(seconds=second)).backup
        for second in range(BACKUPS_KEPT + 3)
    ]
    left = [name for name in names(file.parent) if name not in (*others, file.name)]
    assert left == [backup.name for backup in kept[-BACKUPS_KEPT:] if backup]


def test_what_a_killed_edit_left_goes_after_an_hour_and_nothing_else(file: Path) -> None:
    left = {
        ".config.toml.kimiaepd-abcd1234": dt.timedelta(hours=2),
        ".config.toml.kimiaepd-young_12": dt.timedelta(minutes=50),
        ".config.toml.kimiaepd-of-another": dt.timedelta(days=9),
        ".config.toml.swp": dt.timedelta(days=9),
    }
    for name, age in left.items():
        written = (NOW - age).timestamp()
        file.with_name(name).write_bytes(b"half")
        os.utime(file.with_name(name), (written, written))
    edited = edit(file, add, NOW)
    assert edited.backup
    assert names(file.parent) == sorted([*[*left][1:], file.name, edited.backup.name])


def test_a_link_into_a_directory_that_is_missing_says_so_and_how_to_mend_it(tmp_path: Path) -> None:
    link, place = tmp_path / "config.toml", tmp_path / "dot files"
    link.symlink_to(place / "kimi.toml")
    with pytest.raises(ConfigError) as caught:
        edit(link, add, NOW)
    assert str(caught.value).startswith(f"{link}: leads to {place}/kimi.toml, and {place} is not")
    assert str(caught.value).endswith(f"; make it: mkdir -p '{place}'")
    place.mkdir()
    assert edit(link, add, NOW).new == (place / "kimi.toml").read_bytes() == b"ours\n"


def test_a_copy_never_replaces_another(file: Path) -> None:
    edit(file, add, NOW)
    with pytest.raises(ConfigError, match="File exists"):
        edit(file, add, NOW)
    assert file.read_bytes() == b"theirs\nours\n"


def test_peeking_reads_and_misses(file: Path) -> None:
    assert peek(file) == b"theirs\n"
    assert peek(file.with_name("none")) is None
    assert config_file.Edited(b"a", b"a").changed is False
