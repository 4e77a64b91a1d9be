"""A month ends with an hour of grace: what is invoiced, carried, and in doubt, to the unit.

Ledger and stand-in run on a shifted clock: usage arrives before the end, in the grace, and after.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox import clock
from sandbox.paths import Paths
from sandbox.stripe_sandbox.fact import Subscription
from sandbox.stripe_sandbox.faults import FaultSpec, Match
from sandbox.stripe_sandbox.invoices import Line, lines
from sandbox.stripe_sandbox.service import Service, ServiceSettings
from streams.adapters.clock import SystemClock
from streams.adapters.ledger import open_ledger
from streams.adapters.stripe import StripeSettings, StripeSink
from streams.agents.overdue import OverduePass
from streams.agents.publish import Lent, Publisher
from streams.agents.publish_limits import PublishLimits
from streams.core.billing import CarryPass
from streams.core.catalogue import Carry
from streams.core.fact import EventFact, Series
from streams.core.instant import MINUTE_US, SECOND_US, to_us
from streams.core.window import assign
from tests.integration.ledger.world import EVENTWISE, WINDOWED, World, event_id
from tests.support.postgres import PostgresServer, running_server

pytestmark = pytest.mark.postgres

METERS: dict[str, Carry] = {"calls": "next-period", "files": "review", "runs": "manual"}
"""Carry policies; `runs` publishes event by event."""
NOVEMBER, DECEMBER, JANUARY = "2026-11-01", "2026-12-01", "2027-01-02T00:00:30"


def us(text: str) -> int:
    return to_us(datetime.fromisoformat(text).replace(tzinfo=UTC))


@dataclass
class Clocks:
    """The clock of the ledger's server and of the stand-in: one offset."""

    file: Path
    server: PostgresServer
    real: SystemClock = field(default_factory=SystemClock)

    def move(self, to: str) -> None:
        """Never to the edge of a minute: what a window gets in its first second waits for it."""
        assert us(to) % MINUTE_US >= SECOND_US * 2, to
        clock.set_offset(self.file, (us(to) - self.real.now_us()) // SECOND_US)

    def now_us(self) -> int:
        return self.real.now_us() + (clock.read_offset(self.file) or 0) * SECOND_US


@pytest.fixture(scope="module")
def clocks() -> Iterator[Clocks]:
    root = Path(tempfile.mkdtemp(prefix="tailrace-clock-"))
    # The database runs under another account where root started it.
    root.chmod(0o755)
    try:
        paths = Paths(root)
        with running_server(clock.environment(paths)) as server:
            yield Clocks(paths.clock, server)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@dataclass
class Month:
    """A ledger, its publisher and the stand-in at a month's end."""

    clocks: Clocks
    world: World
    stripe: Service
    publisher: Publisher
    overdue: OverduePass
    used: int = 0

    async def use(self, metric: str, units: int, at: str) -> None:
        """Usage that occurred at an instant and is told to the ledger now."""
        self.used += 1
        start_us, end_us = assign(us(at), MINUTE_US)
        series = Series("acme", metric, 1, start_us, end_us, 0)
        if metric == "runs":
            name = f"run-{self.used}"
            event = EventFact(event_id(name), self.used, series, us(at), units, self.used)
            await self.world.tell(events=(event,))
        else:
            count, total = self._known(series)
            level = self.world.level(series, count + 1, total + units)
            await self.world.tell(levels=(level,))

    def _known(self, series: Series) -> tuple[int, int]:
        rows = self.world.rows(
            "SELECT count, total FROM ledger.level WHERE metric = %s AND window_start ="
            " ledger.at(%s)", series.metric, series.window_start_us,
        )  # fmt: skip
        return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)

    async def work(self) -> None:
        """What a worker does until nothing is due: publish, look at closed invoices."""
        lent: list[Lent] = []

        async def put(one: Lent) -> None:
            lent.append(one)

        moved = True
        while moved:
            before = replace(self.overdue.figures)
            claimed = await self.publisher.look(put)
            while lent:
                await self.publisher.publish(lent.pop())
            await self.overdue.look()
            self.world.check()
            moved = claimed > 0 or self.overdue.figures != before

    def invoice(self, month: str) -> dict[str, Line]:
        """Final lines of the invoice whose period begins then."""
        self.clocks.move(JANUARY)
        state = self.stripe.engine.state
        (subscription,) = state.subscriptions.values()
        found = list(lines(state, subscription, self.clocks.now_us()))
        return {
            line.event_name: line for line in found if line.period.start_s * SECOND_US == us(month)
        }

    def books(self, month: str, *columns: str) -> dict[str, int]:
        """Per metric, the sum of these columns over the windows of a month."""
        rows = self.world.rows(
            f"SELECT metric, sum({' + '.join(columns)}) FROM ledger.balance"
            " WHERE date_trunc('month', window_start) = %s GROUP BY 1", month,
        )  # fmt: skip
        return {metric: int(units) for metric, units in rows if units}


