"""The proof: what the tenants wrote = registry = ledger = Stripe, and nothing else exists.

Every number on the left comes from the demo's own notes, the rest from SQL and from the stand-in's
oracle; no code of the product is asked what the product did.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from sandbox.demo.stack import DemoStack
from sandbox.demo.tenants import CUSTOMERS, Expected

TENANTS = {customer: tenant for tenant, customer in CUSTOMERS.items()}


@dataclass(frozen=True, slots=True)
class Balance:
    """Counts and units as the three books have them."""

    registry_events: int
    ledger: Mapping[tuple[str, str], int]
    settled: Mapping[tuple[str, str], int]
    stripe: Mapping[tuple[str, str], int]
    stripe_twice: int
    accepted: int
    pending: int
    parked_review: int
    parked_dead: int
    held: int
    dead: int
    ambiguous: int


def pending(stack: DemoStack) -> int:
    """Units that the ledger knows and Stripe does not yet."""
    with psycopg.connect(stack.facts()["ledger_dsn"]) as ledger:
        return _number(ledger, "SELECT coalesce(sum(pending + ambiguous), 0) FROM ledger.balance")


def accepted_events(stack: DemoStack) -> int:
    """Events that the ledger counts."""
    with psycopg.connect(stack.facts()["ledger_dsn"]) as ledger:
        return _number(ledger, "SELECT coalesce(sum(events), 0) FROM ledger.balance")


def read_balance(stack: DemoStack) -> Balance:
    """All three books, read now."""
    facts = stack.facts()
    with psycopg.connect(facts["postgres_dsn"]) as service:
        registry = _number(
            service,
            "SELECT (SELECT count(*) FROM metering.usage_key WHERE kind = 'usage')"
            " + (SELECT count(*) FROM metering.usage_conflict)",
        )
    with psycopg.connect(facts["ledger_dsn"]) as ledger:
        rows = ledger.execute(
            "SELECT tenant_id, metric, sum(total + decided), sum(settled), sum(events),"
            " sum(pending), sum(held), sum(dead), sum(ambiguous)"
            " FROM ledger.balance GROUP BY 1, 2"
        ).fetchall()
        review = _number(ledger, "SELECT count(*) FROM ledger.parked WHERE kind = 'review'")
        dead = _number(ledger, "SELECT count(*) FROM ledger.parked WHERE kind = 'dead'")
    sums: Counter[tuple[str, str]] = Counter()
    identifiers: Counter[str] = Counter()
    for event in stack.stand_in.oracle():
        if event["counted"]:
            sums[event["customer"], event["event_name"]] += int(event["value"])
            identifiers[event["identifier"]] += 1
    return Balance(
        registry_events=registry,
        ledger={(CUSTOMERS[r[0]], r[1]): int(r[2]) for r in rows},
        settled={(CUSTOMERS[r[0]], r[1]): int(r[3]) for r in rows},
        stripe=dict(sums),
        stripe_twice=sum(1 for times in identifiers.values() if times > 1),
        accepted=sum(int(r[4]) for r in rows),
        pending=sum(int(r[5]) for r in rows),
        parked_review=review,
        parked_dead=dead,
        held=sum(int(r[6]) for r in rows),
        dead=sum(int(r[7]) for r in rows),
        ambiguous=sum(int(r[8]) for r in rows),
    )


def lost_and_double(expected: Expected, balance: Balance) -> tuple[int, int]:
    """Units that Stripe lacks and units it has too much, over all customers and meters."""
    keys = set(expected.units) | set(balance.stripe)
    differences = [balance.stripe.get(key, 0) - expected.units.get(key, 0) for key in keys]
    lost = sum(-difference for difference in differences if difference < 0)
    double = sum(difference for difference in differences if difference > 0)
    return lost, double


def _number(connection: psycopg.Connection[Any], question: str) -> int:
    row = connection.execute(question.encode()).fetchone()
    return int(row[0]) if row else 0
