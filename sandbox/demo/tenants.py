"""Three tenants that place orders and record their usage in the very same transactions.

What each of them does is decided by a seed, and what must come of it is written down beside, by
code that knows nothing of the product: the demo's proof compares against this.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final, Literal

import psycopg

CUSTOMERS: Final = {"acme": "cus_acme", "globex": "cus_globex", "initech": "cus_initech"}
METERS: Final = (("api_calls", 0, 5), ("storage_gb", 3, 3), ("exports", 0, 2))
"""Name, scale, and how often a tenant uses it."""

Fate = Literal["commit", "twice", "rollback", "conflict", "late"]
_FATES: Final[tuple[Fate, ...]] = ("commit", "twice", "rollback")


@dataclass(frozen=True, slots=True)
class Use:
    """One recorded use as the service sees it; `units` are thousandths for storage."""

    tenant: str
    metric: str
    key: str
    quantity: str
    units: int
    occurred_at: datetime
    fate: Fate


@dataclass(slots=True)
class Expected:
    """What has to come out, counted while writing."""

    recorded: int = 0
    billed: int = 0
    review: int = 0
    duplicates: int = 0
    rolled_back: int = 0
    units: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    events: Counter[str] = field(default_factory=Counter)

    def note(self, use: Use) -> None:
        """One use and its fate."""
        if use.fate == "rollback":
            self.rolled_back += 1
            return
        self.recorded += 1
        if use.fate == "late":
            self.review += 1
            return
        self.billed += 1
        self.units[CUSTOMERS[use.tenant], use.metric] += use.units
        if use.fate == "twice":
            self.duplicates += 1
        if use.fate == "conflict":
            # The second recording is a row of its own that a person decides on.
            self.recorded += 1
            self.review += 1


def uses(seed: int, phase: str, count: int, now: datetime) -> list[Use]:
    """The uses of one phase, all in windows that are over, so that they are due at once."""
    random = Random(seed)  # noqa: S311 - a story, repeatable by its seed
    names = [name for name, _, weight in METERS for _ in range(weight)]
    scales = {name: scale for name, scale, _ in METERS}
    written = []
    for number in range(count):
        tenant, metric = random.choice(list(CUSTOMERS)), random.choice(names)
        thousandths = random.randrange(1, 9_000)
        scale = scales[metric]
        units = thousandths if scale else random.randrange(1, 50)
        quantity = f"{units // 1000}.{units % 1000:03d}" if scale else str(units)
        ago = timedelta(minutes=random.randrange(90, 600), microseconds=random.randrange(10**6))
        fate = random.choices(_FATES, weights=(86, 8, 6))[0]
        use = Use(tenant, metric, f"{phase}-{number}", quantity, units, now - ago, fate)
        written.append(use)
    return written


def special_uses(now: datetime) -> list[Use]:
    """One identity with other content, and one that comes 30 hours late."""
    earlier = now - timedelta(hours=3)
    return [
        Use("acme", "api_calls", "order-conflict", "7", 7, earlier, "conflict"),
        Use("globex", "api_calls", "order-late", "9", 9, now - timedelta(hours=30), "late"),
    ]


def create_orders(connection: psycopg.Connection) -> None:
    """The service's own table; metering only ever rides in its transactions."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS orders "
        "(order_key text, tenant text, placed_at timestamptz DEFAULT now())"
    )
    connection.execute("GRANT INSERT ON orders TO PUBLIC")


def record(connection: psycopg.Connection, use: Use) -> None:
    """One order and its usage, in one transaction; then whatever its fate adds."""
    with connection.transaction(force_rollback=use.fate == "rollback"):
        _order(connection, use, use.quantity)
    if use.fate == "twice":
        with connection.transaction():
            _order(connection, use, use.quantity)
    if use.fate == "conflict":
        with connection.transaction():
            _order(connection, use, str(use.units + 1))


def _order(connection: psycopg.Connection, use: Use, quantity: str) -> None:
    connection.execute(
        "INSERT INTO orders (order_key, tenant) VALUES (%s, %s)", (use.key, use.tenant)
    )
    connection.execute(
        "SELECT metering.record_usage(%s, %s, %s::numeric, %s, %s)",
        (use.tenant, use.metric, quantity, use.key, use.occurred_at.astimezone(UTC)),
    )
