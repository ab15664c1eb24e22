"""One daemon a state directory: real processes, real kills."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kimiaepd.errors import EXIT_BUSY, BusyError, ConfigError
from kimiaepd.storage.daemon_lock import DaemonLock

CROWD = """
import os, sys
from pathlib import Path
from kimiaepd.storage.daemon_lock import DaemonLock
from kimiaepd.errors import BusyError

start, stay = os.pipe(), os.pipe()
for _ in range(20):
    if os.fork() == 0:
        os.close(start[1]), os.close(stay[1])
        os.read(start[0], 1)
        try:
            DaemonLock.acquire(Path(sys.argv[1]))
        except BusyError as error:
            os.write(1, f"{error.status} {error}\\n".encode())
            os._exit(0)
        os.write(1, f"won {os.getpid()}\\n".encode())
        os.read(stay[0], 1)
        os._exit(0)
os.close(start[1])
for _ in range(19):
    os.wait()
os.close(stay[1])
os.wait()
"""

OWNER = """
import sys, time
from pathlib import Path
from kimiaepd.storage.daemon_lock import DaemonLock
lock = DaemonLock.acquire(Path(sys.argv[1]))
print("mine", flush=True)
sys.stdin.read()
"""


@contextmanager
def owner(state_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, state_dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"mine\n"
            yield process
        finally:
            process.kill()


def test_of_twenty_at_once_one_wins_and_the_others_name_it(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CROWD, tmp_path], capture_output=True, check=True, timeout=30
    )
    lines = ran.stdout.decode().splitlines()
    (winner,) = (line.split()[1] for line in lines if line.startswith("won "))
    losers = [line for line in lines if not line.startswith("won ")]
    assert len(losers) == 19
    assert all(line.startswith(f"{EXIT_BUSY} ") for line in losers)
    assert all(f"pid {winner}," in line for line in losers)


def test_after_a_kill_the_next_start_needs_no_hand(tmp_path: Path) -> None:
    with owner(tmp_path) as process:
        with pytest.raises(BusyError, match=f"pid {process.pid}"):
            DaemonLock.acquire(tmp_path)
        process.kill()
        process.wait()
        with DaemonLock.acquire(tmp_path) as lock:
            assert lock.path.read_text() == f"{os.getpid()}\n"


def test_a_stopped_owner_keeps_its_right(tmp_path: Path) -> None:
    with owner(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(BusyError, match=f"pid {process.pid}"):
            DaemonLock.acquire(tmp_path)


def test_a_child_does_not_inherit_it(tmp_path: Path) -> None:
    lock = DaemonLock.acquire(tmp_path)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        try:
            lock.release()
            DaemonLock.acquire(tmp_path).release()
        finally:
            child.kill()


def test_release_leaves_the_file_and_no_pid_in_it(tmp_path: Path) -> None:
    lock = DaemonLock.acquire(tmp_path)
    inode = lock.path.stat().st_ino
    lock.release()
    lock.release()
    assert lock.path.read_bytes() == b""
    with DaemonLock.acquire(tmp_path):
        assert lock.path.stat().st_ino == inode


def test_an_owner_that_has_not_written_its_pid_is_unknown(tmp_path: Path) -> None:
    with DaemonLock.acquire(tmp_path) as lock:
        lock.path.write_bytes(b"not a pid")
        with pytest.raises(BusyError, match="pid unknown"):
            DaemonLock.acquire(tmp_path)


def test_the_pid_of_a_dead_owner_is_not_believed(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    with DaemonLock.acquire(tmp_path) as lock:
        lock.path.write_bytes(b"%d\n" % dead.pid)
        with pytest.raises(BusyError, match="pid unknown"):
            DaemonLock.acquire(tmp_path)


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_the_file_is_for_us_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with DaemonLock.acquire(tmp_path / "state") as lock:
            assert stat.S_IMODE(lock.path.stat().st_mode) == 0o600
        DaemonLock.acquire(tmp_path / "state").release()
    finally:
        os.umask(before)


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "daemon.lock").symlink_to("elsewhere")
    with pytest.raises(ConfigError, match=r"daemon\.lock"):
        DaemonLock.acquire(tmp_path)
    assert (tmp_path / "elsewhere").read_text() == "precious"


def test_a_directory_that_is_not_private_is_refused_untouched(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="chmod 700"):
        DaemonLock.acquire(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(ConfigError, match="No locks available"):
        DaemonLock.acquire(tmp_path)
