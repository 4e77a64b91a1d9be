"""A check that this machine cannot make: an outcome of its own, named in every report.

A skip is silent where many tests run. What calls `not_run` counts as `not run`, with its reason.
"""

from typing import Final, NoReturn

import pytest

PREFIX: Final = "not run: "


def not_run(reason: str) -> NoReturn:
    """Ends the test as one that was not run."""
    pytest.skip(PREFIX + reason)


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Why a test was not run; None where it was, or is an ordinary skip."""
    if not report.skipped or not isinstance(report.longrepr, tuple):
        return None
    _, _, reason = report.longrepr
    words = str(reason).removeprefix("Skipped: ")
    return words.removeprefix(PREFIX) if words.startswith(PREFIX) else None
