from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults import Faults
from kimiaepd.storage.file_safety import (
    lock_file,
    open_private,
    read_pid,
    sync_directory,
    write_atomically,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.fixture(params=[0, 0o022, 0o777], ids=["umask 0", "umask 022", "umask 777"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    os.close(open_private(tmp_path / "f", os.O_WRONLY | os.O_CREAT))
    write_atomically(tmp_path / "g", b"x")

    assert mode(tmp_path / "f") == mode(tmp_path / "g") == 0o600


def test_what_belongs_to_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").touch()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(PermissionError):
        open_private(tmp_path / "f", os.O_RDONLY)


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "f").touch(mode=0o644)

    os.close(open_private(tmp_path / "f", os.O_RDONLY))

    assert mode(tmp_path / "f") == 0o600


def test_no_link_fifo_socket_or_directory_is_opened(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
    before = open_files()

    for name in ("link", "fifo", "s", "."):
        for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT):
            with pytest.raises(OSError):  # noqa: PT011 - each has its own number
                open_private(tmp_path / name, flags)
    assert open_files() == before


def test_a_lock_has_one_holder_and_says_who(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.write_bytes(b"99999999\nleft over")
    held = lock_file(path)

    with pytest.raises(BlockingIOError):
        lock_file(path)
    assert read_pid(path) == os.getpid()
    assert not os.get_inheritable(held)
    os.close(held)
    os.close(lock_file(path))


def test_a_full_disk_does_not_keep_the_lock_from_us(tmp_path: Path) -> None:
    with Faults() as faults:
        faults.disk_takes(0)
        held = lock_file(tmp_path / ".lock")

    assert read_pid(tmp_path / ".lock") is None
    os.close(held)


def test_nobody_is_named_where_the_lock_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "words").write_bytes(b"not a number\n")

    assert read_pid(tmp_path / "missing") is None
    assert read_pid(tmp_path / "empty") is None
    assert read_pid(tmp_path / "words") is None


def test_an_atomic_write_goes_on_where_a_write_was_cut_short(tmp_path: Path) -> None:
    with Faults() as faults:
        faults.cut_writes(1, 2)
        write_atomically(tmp_path / "f", b"content")

    assert (tmp_path / "f").read_bytes() == b"content"


def test_an_atomic_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomically(path, b"old")
    breakers: list[Callable[[Faults], None]] = [
        lambda faults: faults.disk_takes(2),
        lambda faults: faults.fail_sync(errno.EIO),
        lambda faults: faults.fail(os, "open", errno.EMFILE),
    ]
    for break_disk in breakers:
        with Faults() as faults:
            break_disk(faults)
            with pytest.raises(OSError):  # noqa: PT011 - each has its own number
                write_atomically(path, b"new")

        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]


def test_what_a_crash_left_beside_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "f.tmp").write_bytes(b"half of something longer")

    write_atomically(tmp_path / "f", b"new")

    assert (tmp_path / "f").read_bytes() == b"new"


def test_a_file_system_that_syncs_no_directories_is_no_error(tmp_path: Path) -> None:
    with Faults() as faults:
        faults.fail(os, "fsync", errno.EINVAL)
        sync_directory(tmp_path)
    with Faults() as faults:
        faults.fail(os, "fsync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            sync_directory(tmp_path)
