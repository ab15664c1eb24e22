"""A systemctl and a launchctl that remember what they were asked, and fail when they are told to.

Their memory is a folder: `asked` has a line a call; `pid` is there while the service runs; a file
`fail-<verb>` makes that verb fail with what is in it; `starts-as` is the pid of the next start, and
a start without it is one that fails. They are what a manager looks like from outside, not one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from attrs import define
from click.testing import CliRunner, Result

from kimiaepd import __version__
from kimiaepd.cli.service import service
from kimiaepd.hook_socket.client import NotRunning
from kimiaepd.mapping.json_value import JSONObject

PID = "4711"

_HEAD = """\
#!/bin/sh
printf '%s\\n' "$*" >> "$FAKE/asked"
fail() { if [ -e "$FAKE/fail-$1" ]; then cat "$FAKE/fail-$1" >&2; exit 1; fi; }
begin() {
    if [ ! -e "$FAKE/starts-as" ]; then echo 78 > "$FAKE/ended"; echo "Job failed." >&2; exit 1; fi
    rm -f "$FAKE/ended"; cp "$FAKE/starts-as" "$FAKE/pid"
}
"""

_SYSTEMCTL = (
    _HEAD
    + """\
shift  # --user
wants=${UNIT%/*}/default.target.wants
fail "$1"
case "$1 $2" in
    "show --property=Version") cat "$FAKE/version" ;;
    show*)
        echo "NeedDaemonReload=$([ -e "$FAKE/stale" ] && echo yes || echo no)"
        if [ -e "$UNIT" ]; then
            printf 'LoadState=loaded\\nFragmentPath=%s\\n' "$(cat "$FAKE/reads")"
            [ -L "$wants/kimiaepd.service" ] && en=en || en=dis
            echo "UnitFileState=${en}abled"
        else
            printf 'LoadState=not-found\\nFragmentPath=\\nUnitFileState=\\n'
        fi
        if [ -e "$FAKE/pid" ]; then
            printf 'ActiveState=active\\nSubState=running\\nResult=success\\nExecMainStatus=0\\n'
            echo "MainPID=$(cat "$FAKE/pid")"
        elif [ -e "$FAKE/ended" ]; then
            printf 'ActiveState=failed\\nSubState=failed\\nMainPID=0\\n'
            [ -e "$FAKE/result" ] && cat "$FAKE/result" || echo Result=exit-code
            echo "ExecMainStatus=$(cat "$FAKE/ended")"
        else
            printf 'ActiveState=inactive\\nSubState=dead\\nResult=success\\nMainPID=0\\n'
            echo ExecMainStatus=0
        fi ;;
    daemon-reload*) rm -f "$FAKE/stale" ;;
    enable*) mkdir -p "$wants"; ln -sf "$UNIT" "$wants/kimiaepd.service" ;;
    disable*) rm -f "$wants/kimiaepd.service"; rmdir "$wants" ;;
    start*|restart*) begin ;;
    stop*) rm -f "$FAKE/pid" ;;
    reset-failed*) rm -f "$FAKE/ended" ;;
    *) echo "what is $1?" >&2; exit 1 ;;
esac
"""
)

_LAUNCHCTL = (
    _HEAD
    + """\
fail "$1"
case "$1 $2" in
    "print gui/$UID_/local.kimiaepd")
        fail print-service
        [ -e "$FAKE/loaded" ] || { echo "Could not find service" >&2; exit 113; }
        printf 'gui/501/local.kimiaepd = {\\n\\tactive count = 1\\n\\tpath = x\\n'
        if [ -e "$FAKE/pid" ]; then
            printf '\\tstate = running\\n\\n\\tpid = %s\\n' "$(cat "$FAKE/pid")"
            printf '\\tlast exit code = (never exited)\\n'
        else
            printf '\\tstate = spawn scheduled\\n\\tlast exit code = 78: EX_CONFIG\\n'
        fi
        printf '\\tendpoints = {\\n\\t\\tstate = running\\n\\t\\tpid = 1\\n\\t}\\n}\\n' ;;
    "print gui/$UID_") echo "gui/501 = {" ;;
    "enable gui/$UID_/local.kimiaepd") ;;
    "bootstrap gui/$UID_")
        [ ! -e "$FAKE/loaded" ] || { echo "Bootstrap failed: 5: I/O error" >&2; exit 5; }
        : > "$FAKE/loaded"
        [ ! -e "$FAKE/starts-as" ] || cp "$FAKE/starts-as" "$FAKE/pid" ;;
    "kickstart gui/$UID_/local.kimiaepd") cp "$FAKE/starts-as" "$FAKE/pid" ;;
    "bootout gui/$UID_/local.kimiaepd") rm -f "$FAKE/loaded" "$FAKE/pid" ;;
    *) echo "what is $*?" >&2; exit 64 ;;
esac
"""
)


@define
class Desk:
    """A person with a scratch home and a manager that is none.

    Attributes:
        home: their HOME.
        fake: the manager's memory.
        file: the manager's file.
    """

    home: Path
    fake: Path
    file: Path

    def types(self, *words: str) -> Result:
        """Type `kimiaepd service WORDS`; a UserError is raised."""
        result = CliRunner().invoke(service, words)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def tell(self, name: str, content: str = "") -> None:
        """Change the manager's memory."""
        (self.fake / name).write_text(content)

    def forget(self, name: str) -> None:
        """Change it back."""
        (self.fake / name).unlink()

    def asked(self) -> list[str]:
        """What was asked since the last look, but for the looks themselves."""
        file = self.fake / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line for line in lines if not line.startswith(("--user show", "print"))]

    def files(self) -> list[str]:
        """Every file below the home that is not state or log."""
        return sorted(
            str(path.relative_to(self.home))
            for path in self.home.rglob("*")
            if not path.is_dir() and not path.is_relative_to(self.home / ".local")
        )


def sit_down(folder: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> Desk:
    """A desk; the daemon answers pings while the manager says that it runs."""
    for name in list(os.environ):
        if name.startswith(("KIMI", "AEP_", "XDG_")):
            monkeypatch.delenv(name)
    desk = Desk(folder / "h", folder / "fake", folder / "h" / file)
    for made in (desk.home, desk.fake, folder / "bin"):
        made.mkdir()
    for name, text in (("systemctl", _SYSTEMCTL), ("launchctl", _LAUNCHCTL)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    (folder / "bin/loginctl").write_text('#!/bin/sh\necho "Linger=$(cat "$FAKE/linger")"\n')
    (folder / "bin/loginctl").chmod(0o755)
    monkeypatch.setenv("HOME", str(desk.home))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/bin:/usr/bin")
    monkeypatch.setenv("FAKE", str(desk.fake))
    monkeypatch.setenv("UNIT", str(desk.file))
    monkeypatch.setenv("UID_", str(os.getuid()))
    desk.tell("version", "Version=252\n")
    desk.tell("reads", f"{desk.file}\n")
    desk.tell("starts-as", PID)
    desk.tell("linger", "yes")

    async def request(socket: Path, kind: str, *, timeout: float) -> JSONObject:  # noqa: ASYNC109
        assert kind == "ping"
        for name in ("other", "pid"):
            if (desk.fake / name).exists():
                return {"pid": int((desk.fake / name).read_text()), "version": __version__}
        raise NotRunning(f"no daemon is running at {socket}")

    monkeypatch.setattr("kimiaepd.service.rival.request", request)
    return desk
