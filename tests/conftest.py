"""What every test shares: where the standard's files are, and CI's rule that nothing skips."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
NO_SKIP = os.environ.get("KIMIAEPD_NO_SKIP") == "1"


def shared_folder() -> Path:
    """The folder with the standard's fixtures and the vendor's captures."""
    return Path(os.environ.get("KIMIAEPD_SHARED") or ROOT.parent / "shared")


def pytest_configure() -> None:
    """No example is judged by its time: a busy machine proves nothing.

    And lines as the daemon's own: a traceback without the values of everything around it.
    """
    settings.register_profile("kimiaepd", deadline=None)
    settings.load_profile("kimiaepd")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
        ]
    )


@pytest.fixture(scope="session")
def shared() -> Path:
    """The standard's data files and the captures; the test skips where they are not."""
    folder = shared_folder()
    if not (folder / "aep").is_dir():
        pytest.skip(f"no {folder}/aep here; $KIMIAEPD_SHARED names another place")
    return folder


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say plainly why a run with nothing failed is red."""
    skipped = terminalreporter.stats.get("skipped", [])
    if NO_SKIP and skipped:
        terminalreporter.write_line(f"KIMIAEPD_NO_SKIP is set and {len(skipped)} tests skipped")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run when a test skipped where none may."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if NO_SKIP and exitstatus == 0 and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
