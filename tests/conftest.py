"""Fixtures every suite may ask for, and the outcome of checks that a machine cannot make."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.support.not_run import reason_of
from tests.support.postgres import fresh_database, postgres_server

# How long an example takes says how busy the machine is, and nothing of a property.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

__all__ = ["fresh_database", "postgres_server"]


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """A check that was not made is told apart from a skip."""
    return None if reason_of(report) is None else ("not run", "N", "NOT RUN")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names each of them with its reason, however little else is printed."""
    for report in terminalreporter.getreports("not run"):
        terminalreporter.write_line(f"not run: {report.nodeid}: {reason_of(report)}")
