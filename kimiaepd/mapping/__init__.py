"""Pure mapping: bytes and dicts in, values out.

Nothing in this folder imports trio, the clock, the file system or the environment; a test
(`tests/test_rooms.py`) holds it.
"""

from __future__ import annotations
