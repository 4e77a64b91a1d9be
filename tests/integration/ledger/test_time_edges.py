"""The ledger's own arithmetic: the same edges, and the core's answer for every case drawn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.core.billing import (
    DEFAULT_GRACE_US,
    BillingCycle,
    deadline_us,
    period_of,
)
from streams.core.edges import Edges, PeriodEdge
from streams.core.instant import HOUR_US, LAST_US, SECOND_US, duration_us
from tests.support.intervals import INTERVALS
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.postgres

RAW = (Path(__file__).parents[2] / "data/time_edges.json").read_bytes()
EDGES = msgspec.json.decode(RAW, type=Edges)
MARGIN_US = duration_us(EDGES.margin)


@pytest.fixture(scope="module")
def ledger(postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    database = postgres_server.create("ledger")
    with database.connect() as connection:
        yield connection
    postgres_server.drop(database)


def row(ledger: psycopg.Connection, query: str, *values: Any) -> Any:
    return ledger.execute(query.encode(), values).fetchone()


@pytest.mark.parametrize("edge", EDGES.instants, ids=lambda edge: edge.name)
def test_an_instant_has_the_same_number_in_the_ledger(
    ledger: psycopg.Connection, edge: Any
) -> None:
    found = row(ledger, "SELECT ledger.us(%s), ledger.at(%s) = %s", edge.wire, edge.us, edge.wire)
    assert found == (edge.us, True)


@pytest.mark.parametrize("edge", EDGES.periods, ids=lambda edge: edge.name)
def test_a_period_ends_and_a_deadline_falls_where_the_edges_say(
    ledger: psycopg.Connection, edge: PeriodEdge
) -> None:
    grace = edge.grace.replace("h", " hours").replace("m", " minutes")
    assert row(
        ledger,
        "SELECT ledger.period_start(%s, %s, %s) = %s, ledger.period_end(%s, %s, %s) = %s,"
        " ledger.billing_deadline(%s, %s, %s, %s) = %s",
        *(edge.anchor, edge.interval, edge.at, edge.period_start),
        *(edge.anchor, edge.interval, edge.at, edge.period_end),
        *(edge.anchor, edge.interval, grace, edge.at, edge.deadline),
    ) == (True, True, True)


def test_the_settings_of_a_new_ledger_are_those_of_the_edges_and_of_the_core(
    ledger: psycopg.Connection,
) -> None:
    margin_us, grace_us = row(
        ledger,
        "SELECT (extract(epoch FROM ledger.interval_setting('finalisation_margin')) * 1000000)"
        "::bigint,"
        " (extract(epoch FROM ledger.interval_setting('finalisation_grace')) * 1000000)::bigint",
    )
    assert (margin_us, grace_us) == (MARGIN_US, DEFAULT_GRACE_US)


cases = st.lists(
    st.tuples(
        st.integers(0, LAST_US // SECOND_US - 1).map(lambda s: s * SECOND_US),
        st.sampled_from(INTERVALS),
        st.integers(0, 72).map(lambda hours: hours * HOUR_US),
        st.integers(0, LAST_US - 400 * 24 * HOUR_US),
    ),
    min_size=20,
    max_size=60,
)


def test_core_and_ledger_agree_on_every_drawn_period(ledger: psycopg.Connection) -> None:
    @settings(max_examples=60, deadline=None)
    @given(cases)
    def agree(drawn: list[tuple[int, Any, int, int]]) -> None:
        found = ledger.execute(
            "SELECT ledger.us(ledger.period_start(ledger.at(anchor), interval, ledger.at(at))),"
            " ledger.us(ledger.period_end(ledger.at(anchor), interval, ledger.at(at))),"
            " ledger.us(ledger.billing_deadline(ledger.at(anchor), interval,"
            "     grace * interval '1 microsecond', ledger.at(at)))"
            " FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[])"
            " WITH ORDINALITY AS c(anchor, interval, grace, at, n) ORDER BY n",
            [list(column) for column in zip(*drawn, strict=True)],
        ).fetchall()
        expected = [
            (
                *period_of(anchor_us, interval, at_us),
                deadline_us(BillingCycle(anchor_us, interval, grace_us), at_us, MARGIN_US),
            )
            for anchor_us, interval, grace_us, at_us in drawn
        ]
        assert found == expected

    agree()
