"""What has to come out of a test's usage, by arithmetic of its own, against the three books.

Nothing of the product is asked here: windows are cut by hand, amounts are Python ints, the books
are read by SQL and from the stand-in's oracle.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Literal

import psycopg

from tests.support import witness
from tests.support.book_reading import findings, ledger_number, read
from tests.support.live import LiveStack
from tests.support.oracle import Amount, Expected, Key, Verdict, Window, compare
from tests.support.waiting import until
from tests.support.witness import Progress

Fate = Literal["once", "twice", "rollback", "conflict", "late", "malformed"]
PARKED: tuple[Fate, ...] = ("conflict", "late", "malformed")
"""Fates that wait for a person under that reason; but for a conflict nothing of them counts."""
WINDOW_S = {"api_calls": 60, "storage_gb": 3600, "exports": 3600}
SCALE = {"api_calls": 0, "storage_gb": 3, "exports": 0, "teapots": 0}
"""Teapots are no meter: what is recorded of them is nobody's amount."""


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
    def counts(self) -> bool:
        """Whether it is an amount without anybody's decision."""
        return self.fate == "conflict" or self.fate not in PARKED

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
    uses: dict[Key, Use] = field(default_factory=dict)

    def note(self, use: Use) -> None:
        self.tenants.add(use.tenant)
        if use.fate == "rollback":
            return
        self.uses[use.tenant, use.key] = use
        if use.fate in PARKED:
            self.review[use.fate] += 1
        if use.counts:
            window = self.windows[use.window]
            window[0] += 1
            window[1] += use.units

    @property
    def events(self) -> int:
        return sum(count for count, _ in self.windows.values())

    def expected(self, decided: Mapping[str, int]) -> Expected:
        """For the oracle; `decided` are dead letters on the way, per reason."""
        uses = self.uses
        parked = Counter((u.tenant, str(u.fate)) for u in uses.values() if u.fate in PARKED)
        adds: dict[Key, tuple[Window, Amount] | None] = {
            key: (use.window, Amount(1, use.units)) if use.counts else None
            for key, use in uses.items()
        }
        conflicts = Counter(tenant for tenant, fate in parked.elements() if fate == "conflict")
        return Expected(adds, conflicts, parked, decided)


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


def scattered(
    name: str, count: int, *, tenants: int = 12, seed: int = 1, now: datetime | None = None
) -> Iterator[Use]:
    """Uses in windows that are over: doubles, rollbacks, conflicts and late ones among them.

    Args:
        name: what tenants and keys begin with.
        count: how many uses.
        tenants: of so many tenants.
        seed: of everything that is chosen.
        now: the services' time, where it is not the machine's.
    """
    witness.seeded(name, seed)
    random = Random(seed)
    if now is None:
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
    known = len(books.uses)
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        for use in uses:
            record(service, use)
            books.note(use)
    map_customers(stack, books)
    witness.did(f"the service recorded usage under {len(books.uses) - known} identities")
    _progress(stack, books)


def map_customers(stack: LiveStack, books: Books) -> None:
    """Every tenant of the test pays through a customer of its own."""
    with psycopg.connect(stack.facts["ledger_dsn"], autocommit=True) as ledger:
        for tenant in sorted(books.tenants - books.mapped):
            books.mapped.add(tenant)
            owner = stack.owners.setdefault(tenant, books)
            assert owner is books, f"tenant {tenant} is another test's: give this one other names"
            ledger.execute(
                "SELECT ledger.map_customer_v1(%s, %s, NULL, NULL, NULL, NULL, 'test')",
                (tenant, f"cus_{tenant}"),
            )


def settled(stack: LiveStack, books: Books) -> bool:
    """Whether everything expected is admitted and nothing of it waits."""
    seen = _progress(stack, books)
    at_least = sum(books.review.values())
    return seen.events >= books.events and seen.waiting == 0 and seen.parked >= at_least


def pending(stack: LiveStack, books: Books) -> int:
    """Units of the test that the ledger has and Stripe has not."""
    return _progress(stack, books).waiting


