"""Everything poisonous at once: each ends under its name, with its evidence and the way out.

What is beside it flows on meanwhile. Once a person has done what the commands name, every sum is
exact and nothing waits.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import psycopg
import pytest
from confluent_kafka import Producer

from streams.engine.partitioner import home_partition
from tests.support import witness
from tests.support.book_reading import ledger_number
from tests.support.books import (
    Books,
    Use,
    assert_exact,
    await_settled,
    map_customers,
    record,
    scattered,
    show_pending,
    write,
)
from tests.support.live import LiveStack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(300)]
EVENTS: Final = 240
REASON: Final = ("--yes", "--reason", "drill: it was looked at")
EVIDENCE_BYTES_MAX: Final = 1 << 16
MALFORMED: Final = {
    "JSON null": b"null",
    "wrong types": b'{"v": 1, "type": "usage", "quantity": 3}',
    "64 KiB": b'{"v": 1, "type": "usage", "tenant_id": "' + b"x" * (1 << 16) + b'"}',
}
DEAD: Final = len(MALFORMED) + 2
"""And one that was altered on its way, and one of no meter."""
ALTERED: Final = "the record's fields are not those that were recorded"
HELD: Final = (
    "SELECT coalesce(sum(held), 0)::bigint FROM ledger.balance WHERE tenant_id = 'unmapped'"
)
ADMITTED: Final = "SELECT count(*) FROM ledger.balance WHERE tenant_id = ANY(%s)"


def three_hours_ago() -> datetime:
    return datetime.now(UTC) - timedelta(hours=3)  # noqa: TID251 - a service lives now


def home(stack: LiveStack, tenant: str) -> int:
    return home_partition(tenant.encode(), int(stack.facts["settings"]["TAILRACE_PARTITIONS"]))


def document(stack: LiveStack, *command: str) -> dict[str, Any]:
    ran = stack.tailrace(*command, "--json")
    assert ran.returncode in {0, 1}, ran.stdout + ran.stderr
    return msgspec.json.decode(ran.stdout, type=dict[str, Any])


def done(stack: LiveStack, *command: str) -> str:
    ran = stack.tailrace(*command)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def produce(stack: LiveStack, tenant: str, *values: bytes) -> None:
    """Past the outbox, as only a foreign program does."""
    producer = Producer(
        {"bootstrap.servers": stack.facts["kafka_bootstrap"], "partitioner": "murmur2_random"}
    )
    for value in values:
        producer.produce("usage.events", value, tenant.encode())
    assert producer.flush(10) == 0
    witness.did(f"{len(values)} foreign records under the key {tenant}")


def record_unknown_metric(stack: LiveStack, use: Use) -> None:
    """By a service that was told of a meter which the ledger does not have."""
    with psycopg.connect(stack.facts["postgres_dsn"], autocommit=True) as owner:
        owner.execute("SELECT metering.put_metric('teapots', 0)")
        record(owner, use)
    witness.did("usage of a metric that is no meter is recorded")


def record_too_large(stack: LiveStack, use: Use) -> None:
    """64 KiB of attributes are refused by name, and the same call without them is taken."""
    attributes = json.dumps({"trace": "x" * (1 << 16)})
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="at most 32 KiB") as refused:
            service.execute(
                "SELECT metering.record_usage(%s, %s, %s::numeric, %s, %s, %s::jsonb)",
                (use.tenant, use.metric, use.quantity, use.key, use.occurred_at, attributes),
            )
        assert refused.value.diag.column_name == "attributes"
        record(service, use)
    witness.did("64 KiB of attributes were refused by the call")


def produce_altered(stack: LiveStack, use: Use) -> None:
    """A step on the way makes ten times as much of it, and its record comes before the true one."""
    text = "SELECT payload FROM metering.usage_outbox WHERE payload ->> 'event_key' = %s"
    with psycopg.connect(stack.facts["postgres_dsn"]) as owner:
        owner.execute("SELECT")  # begins it, so that recording does not commit
        record(owner, use)
        row = owner.execute(text, (use.key,)).fetchone()
        assert row is not None
        altered = row[0] | {"quantity": str(use.units * 10)}
        produce(stack, use.tenant, json.dumps(altered).encode())


def dead(stack: LiveStack) -> dict[int, dict[str, Any]]:
    items = document(stack, "dead", "list")["items"]
    return {item["item"]: item for item in items}


def held(stack: LiveStack) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = document(stack, "held", "list")["records"]
    return records


@dataclass
class Poisoned:
    """A stack that all of it was given, and the usage that came with it."""

    stack: LiveStack
    uses: list[Use]
    at: datetime = field(default_factory=three_hours_ago)
    behind: Books = field(default_factory=Books)
    """Of the partition that is held."""
    beside: Books = field(default_factory=Books)
    """Of the others."""
    odd: Books = field(default_factory=Books)
    """Of a tenant whose service is to blame."""
    unmapped: Books = field(default_factory=Books)

    @property
    def partition(self) -> int:
        """The one that comes to be held."""
        return home(self.stack, self.uses[0].tenant)

    @property
    def other(self) -> str:
        """A tenant of another partition."""
        names = (f"odd-{n}" for n in range(1_000))
        return next(name for name in names if home(self.stack, name) != self.partition)

    @property
    def everybody(self) -> tuple[Books, ...]:
        return self.behind, self.beside, self.odd, self.unmapped

    def poison(self) -> None:
        """All of it, before the usage that has to flow."""
        stack, other, at = self.stack, self.other, self.at
        produce(stack, other, *MALFORMED.values())
        names = (f"newer-{n}" for n in range(1_000))
        newer = next(name for name in names if home(stack, name) == self.partition)
        future = {"v": 2, "type": "usage", "tenant_id": newer, "kafka_key": newer}
        produce(stack, newer, json.dumps(future).encode())
        teapot = Use(other, "teapots", "teapot-1", 5, at, "malformed")
        record_unknown_metric(stack, teapot)
        large = Use(other, "exports", "large", 3, at)
        record_too_large(stack, large)
        changed = Use(other, "exports", "changed", 7, at)
        produce_altered(stack, changed)
        for use in (teapot, large, changed):
            self.odd.note(use)
        map_customers(stack, self.odd)
        self.unmapped.mapped.add("unmapped")
        write(stack, [Use("unmapped", "api_calls", "first", 41, at)], self.unmapped)

    def use(self) -> None:
        """What has nothing to do with it."""
        for books, wanted in ((self.behind, True), (self.beside, False)):
            mine = [
                u for u in self.uses if (home(self.stack, u.tenant) == self.partition) == wanted
            ]
            write(self.stack, mine, books)

    def resolve(self) -> None:
        """What the commands name, one after the other."""
        stack = self.stack
        (record_,) = held(stack)
        place = (str(record_["partition"]), str(record_["offset"]))
        skipped = done(stack, "held", "skip", *place, *REASON)
        assert f"skipped offset {place[1]} of partition {place[0]}" in skipped
        done(stack, "customers", "map", "unmapped", "cus_unmapped")
        write(stack, [Use(self.other, "exports", "teapot-1-anew", 5, self.at)], self.odd)
        until("the skipped one too", lambda: len(dead(stack)) == DEAD + 1, 30)
        done(stack, "review", "reject", *map(str, dead(stack)), *REASON)


def assert_named(poisoned: Poisoned) -> None:
    """Each has its name, its evidence and the command that ends it."""
    stack = poisoned.stack
    until("41 units held", lambda: ledger_number(stack, HELD) == 41, 30)
    until("dead letters", lambda: len(dead(stack)) == DEAD, 30)
    until("a held record", lambda: len(held(stack)) == 1, 30)
    (waiting,) = held(stack)
    assert (waiting["partition"], waiting["state"]) == (poisoned.partition, "held")
    assert "schema version 2 is unknown" in waiting["reason"]
    behind = sorted(poisoned.behind.tenants)
    assert ledger_number(stack, ADMITTED, behind) == 0, "what is behind it waits"
    for number, item in dead(stack).items():
        assert item["reason"] == "malformed"
        assert item["detail"]["rule"]
        assert item["detail"]["path"].startswith("$")
        shown = done(stack, "dead", "show", str(number))
        assert f"tailrace review reject {number}" in shown
        assert "usage.events, partition" in shown
    assert sum(ALTERED in item["detail"]["rule"] for item in dead(stack).values()) == 1
    assert {item["tenant_id"] for item in dead(stack).values()} == {None, poisoned.other}
    witness.seen("dead letters", len(dead(stack)))
    witness.seen("held partitions", len(held(stack)))
    show_pending(stack, poisoned.behind)
    show_pending(stack, poisoned.unmapped)
    longest = "SELECT max(octet_length(record)) FROM ledger.parked WHERE kind = 'dead'"
    assert ledger_number(stack, longest) == EVIDENCE_BYTES_MAX


@pytest.mark.drill(name="poison", about="Eight kinds of poison at once: named, then resolved")
def test_every_poison_ends_under_its_name_and_the_rest_flows(own_stack: LiveStack) -> None:
    poisoned = Poisoned(own_stack, list(scattered("good", EVENTS, tenants=24, seed=151)))
    own_stack.start_worker("poison")
    poisoned.poison()
    poisoned.use()
    await_settled(own_stack, poisoned.beside)
    assert_named(poisoned)
    poisoned.resolve()
    assert not dead(own_stack)
    for books in poisoned.everybody:
        await_settled(own_stack, books)
        assert_exact(own_stack, books)
    assert done(own_stack, "audit").rstrip().endswith("lost 0 · double 0")
