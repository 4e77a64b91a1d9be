"""The oracle of all drills on real books: what is planted there is counted, and under its name."""

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
import requests

from tests.support.books import (
    Books,
    Use,
    assert_exact,
    await_settled,
    judge,
    scattered,
    write,
)
from tests.support.live import LiveStack
from tests.support.oracle import Verdict

NOBODY = {"payload[stripe_customer_id]": "cus_nobody"}
pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def figures(verdict: Verdict) -> dict[str, int]:
    return {name: number for name, number in verdict.figures.items() if number}


def without(books: Books, key: tuple[str, str]) -> Books:
    """Books of a service that does not remember one of its uses."""
    fewer = Books()
    for each, use in books.uses.items():
        if each != key:
            fewer.note(use)
    fewer.tenants |= books.tenants
    return fewer


def post(stack: LiveStack, path: str, form: dict[str, str]) -> None:
    """A request to Stripe that is not the product's."""
    url = f"{stack.facts['stripe_url']}/v1/billing/{path}"
    key = {"Authorization": "Bearer sk_test_foreign"}
    answer = requests.post(url, data=form, headers=key, timeout=10)
    assert answer.status_code == 200, answer.text


def cancel_of(stack: LiveStack, identifier: str) -> None:
    cancel = {"event_name": "exports", "type": "cancel", "cancel[identifier]": identifier}
    post(stack, "meter_event_adjustments", cancel)


def test_what_is_planted_is_found(stack: LiveStack) -> None:
    books = Books()
    write(stack, scattered("planted", 40, tenants=3, seed=71), books)
    await_settled(stack, books)
    assert_exact(stack, books)
    with pytest.raises(AssertionError, match="nothing was recorded"):
        judge(stack, Books())

    at = datetime.now(UTC) - timedelta(hours=4)  # noqa: TID251 - a service lives now
    lost = deepcopy(books)
    lost.note(Use("planted-0", "exports", "never-recorded", 5, at))
    verdict = judge(stack, lost)
    assert figures(verdict) == {"lost": 1}
    assert verdict.differences == ("registry: planted-0 never-recorded is missing",)
    with pytest.raises(AssertionError, match="lost 1 · double 0"):
        assert_exact(stack, lost)

    once = next(k for k, u in books.uses.items() if u.fate == "once" and u.metric == "exports")
    # Registry, ledger and Stripe have it, and nobody has recorded it.
    assert judge(stack, without(books, once)).phantom > 0

    moved = without(books, once)
    moved.note(replace(books.uses[once], occurred_at=at - timedelta(hours=20)))
    assert figures(judge(stack, moved)) == {"misattributed": 1}

    foreign = {
        "event_name": "exports",
        "identifier": "foreign",
        "timestamp": str(int(books.uses[once].occurred_at.timestamp())),
        "payload[stripe_customer_id]": f"cus_{once[0]}",
        "payload[value]": "3",
    }
    post(stack, "meter_events", foreign)
    assert figures(judge(stack, books)) == {"double": 3}
    # Of a customer that is nobody's, whoever looks finds it.
    post(stack, "meter_events", foreign | {"identifier": "astray", **NOBODY})
    assert figures(judge(stack, books)) == {"double": 3, "phantom": 3}
    cancel_of(stack, "astray")
    cancel_of(stack, "foreign")
    assert_exact(stack, books)

    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        ledger.execute(
            "INSERT INTO ledger.finding (kind, subject, detail) VALUES ('level_differs', 'x', '{}')"
        )
        ledger.commit()
        listed = stack.tailrace("findings", "list")
        assert listed.returncode == 1, listed.stderr
        assert "level_differs" in listed.stdout
    assert figures(judge(stack, books)) == {"stuck": 1}
    with pytest.raises(AssertionError):
        assert_exact(stack, books, noted={"level_differs": 2})
    assert_exact(stack, books, noted={"level_differs": 1})
    assert_exact(stack, books)
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        ledger.execute("SELECT ledger.clear_finding(finding_id, 'planted') FROM ledger.finding")