def windows_pending(stack: LiveStack, books: Books) -> int:
    """Billing windows of the test whose usage is not, or not for certain, at Stripe."""
    text = (
        "SELECT count(*) FROM ledger.balance WHERE tenant_id = ANY(%s) AND pending + ambiguous <> 0"
    )
    return ledger_number(stack, text, sorted(books.tenants))


def show_pending(stack: LiveStack, books: Books) -> int:
    """Counts, for the report, what the fault keeps from Stripe, before anything is healed.

    Raises:
        AssertionError: nothing is kept: the fault has passed by.
    """
    units = _progress(stack, books).pending
    witness.seen("units pending", units)
    return units


def _progress(stack: LiveStack, books: Books) -> Progress:
    tenants = sorted(books.tenants)
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        balance = ledger.execute(
            "SELECT coalesce(sum(events), 0), coalesce(sum(pending + ambiguous + held), 0),"
            " coalesce(sum(settled), 0) FROM ledger.balance WHERE tenant_id = ANY(%s)",
            (tenants,),
        ).fetchone()
        parked = ledger.execute(
            "SELECT count(*) FROM ledger.parked WHERE tenant_id = ANY(%s)", (tenants,)
        ).fetchone()
    assert balance is not None
    assert parked is not None
    seen = Progress(
        expected_events=books.events,
        expected_units=sum(units for _, units in books.windows.values()),
        events=int(balance[0]),
        waiting=int(balance[1]),
        settled=int(balance[2]),
        parked=int(parked[0]),
    )
    witness.saw(seen, books, lambda: judge(stack, books))
    return seen


def await_settled(stack: LiveStack, books: Books, deadline_s: float = 90) -> None:
    until(lambda: f"settled; {_progress(stack, books)}", lambda: settled(stack, books), deadline_s)


def assert_exact(
    stack: LiveStack,
    books: Books,
    *,
    doubted: int = 0,
    redriven: int = 0,
    exhausted: int = 0,
    by_hour: bool = True,
    noted: Mapping[str, int] | None = None,
) -> None:
    """Registry = ledger = Stripe = what was expected, per tenant, metric and window.

    Args:
        stack: where it all happened.
        books: what was expected.
        doubted: meter events that were parked as ambiguous on the way, and settled since.
        redriven: the same, refused and redriven. What Stripe took back without naming it need not
            be at Stripe then, as long as the ledger lists it as doubt.
        exhausted: meter events that used up their attempts, and were redriven.
        by_hour: whether Stripe has everything in its own hour; what was carried is not.
        noted: contradictions that the ledger has to have noted, by kind.

    Raises:
        AssertionError: with the figures, and every difference.
    """
    decided = {"ambiguous": doubted, "refused": redriven, "exhausted": exhausted}
    _expect_findings(stack, noted or {})
    verdict = judge(stack, books, decided, by_hour=by_hour)
    assert verdict.exact, "\n".join((str(verdict), *verdict.differences))


def _expect_findings(stack: LiveStack, wanted: Mapping[str, int]) -> None:
    """The ledger has noted so many of each kind; the oracle does not ask about these again."""
    new = [(number, kind) for number, kind, _ in findings(stack) if kind in wanted]
    assert Counter(kind for _, kind in new) == wanted
    stack.expected_findings.update(number for number, _ in new)


def judge(
    stack: LiveStack,
    books: Books,
    decided: Mapping[str, int] | None = None,
    *,
    by_hour: bool = True,
) -> Verdict:
    """The same, as figures; what a drill reports. `decided` are dead letters that were settled.

    Raises:
        AssertionError: nothing was recorded in these books, so nothing can be said of them.
    """
    assert books.uses, "a verdict on books in which nothing was recorded proves nothing"
    dead = {reason: number for reason, number in (decided or {}).items() if number}

    def look() -> Verdict:
        seen = read(stack, books.tenants, redriven=dead.get("refused", 0))
        return compare(books.expected(dead), seen, by_hour=by_hour)

    def still_exact() -> None:
        """Whatever was done to the stack since then has changed nothing of these books."""
        later = look()
        assert later.exact, "\n".join(("judged once more:", str(later), *later.differences))

    verdict = look()
    witness.judged(books, verdict)
    _progress(stack, books)
    stack.judges[id(books)] = still_exact
    return verdict
