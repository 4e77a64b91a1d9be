"""What has to come out of a test's usage, by arithmetic of its own, against the three books.

Nothing of the product is asked here: windows are cut by hand, amounts are Python ints, the books
are read by SQL and from the stand-in's oracle.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Literal

import psycopg

from tests.support.live import LiveStack
from tests.support.waiting import until

Fate = Literal["once", "twice", "rollback", "conflict", "late"]
WINDOW_S = {"api_calls": 60, "storage_gb": 3600, "exports": 3600}
SCALE = {"api_calls": 0, "storage_gb": 3, "exports": 0}


@dataclass(frozen=True, slots=True)
class Use:
    tenant: str
    metric: str
    key: str
    units: int
    occurred_at: datetime
    fate: Fate = "once"

    @property
    def quantity(self) -> str:
        scale = SCALE[self.metric]
        return str(self.units) if not scale else f"{self.units // 1000}.{self.units % 1000:03d}"

    @property
    def window(self) -> tuple[str, str, int]:
        at_s = int(self.occurred_at.timestamp())
        return self.tenant, self.metric, at_s - at_s % WINDOW_S[self.metric]


@dataclass(slots=True)
class Books:
    """The expected content of all books, for tenants that belong to one test alone."""

    tenants: set[str] = field(default_factory=set)
    mapped: set[str] = field(default_factory=set)
    windows: dict[tuple[str, str, int], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0])
    )
    review: Counter[str] = field(default_factory=Counter)
    identities: int = 0
    conflicts: int = 0

    def note(self, use: Use) -> None:
        self.tenants.add(use.tenant)
        if use.fate == "rollback":
            return
        self.identities += 1
        if use.fate == "late":
            self.review["late"] += 1
            return
        window = self.windows[use.window]
        window[0] += 1
        window[1] += use.units
        if use.fate == "conflict":
            self.conflicts += 1
            self.review["conflict"] += 1

    @property
    def events(self) -> int:
        return sum(count for count, _ in self.windows.values())

    @property
    def sums(self) -> dict[tuple[str, str], int]:
        totals: Counter[tuple[str, str]] = Counter()
        for (tenant, metric, _), (_, units) in self.windows.items():
            totals[f"cus_{tenant}", metric] += units
        return dict(totals)


def record(connection: psycopg.Connection, use: Use) -> None:
    """One use in its own transaction, and what its fate adds."""
    with connection.transaction(force_rollback=use.fate == "rollback"):
        _call(connection, use, use.quantity)
    if use.fate == "twice":
        _call(connection, use, use.quantity)
    if use.fate == "conflict":
        _call(connection, use, str(use.units + 1))


def _call(connection: psycopg.Connection, use: Use, quantity: str) -> None:
    connection.execute(
        "SELECT metering.record_usage(%s, %s, %s::numeric, %s, %s)",
        (use.tenant, use.metric, quantity, use.key, use.occurred_at),
    )


def scattered(name: str, count: int, *, tenants: int = 12, seed: int = 1) -> Iterator[Use]:
    """Uses in windows that are over: doubles, rollbacks, conflicts and late ones among them."""
    random = Random(seed)
    now = datetime.now(UTC)  # noqa: TID251 - the services of a test live now
    fates: tuple[Fate, ...] = ("once", "twice", "rollback", "conflict", "late")
    for number in range(count):
        fate = random.choices(fates, weights=(84, 8, 5, 1, 2))[0]
        ago = timedelta(hours=30) if fate == "late" else timedelta(seconds=0)
        yield Use(
            tenant=f"{name}-{random.randrange(tenants)}",
            metric=random.choice(("api_calls", "api_calls", "storage_gb", "exports")),
            key=f"{name}-{number}",
            units=random.randrange(1, 2_000),
            occurred_at=now - ago - timedelta(seconds=random.randrange(7_200, 20_000)),
            fate=fate,
        )


def write(stack: LiveStack, uses: Iterable[Use], books: Books) -> None:
    """Records uses as the service does, notes them, and maps the customers that are new."""
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        for use in uses:
            record(service, use)
            books.note(use)
    map_customers(stack, books)


def ledger_number(stack: LiveStack, statement: str, *values: object) -> int:
    """The one number that a statement gives on the ledger, asked by its owner."""
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        row = ledger.execute(statement.encode(), values).fetchone()
    assert row is not None
    return int(row[0])


def map_customers(stack: LiveStack, books: Books) -> None:
    """Every tenant of the test pays through a customer of its own."""
    with psycopg.connect(stack.facts["ledger_dsn"], autocommit=True) as ledger:
        for tenant in sorted(books.tenants - books.mapped):
            books.mapped.add(tenant)
            ledger.execute(
                "SELECT ledger.map_customer_v1(%s, %s, NULL, NULL, NULL, NULL, 'test')",
                (tenant, f"cus_{tenant}"),
            )


def settled(stack: LiveStack, books: Books) -> bool:
    """Whether everything expected is admitted and nothing of it waits."""
    events, open_units, parked = _progress(stack, books)
    return events >= books.events and open_units == 0 and parked >= sum(books.review.values())


def pending(stack: LiveStack, books: Books) -> int:
    """Units of the test that the ledger has and Stripe has not."""
    return _progress(stack, books)[1]


def _progress(stack: LiveStack, books: Books) -> tuple[int, int, int]:
    tenants = sorted(books.tenants)
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        balance = ledger.execute(
            "SELECT coalesce(sum(events), 0), coalesce(sum(pending + ambiguous + held), 0)"
            " FROM ledger.balance WHERE tenant_id = ANY(%s)",
            (tenants,),
        ).fetchone()
        parked = ledger.execute(
            "SELECT count(*) FROM ledger.parked WHERE tenant_id = ANY(%s)", (tenants,)
        ).fetchone()
    assert balance is not None
    assert parked is not None
    return int(balance[0]), int(balance[1]), int(parked[0])


def await_settled(stack: LiveStack, books: Books, deadline_s: float = 90) -> None:
    until(
        lambda: f"settled; now {_progress(stack, books)} of {books.events} events",
        lambda: settled(stack, books),
        deadline_s,
    )


def assert_exact(stack: LiveStack, books: Books, *, doubted: int = 0) -> None:
    """Registry = ledger = Stripe = what was expected, per tenant, metric and window.

    Args:
        stack: where it all happened.
        books: what was expected.
        doubted: meter events that were parked as ambiguous on the way, and settled since.
    """
    tenants = sorted(books.tenants)
    with psycopg.connect(stack.facts["postgres_dsn"]) as service:
        registry = service.execute(
            "SELECT (SELECT count(*) FROM metering.usage_key WHERE tenant_id = ANY(%s)),"
            " (SELECT count(*) FROM metering.usage_conflict WHERE tenant_id = ANY(%s))",
            (tenants, tenants),
        ).fetchone()
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        rows = ledger.execute(
            "SELECT tenant_id, metric, extract(epoch FROM window_start)::bigint, events, total,"
            " settled, pending, held, dead, ambiguous FROM ledger.balance"
            " WHERE tenant_id = ANY(%s)",
            (tenants,),
        ).fetchall()
        parked = ledger.execute(
            "SELECT reason, count(*) FROM ledger.parked WHERE tenant_id = ANY(%s) GROUP BY 1",
            (tenants,),
        ).fetchall()
    assert registry == (books.identities, books.conflicts)
    expected = {w: (count, units) for w, (count, units) in books.windows.items()}
    ledger_has = {(r[0], r[1], r[2]): (int(r[3]), int(r[4])) for r in rows}
    assert ledger_has == expected
    assert {(r[0], r[1], r[2]): int(r[5]) for r in rows} == {
        window: units for window, (_, units) in expected.items()
    }
    assert sum(int(value) for r in rows for value in r[6:]) == 0
    assert dict(parked) == dict(books.review) | ({"ambiguous": doubted} if doubted else {})
    assert _stripe(stack, {f"cus_{t}" for t in tenants}) == books.sums


def _stripe(stack: LiveStack, customers: set[str]) -> dict[tuple[str, str], int]:
    sums: Counter[tuple[str, str]] = Counter()
    for event in stack.stand_in.oracle():
        if event["customer"] in customers:
            assert event["counted"] == 1, f"counted {event['counted']} times: {event}"
            sums[event["customer"], event["event_name"]] += int(event["value"])
    return dict(sums)
