"""Four troubles at once on the real stack: page 1 and `status` name all four, and what to type."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from tests.integration.cli.conftest import Cli
from tests.integration.console.conftest import browser_of
from tests.support.book_reading import ledger_number
from tests.support.books import Books, Use, await_settled, write
from tests.support.live import LiveStack
from tests.support.meters import make_meter
from tests.support.runbooks import runbook, words
from tests.support.scraped import exporter, scraped
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
LATE = "SELECT metering.record_usage('trouble-0', 'exports', 1, 'late', now() - interval '30 h')"
PARKED = "SELECT count(*) FROM ledger.parked WHERE kind = %s AND state = 'open'"


def named(stack: LiveStack, name: str, said: str) -> list[tuple[str, str]]:
    """Remarks of that name that say so, each with its command."""
    remarks = Cli(stack.directory).json("status", "status")["remarks"]
    return [(r["text"], r["command"]) for r in remarks if r["name"] == name and said in r["text"]]


def wrong_meter(stack: LiveStack, folder: Path) -> None:
    """A meter that counts events, under a name that the catalogue publishes sums to."""
    make_meter(stack.facts["stripe_url"], "seats", "count")
    file = folder / "meters.toml"
    file.write_text('[meters.seats]\npublish = "event"\n', encoding="utf-8")
    applied = Cli(stack.directory)("meters", "apply", str(file))
    assert applied.code == 0, applied.err


def poison(stack: LiveStack) -> None:
    """A record that says nothing."""
    brokers = {"bootstrap.servers": stack.facts["kafka_bootstrap"]}
    producer = Producer({**brokers, "partitioner": "murmur2_random"})
    producer.produce("usage.events", b"{", b"poison")
    producer.flush(10)


def uses(back: timedelta) -> list[Use]:
    """Usage of several tenants, each with a lane of its own."""
    at = datetime.now(UTC) - back  # noqa: TID251 - a service lives now
    return [Use(f"trouble-{n}", "exports", f"back-{back}", 3, at) for n in range(4)]


def test_page_1_and_status_name_four_troubles_and_what_to_type(
    stack: LiveStack, tmp_path: Path
) -> None:
    dead, late = (ledger_number(stack, PARKED, kind) for kind in ("dead", "review"))
    wrong_meter(stack, tmp_path)
    until("a worker to compare the meters", lambda: bool(named(stack, "meter_wrong", "seats")), 30)
    stack.stand_in.arm(kind="outage")
    books = Books()
    write(stack, uses(timedelta(minutes=3)), books)
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        service.execute(LATE)
    poison(stack)
    until("the poison to be dead", lambda: ledger_number(stack, PARKED, "dead") > dead, 30)
    until("the late one to wait", lambda: ledger_number(stack, PARKED, "review") > late, 30)
    until("Stripe to count as down", lambda: bool(named(stack, "sink_down", "is down")), 60)

    troubles = {
        ("sink_down", "Stripe is down for "): "tailrace deadlines",
        ("dead", "malformed"): "tailrace dead list",
        ("review", " late of exports wait"): "tailrace review list",
        ("meter_wrong", "seats at Stripe: formula is count"): "tailrace doctor meter-formula",
    }
    found = {(name, said): named(stack, name, said) for name, said in troubles}
    ran = stack.tailrace("status")
    assert ran.returncode == 1
    assert ran.stdout.startswith("money at risk: YES: meter seats at Stripe: formula is count")
    page = browser_of(stack.directory).open("/")
    assert "YES: meter seats at Stripe: formula is count" in page
    for trouble, command in troubles.items():
        assert {typed for _, typed in found[trouble]} == {command}, trouble
        assert f"`{command}`" in ran.stdout
        assert f">{command}</code>" in page
    with exporter(stack.directory) as address:
        samples = scraped(address)
    assert samples["usage_money_at_risk"] == 2
    assert samples['usage_meter_findings{event_name="seats",kind="formula"}'] == 1

    stack.stand_in.clear_faults()
    await_settled(stack, books)
    mend(stack)


def mend(stack: LiveStack) -> None:
    """What the command says, what the runbook says, and the end of it."""
    cli = Cli(stack.directory)
    told = cli("doctor", "meter-formula")
    assert (told.code, "seats: formula is count, not sum" in told.out) == (1, True), told
    for command in runbook("UsageMeterWrong").commands("Look"):
        assert cli(*words(command, {})).code == 1, command
    make_meter(stack.facts["stripe_url"], "seats", "sum")
    assert cli("doctor", "meter-formula").code == 0
    listed = cli.json("findings_list", "findings", "list")["findings"]
    (number,) = (each["finding"] for each in listed if each["about"] == "seats")
    order = ("findings", "clear", str(number), "--reason", "test: made anew", "--yes")
    for said in ("cleared finding", "unchanged: cleared already"):
        cleared = cli(*order)
        assert (cleared.code, cleared.out.startswith(said)) == (0, True), cleared
    assert named(stack, "meter_wrong", "seats") == []
