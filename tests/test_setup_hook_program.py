"""Whose hook it is: commands as other tools register them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimiaepd.setup.command import Command
from kimiaepd.setup.hook_program import program


@pytest.mark.parametrize(
    ("command", "named"),
    [
        # a program, a script, a script in a path with spaces
        ("say done", "say"),
        ("/usr/local/bin/atuin hook kimi", "/usr/local/bin/atuin"),
        ("~/.config/x/hook.sh", "~/.config/x/hook.sh"),
        ("'/Applications/Open Island.app/Contents/Helpers/hook' --source kimi",
         "/Applications/Open Island.app/Contents/Helpers/hook"),
        ("$HOME/bin/notify --event Stop", "$HOME/bin/notify"),
        # a shell or an interpreter in front
        ("bash ~/.config/x/hook.sh", "~/.config/x/hook.sh"),
        ("/bin/bash -e -o pipefail /x/hook.sh Stop", "/x/hook.sh"),
        ('node "/a b/c.js" x', "/a b/c.js"),
        ("node --import tsx /x/y.ts", "/x/y.ts"),
        ("python3 -u /x/hook.py", "/x/hook.py"),
        ("/opt/homebrew/bin/python3.12 -X utf8 /x/hook.py", "/x/hook.py"),
        ("python3 -m herdr.hooks stop", "herdr.hooks"),
        ("uv run --script y.py", "y.py"),
        ("uv run --with rich --project /p python /x/hook.py", "/x/hook.py"),
        ("uvx --from pkg tool arg", "tool"),
        ("npx -y @scope/notifier@latest Stop", "@scope/notifier@latest"),
        ("bun run /x/hook.ts", "/x/hook.ts"),
        ("ruby -I lib hook.rb", "hook.rb"),
        # a program that has no name
        ("python3 -c 'import sys; print(1)'", "python3"),
        ("node -e 'console.log(1)' x", "node"),
        ("perl -e 'print 1'", "perl"),
        ("bash", "bash"),
        # what stands around
        ("A=1 B='x y' /bin/tool", "/bin/tool"),
        ("env -u X -i A=1 /bin/tool --flag", "/bin/tool"),
        ("exec /bin/tool", "/bin/tool"),
        ("exec env A=1 bash /x.sh", "/x.sh"),
        ("sudo -u me nice -n 5 timeout -k 1 5s /bin/tool", "/bin/tool"),
        ("nohup /bin/tool >/dev/null 2>&1 &", "/bin/tool"),
        ("2>/dev/null /bin/tool", "/bin/tool"),
        ("sh -c '/bin/tool a && true'", "/bin/tool"),
        ("/bin/bash -lc 'exec node /x.js'", "/x.js"),
        ("[ -x /bin/tool ] && /bin/tool hook", "/bin/tool"),
        ("test -f ~/x.sh && . ~/env; ~/x.sh || true", "~/x.sh"),
        ("[[ -n $A ]] || exit 0\n\n/bin/tool", "/bin/tool"),
        ("command -v tool >/dev/null 2>&1 && tool hook || exit 0", "tool"),
        ("if [ -x /bin/tool ]; then /bin/tool; fi", "/bin/tool"),
        ("cat | /bin/tool", "/bin/tool"),
        ("cd /x && ./run.sh", "./run.sh"),
        ("(/bin/tool &)", "/bin/tool"),
        ("for f in a b; do /bin/tool $f; done", "/bin/tool"),
        ("trap '' TERM; /bin/tool", "/bin/tool"),
        # nobody's
        ("", None),
        ("   ", None),
        ("true", None),
        ("echo done >> /tmp/log", None),
        ("A=1", None),
        ("say 'half a quote", None),
    ],
)  # fmt: skip
def test_the_program_of_a_command(command: str, named: str | None) -> None:
    assert program(command) == named


def test_ours_is_its_shim() -> None:
    assert program(Command("/s", "/d/it's/shim.py", "/p/python3", 0.25).render()) == (
        "/d/it's/shim.py"
    )


@pytest.mark.parametrize(
    "word", ["python ", "env ", "sh -c ", "A=1 ", "; ", "exec ", "'a' ", "-m "]
)
def test_a_command_of_any_length_costs_little(word: str) -> None:
    program(word * 1_000_000)
    program(f"python {word * 1_000_000}")


@given(
    st.text(st.sampled_from("ab -c'\"\\$;&|<>()\n=[]#1\0é")),
    st.sampled_from(["", "sh -c ", "env "]),
)
def test_any_text_has_one_or_none(text: str, before: str) -> None:
    named = program(before + text)
    assert named is None or named
