"""What a page asks for before anything is read."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from streams.cli.errors import UsageProblemError
from streams.cli.options import read_instant
from streams.cli.stack import Stack
from streams.console.operators import Operators
from streams.console.pages import _span
from streams.console.visit import Console, Visit
from streams.settings import Settings
from tests.unit.console.test_doors import SECRET, Clock

NOW_US = read_instant("now", "2026-11-30T10:00:00Z")


def visit(query: str) -> Visit:
    stack = Stack(Settings(), None, {}, ())
    console = Console(lambda: stack, Operators(SECRET, Clock()))
    scope = {"type": "http", "query_string": query.encode(), "headers": []}
    return Visit(Request(scope), console, stack, None, {})


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ("", "2026-11-01T00:00:00Z", "2026-11-30T10:00:00Z"),
        ("from=2026-11-03&to=2026-11-04", "2026-11-03T00:00:00Z", "2026-11-05T00:00:00Z"),
        ("to=2026-11-30T06:00:00Z", "2026-11-01T00:00:00Z", "2026-11-30T06:00:00Z"),
        ("from=2026-11-03T02:00:00%2B02:00", "2026-11-03T00:00:00Z", "2026-11-30T10:00:00Z"),
    ],
)
def test_a_day_is_in_a_statement_to_its_end_and_an_instant_is_not(
    query: str, start: str, end: str
) -> None:
    assert _span(visit(query), NOW_US) == (read_instant("", start), read_instant("", end))


@pytest.mark.parametrize(
    "query", ["from=2026-12-01", "to=2026-10-31", "from=yesterday", "to=2026-11-30T06:00:00"]
)
def test_a_span_that_is_none_is_refused(query: str) -> None:
    with pytest.raises(UsageProblemError):
        _span(visit(query), NOW_US)
