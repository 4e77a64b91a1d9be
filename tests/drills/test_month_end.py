"""A month ends with an hour of grace while Stripe is away: every unit is invoiced, or named.

Usage runs from the service's SQL to the stand-in's invoices: settled before the edge, piled up over
it, sent in the grace, in doubt, and too late. The wall clock of the whole stack is moved on.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
import pytest

from tests.support import witness
from tests.support.books import Use, record
from tests.support.oracle import Verdict
from tests.support.shifted import ShiftedStack, shifted_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(400)]
TENANTS: Final = {"acme": 1, "bolt": 2, "cord": 3}
"""Each uses so many times as much as the first: units of one on another's invoice would show."""
TOGETHER: Final = sum(TENANTS.values())
REASON: Final = ("--yes", "--reason", "drill: the month is over")
METERS: Final = """
[meters.api_calls]
window = "minute"
skew_max = "30m"
close_delay = "2s"
carry = "next-period"
[meters.storage_gb]
window = "hour"
scale = 3
skew_max = "30m"
close_delay = "2s"
[meters.exports]
publish = "event"
skew_max = "30m"
carry = "manual"
"""
"""The sandbox's meters, quick enough for an hour of grace; each carries by another policy."""


def minutes(number: int) -> timedelta:
    return timedelta(minutes=number)