@pytest.fixture
async def begin(clocks: Clocks, tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Begins a month's end; `cycle` is how the tenant's billing cycle is mapped."""
    clocks.move("2026-11-30T23:30:30")
    database = clocks.server.create("ledger")
    async with AsyncExitStack() as stack:

        async def start(**cycle: Any) -> Month:
            ledger = await stack.enter_async_context(
                open_ledger(database.dsn(database.login("ledger_service")))
            )
            versions = [
                (EVENTWISE if name == "runs" else WINDOWED)._replace(
                    metric=name, event_name=name, carry=policy
                )
                for name, policy in METERS.items()
            ]
            await ledger.catalogue.append_meters(versions, "tests")
            world = World(
                database, ledger, stack.enter_context(database.connect()), clocks.now_us()
            )
            await world.map(**cycle)
            stripe = Service(ServiceSettings(tmp_path / "stripe"), clocks.now_us)
            stripe.create_meters(list(METERS))
            anchor_s = us(NOVEMBER) // SECOND_US
            stripe.engine.remember([Subscription("sub_1", "cus_1", list(METERS), anchor_s)])
            await stripe.start()
            stack.push_async_callback(stripe.stop)
            sink = StripeSink(StripeSettings("sk_test_sandbox", stripe.url))
            await stack.enter_async_context(sink)
            limits = PublishLimits("worker", 8, 60, 5, 1_000)
            publisher = Publisher(ledger, sink, SystemClock(), limits, random.Random(7).random)
            return Month(clocks, world, stripe, publisher, OverduePass(ledger.carry))

        yield start
    clocks.server.drop(database)


async def tell_the_story(month: Month) -> None:
    """Usage of November, each time later; one answer is lost for ever."""
    await month.use("calls", 100, "2026-11-30T23:20:10")
    await month.use("files", 50, "2026-11-30T23:21:10")
    await month.use("runs", 7, "2026-11-30T23:22:10")
    await month.work()

    month.clocks.move("2026-12-01T00:20:30")  # in the grace, and on time
    await month.use("calls", 20, "2026-11-30T23:50:10")
    await month.use("runs", 3, "2026-11-30T23:51:10")
    await month.work()
    # Executed, but no answer comes: neither to the request nor to any repetition of it.
    month.stripe.api.faults.arm(FaultSpec("drop_after", Match(event_name="runs"), count=1))
    month.stripe.api.faults.arm(FaultSpec("drop_before", Match(event_name="runs")))
    await month.use("runs", 11, "2026-11-30T23:52:10")
    await month.work()

    month.clocks.move("2026-12-01T00:46:30")  # past the deadline, before the invoice is final
    await month.use("calls", 40, "2026-11-30T23:53:10")
    await month.use("files", 9, "2026-11-30T23:54:10")
    await month.use("runs", 2, "2026-11-30T23:55:10")
    await month.use("calls", 1_000, "2026-12-01T00:44:10")
    await month.work()

    month.clocks.move("2026-12-01T02:00:30")  # the invoice is final
    month.stripe.api.faults.clear()
    await month.use("calls", 60, "2026-11-30T23:53:20")
    await month.use("calls", 80, "2026-11-30T23:59:59")
    await month.work()


async def test_what_is_invoiced_is_what_the_ledger_settled_and_the_rest_is_named(
    begin: Callable[..., Any],
) -> None:
    month = await begin(anchor_us=us(NOVEMBER), billing_interval="month")
    await tell_the_story(month)
    world = month.world

    # Nothing was guessed: what a person must decide waits under its name.
    assert world.rows("SELECT metric, delta, policy FROM ledger.overdue ORDER BY 1") == [
        ("files", 9, "review"),
        ("runs", 2, "manual"),
    ]
    assert world.rows("SELECT kind, reason, metric, units FROM ledger.parked ORDER BY 1") == [
        ("dead", "ambiguous", "runs", 11),
        ("review", "past_deadline", "files", 9),
    ]
    with world.database.connect(world.database.login("ledger_finance")) as person:
        for call in (
            "ledger.approve((SELECT parked_id FROM ledger.parked WHERE kind = 'review'), 'agreed')",
            "ledger.carry_entry((SELECT entry_id FROM ledger.overdue WHERE metric = 'runs'),"
            " 'an item of its own', elsewhere => 'ii_1')",
        ):
            person.execute(f"SELECT {call}".encode())
    await month.work()

    november, december = month.invoice(NOVEMBER), month.invoice(DECEMBER)
    assert all(line.unbilled == 0 for line in (*november.values(), *december.values()))
    invoiced = {name: int(line.quantity) for name, line in november.items()}
    assert invoiced == {"calls": 120, "files": 50, "runs": 21}
    # The invoice has what is settled; what is in doubt is shown as such, and is there as it were.
    assert month.books(NOVEMBER, "settled") == {"calls": 120, "files": 50, "runs": 10}
    assert month.books(NOVEMBER, "ambiguous") == {"runs": 11}
    assert month.books(NOVEMBER, "pending", "held", "dead") == {}
    assert {name: int(line.quantity) for name, line in december.items()} == {
        "calls": 1_180,
        "files": 9,
    }
    assert month.books(DECEMBER, "settled") == {"calls": 1_180, "files": 9}
    # Every unit that was used is on an invoice, billed elsewhere, or in doubt with its evidence.
    everywhere = (120 + 50 + 21) + (1_180 + 9) + 2
    assert world.value("SELECT sum(total) FROM ledger.balance") == everywhere == 1_382
    assert world.value("SELECT reference FROM ledger.carry WHERE in_entry_id IS NULL") == "ii_1"
    attempts = world.value("SELECT detail -> 'attempts' FROM ledger.parked WHERE kind = 'dead'")
    assert {attempt["outcome"] for attempt in attempts} == {"Ambiguous"}


async def test_a_second_telling_changes_nothing(begin: Callable[..., Any]) -> None:
    """The same facts again after the month is over: no amount moves."""
    month = await begin(anchor_us=us(NOVEMBER), billing_interval="month")
    await tell_the_story(month)
    world = month.world
    before = world.rows("SELECT * FROM ledger.balance ORDER BY metric, window_start")
    levels = world.rows(
        "SELECT metric, ledger.us(window_start), count, total::bigint FROM ledger.level"
    )
    for metric, start_us, count, total in levels:
        series = Series("acme", metric, 1, start_us, start_us + MINUTE_US, 0)
        await world.tell(levels=(world.level(series, count, total),))
    for _ in range(2):
        await month.work()

    assert world.rows("SELECT * FROM ledger.balance ORDER BY metric, window_start") == before


async def test_without_a_deadline_the_same_month_ends_with_usage_on_no_invoice(
    begin: Callable[..., Any],
) -> None:
    """The planted bug: the check above would find it, and the books alone would not."""
    month = await begin()
    await tell_the_story(month)

    november = month.invoice(NOVEMBER)

    assert int(november["calls"].unbilled) == 60 + 80
    assert month.books(NOVEMBER, "settled")["calls"] == 300


async def test_the_period_that_ends_a_short_month_began_on_the_31st(
    begin: Callable[..., Any],
) -> None:
    month = await begin(anchor_us=us("2026-10-31T23:45:00"), billing_interval="month")
    await month.use("calls", 9, "2026-10-31T12:00:10")
    series = Series("acme", "calls", 1, *assign(us("2026-10-31T12:00:10"), MINUTE_US), 0)
    await month.world.tell(corrections=(month.world.correction("back", -5, series),))
    await month.world.ledger.cut_entries(100)
    assert await month.world.ledger.carry.carry_overdue(100) == CarryPass(2, 0, 0)
