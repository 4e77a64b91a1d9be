"""Findings: each says what it is about and where to look; that it was cleared is kept."""

from __future__ import annotations

from typing import Any

import pytest

from streams.adapters.clock import SystemClock
from streams.adapters.ledger import open_ledger
from streams.adapters.stripe import StripeSettings, StripeSink
from streams.agents.catalogue_book import CatalogueBook
from streams.agents.meter_watch import MeterWatch
from streams.core.observation import NotSent
from tests.integration.cli.conftest import World, new_key
from tests.integration.cli.test_ledger_log import logged
from tests.support.meters import make_meter
from tests.support.waiting import until

pytestmark = pytest.mark.postgres
HOLD = """
WITH held AS (
    UPDATE ledger.level SET held = true RETURNING *
)
INSERT INTO ledger.finding (kind, subject, detail)
SELECT 'level_differs', 'a series', jsonb_build_object(
    'tenant_id', tenant_id, 'metric', metric, 'version', catalogue_version,
    'window_start', window_start, 'shard', shard, 'log_id', log_id,
    'told', jsonb_build_object('birth', birth_offset, 'count', count, 'total', total + 1),
    'recorded', jsonb_build_object('birth', birth_offset, 'count', count, 'total', total))
FROM held
"""


async def look(world: World, stripe_url: str) -> bool:
    """A worker that starts, and looks at Stripe's meters."""
    dsn = world.ledger.dsn(world.ledger.login("ledger_service"))
    stripe = StripeSettings("sk_test_sandbox", stripe_url)
    async with open_ledger(dsn) as ledger, StripeSink(stripe) as sink:
        clock = SystemClock()
        book = CatalogueBook(ledger, clock)
        await book.refresh()
        return await MeterWatch(book, ledger.catalogue, sink, clock, livemode=False).look()


def found(world: World) -> dict[str, Any]:
    document = world.cli.json("findings_list", "findings", "list")
    return {each["kind"]: each for each in document["findings"]}


def test_a_wrong_meter_is_named_until_it_is_right_and_an_outage_says_nothing(world: World) -> None:
    stripe_url = world.pipeline.stripe_url
    make_meter(stripe_url, "exports", "last")
    assert world.pipeline.ask(look(world, stripe_url))
    status = world.cli.json("status", "status")
    (remark,) = status["remarks"]
    assert remark["severity"] == "critical"
    assert remark["command"] == "tailrace doctor meter-formula"
    assert remark["text"].startswith("meter exports at Stripe: formula is last, not sum; ")
    assert [(m["event_name"], m["kind"]) for m in status["meters"]] == [("exports", "formula")]
    assert found(world)["meter_formula"]["about"] == "exports"
    assert world.cli("findings", "list").code == 1

    assert not world.pipeline.ask(look(world, "http://127.0.0.1:1"))
    assert found(world).keys() == {"meter_formula"}
    make_meter(stripe_url, "exports", "sum")
    assert world.pipeline.ask(look(world, stripe_url))
    assert found(world) == {}
    assert world.cli("findings", "list").code == 0
    assert world.cli.json("status", "status")["remarks"] == []


def test_a_series_goes_on_once_somebody_says_how_its_contradiction_was_settled(
    world: World,
) -> None:
    world.cli("customers", "map", "acme", "cus_acme")
    # Nothing is cut of it before the end of its window.
    world.pipeline.outage = NotSent("ClientConnectorError")
    world.record("acme", new_key())
    levels = "SELECT count(*) FROM ledger.level"
    until("the level", lambda: world.value(world.ledger, levels) == 1, deadline_s=20)
    with world.ledger.connect() as conn:
        conn.execute(HOLD)
    (number,) = (each["finding"] for each in found(world).values())
    shown = world.cli("findings", "list")
    assert "acme api_calls" in shown.out
    assert "findings clear FINDING" in shown.err
    held = "SELECT held FROM ledger.level"

    command = ("findings", "clear", str(number))
    unsaid = world.cli(*command)
    assert (
        unsaid.code,
        f'`tailrace findings clear {number} --reason "…" --yes`' in unsaid.err,
    ) == (2, True)
    plan = world.cli(*command, "--reason", "compared with the topic")
    assert plan.code == 2
    assert f"plan: clear finding {number}, level_differs of acme api_calls" in plan.err
    assert "the series is billed again" in plan.err
    assert (world.value(world.ledger, held), logged(world, "--action", "clear_finding")) == (
        True,
        [],
    )
    done = world.cli(*command, "--reason", "compared with the topic", "--yes")
    assert done.code == 0, done.err
    assert done.out.startswith(f"cleared finding {number} by login_ledger_service_ledger_finance")
    assert world.value(world.ledger, held) is False
    again = world.cli(*command, "--reason", "once more", "--yes")
    assert (again.code, again.out.startswith("unchanged: cleared already, finding")) == (0, True)
    assert "compared with the topic (receipt " in again.out
    (row,) = logged(world, "--action", "clear_finding")
    assert (row["subject"], row["why"]) == (str(number), "compared with the topic")
    assert found(world) == {}
    unknown = world.cli("findings", "clear", "999", "--reason", "x", "--yes")
    assert (unknown.code, "there is no finding 999" in unknown.err) == (2, True)