def shares(units: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Units by tenant and metric → per metric those of the first; who differs has its own name."""
    found: dict[str, int] = {}
    for metric in sorted({metric for _, metric in units}):
        parts = {Fraction(units.get((t, metric), 0), often) for t, often in TENANTS.items()}
        one = parts.pop()
        if parts or one.denominator != 1:
            found |= {f"{metric} of {t}": units.get((t, metric), 0) for t in TENANTS}
        else:
            found[metric] = int(one)
    return {metric: number for metric, number in found.items() if number}


def month_before(end: datetime) -> datetime:
    """An anchor from which one of the monthly periods ends then."""
    for back in (1, 2, 3):
        year, month = divmod(end.year * 12 + end.month - 1 - back, 12)
        try:
            return end.replace(year=year, month=month + 1)
        except ValueError:  # that month has no such day, and would end the period earlier
            continue
    raise AssertionError(end)


@dataclass
class Month:
    """A stack about to see the end of its customers' billing period."""

    stack: ShiftedStack
    end: datetime
    meters: Path
    used: Counter[str] = field(default_factory=Counter)

    def use(self, metric: str, units: int, at: timedelta) -> None:
        """Every tenant's usage of that instant, counted from the end, recorded now."""
        with psycopg.connect(self.stack.facts["writer_dsn"], autocommit=True) as service:
            for tenant, often in TENANTS.items():
                key = f"{metric} {at}"
                record(service, Use(tenant, metric, key, units * often, self.end + at))
        self.used[metric] += units * TOGETHER

    def books(self, *columns: str, later: bool = False) -> dict[str, int]:
        """Per metric, these columns of the month's windows, or of those after it."""
        side = ">=" if later else "<"
        with psycopg.connect(self.stack.facts["ledger_owner_dsn"]) as ledger:
            rows = ledger.execute(
                f"SELECT tenant_id, metric, sum({' + '.join(columns)})::bigint FROM ledger.balance"
                f" WHERE window_start {side} %s GROUP BY 1, 2".encode(),
                (self.end,),
            ).fetchall()
        return shares({(tenant, metric): units for tenant, metric, units in rows})

    def recorded(self) -> dict[str, int]:
        """Per metric, what Stripe has of a tenant, whatever it answered."""
        sums: Counter[tuple[str, str]] = Counter()
        for event in self.stack.stand_in.oracle():
            assert event["counted"] == 1, event
            sums[event["customer"][4:], event["event_name"]] += int(event["value"])
        return shares(sums)

    def invoiced(self, *, later: bool = False) -> dict[str, int]:
        """Per metric, what the tenants' invoices of the month have, or those after it."""
        quantities: Counter[tuple[str, str]] = Counter()
        for line in self.stack.stand_in.invoice_lines():
            assert int(line["unbilled"]) == 0, line
            if (line["period_start"] >= self.end.timestamp()) == later:
                assert line["final"] or later, line
                quantities[line["customer"][4:], line["event_name"]] += int(line["quantity"])
        return shares(quantities)

    def document(self, *command: str, code: int = 0) -> dict[str, Any]:
        ran = self.stack.tailrace(*command, "--json")
        assert ran.returncode == code, ran.stdout + ran.stderr
        return msgspec.json.decode(ran.stdout, type=dict[str, Any])

    def done(self, *command: str) -> str:
        ran = self.stack.tailrace(*command)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture
def month(tmp_path: Path) -> Iterator[Month]:
    with shifted_stack(tmp_path / "stack") as stack:
        soon = stack.now + timedelta(hours=4)
        meters = tmp_path / "meters.toml"
        meters.write_text(METERS, encoding="utf-8")
        yield Month(stack, soon.replace(minute=0, second=0, microsecond=0), meters)


def begin(month: Month) -> None:
    """Meters that can make the invoices, and customers whose cycle Stripe tells."""
    stack = month.stack
    for tenant in TENANTS:
        stack.stand_in.subscribe(
            id=f"sub_{tenant}",
            customer=f"cus_{tenant}",
            event_names=["api_calls", "storage_gb", "exports"],
            anchor_s=int(month_before(month.end).timestamp()),
            grace_s=3_600,
        )
    refused = stack.tailrace("customers", "map", "acme", "cus_acme")
    assert refused.returncode == 78, refused.stdout + refused.stderr
    assert "usage could miss its invoices" in refused.stderr
    month.done("meters", "apply", str(month.meters), *REASON)
    stack.move_to(month.end - minutes(40))
    for tenant in TENANTS:
        month.done("customers", "map", tenant, f"cus_{tenant}")
    stack.start_worker("month")


def pile_up_over_the_edge(month: Month) -> None:
    """On time, then waiting for Stripe until the grace has begun, then sent."""
    stack = month.stack
    month.use("api_calls", 100, -minutes(45))
    month.use("exports", 7, -minutes(44))
    until("them to be settled", lambda: month.recorded() == {"api_calls": 100, "exports": 7}, 60)
    month.use("storage_gb", 50, -minutes(43))

    stack.stand_in.arm(kind="outage")
    stack.move_to(month.end - minutes(5))
    month.use("api_calls", 20, -minutes(6))
    stack.move_to(month.end + minutes(15))
    month.use("api_calls", 15, -minutes(5))
    month.use("storage_gb", 5, -minutes(5))
    month.use("exports", 3, -minutes(4))
    waiting = {"api_calls": 35, "storage_gb": 55, "exports": 3}
    until(
        lambda: f"all of it to wait; {month.books('pending', 'ambiguous')} does",
        lambda: month.books("pending", "ambiguous") == waiting,
        60,
    )
    witness.seen("units pending when the month is over", sum(waiting.values()) * TOGETHER)
    unsettled = month.document("deadlines")["unsettled"]
    assert {line["outlook"] for line in unsettled} == {"at risk"}
    stack.stand_in.clear_faults()
    sent = {"api_calls": 135, "storage_gb": 55, "exports": 10}
    until("the backlog to be sent", lambda: month.books("settled") == sent, 90)
    assert month.recorded() == sent


def miss_the_deadline(month: Month) -> None:
    """An answer is lost for ever, Stripe refuses the key, and the last usage comes too late."""
    stack = month.stack
    for tenant in TENANTS:
        match = {"customer": f"cus_{tenant}", "event_name": "exports"}
        stack.stand_in.arm(kind="drop_after", match=match, count=1)
        stack.stand_in.arm(kind="drop_before", match=match)
    month.use("exports", 11, -minutes(3))
    until("its answers to be lost", lambda: month.books("ambiguous") == {"exports": 11}, 60)
    stack.stand_in.arm(kind="401")
    stack.move_to(month.end + minutes(20))
    month.use("api_calls", 40, -minutes(2))
    month.use("storage_gb", 9, -minutes(2))
    month.use("exports", 2, -minutes(1))
    waiting = {"api_calls": 40, "storage_gb": 9, "exports": 2}
    until("the last of it to wait", lambda: month.books("pending") == waiting, 60)

    stack.move_to(month.end + minutes(46))
    month.use("api_calls", 1_000, minutes(44))
    month.use("api_calls", 60, -minutes(10))


def named(month: Month) -> tuple[Counter[Any], Counter[Any]]:
    """What missed its invoice: what waits for a person, and what was decided."""
    listed = month.document("carry", "list")

    def share(line: Mapping[str, Any]) -> tuple[str, str, str]:
        units = Fraction(int(line["units"]), TENANTS[line["tenant_id"]])
        return line["metric"], str(units), line["policy"]

    return Counter(map(share, listed["waiting"])), Counter(map(share, listed["decided"]))


def items(month: Month) -> dict[str, list[int]]:
    """Items that a person decides on, by reason."""
    found: dict[str, list[int]] = {}
    with psycopg.connect(month.stack.facts["ledger_owner_dsn"]) as ledger:
        for reason, item in ledger.execute(
            "SELECT reason, parked_id FROM ledger.parked WHERE state = 'open' ORDER BY parked_id"
        ):
            found.setdefault(reason, []).append(item)
    return found


def decide(month: Month) -> None:
    """What was due before its invoice was closed and was not sent is decided by its meter."""
    each = len(TENANTS)
    expected = (
        Counter({("storage_gb", "9", "review"): each, ("exports", "2", "manual"): each}),
        Counter({("api_calls", "40", "next-period"): each}),
    )
    until(lambda: f"everything to be named; {named(month)}", lambda: named(month) == expected, 60)
    missed = month.document("deadlines", code=1)
    assert {line["outlook"] for line in missed["unsettled"]} <= {"missed", "on time"}
    until("the late usage to be in review", lambda: len(items(month).get("late", [])) == each, 60)
    parked = items(month)
    assert {reason: len(found) for reason, found in parked.items()} == {
        "past_deadline": each, "ambiguous": each, "late": each,
    }  # fmt: skip
    assert month.books("ambiguous") == {"exports": 11}
    witness.seen("amounts past their invoice", expected[0].total() + expected[1].total())

    month.stack.move_to(month.end + minutes(120))
    month.stack.stand_in.clear_faults()
    month.done("review", "approve", *map(str, parked["past_deadline"]), *REASON)
    month.done("review", "approve", *map(str, parked["late"]), "--into", "carry", *REASON)
    month.done("carry", "apply", "--metric", "exports", "--elsewhere", "ii_1", *REASON)


@pytest.mark.drill(name="month-end")
def test_a_month_ends_with_an_hour_of_grace(month: Month) -> None:
    begin(month)
    pile_up_over_the_edge(month)
    miss_the_deadline(month)
    decide(month)
    carried = {"api_calls": 1_000 + 40 + 60, "storage_gb": 9}
    until(
        lambda: f"what was carried to be settled; {month.books('settled', later=True)} is",
        lambda: month.books("settled", later=True) == carried,
        60,
    )

    # The invoice has what is settled; what is in doubt is shown as such, and is there as it were.
    assert month.invoiced() == {"api_calls": 135, "storage_gb": 55, "exports": 21}
    assert month.books("settled") == {"api_calls": 135, "storage_gb": 55, "exports": 10}
    assert month.books("ambiguous") == {"exports": 11}
    assert month.invoiced(later=True) == carried
    for later in (False, True):
        assert month.books("pending", "held", "dead", later=later) == {}
    assert month.books("ambiguous", later=True) == {}
    # Every unit that was used is on one of the invoices, or was billed elsewhere by name.
    both = Counter(month.invoiced()) + Counter(carried) + Counter({"exports": 2})
    billed = Counter({metric: units * TOGETHER for metric, units in both.items()})
    assert billed == month.used
    lost, double = (month.used - billed).total(), (billed - month.used).total()
    compared = (f"{month.used.total()} units used", f"{billed.total()} units on invoices")
    witness.judged(month, Verdict(lost=lost, double=double, compared=compared))
    assert month.done("audit").rstrip().endswith("lost 0 · double 0")

    there = month.recorded()
    month.stack.settle_by_sums()
    assert month.books("settled") == month.invoiced()
    assert month.books("ambiguous") == {}
    assert month.recorded() == there, "nothing was sent for it"
