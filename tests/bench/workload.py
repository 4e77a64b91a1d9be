"""A seed → the records of the events topic, exactly as a service's database and capture make them.

Zipf tenants over one day of usage; copies of earlier records over the whole topic, some usage later
than a day, some records that cannot be read. Half of the tenants name their events by random ids,
half by ids in the order of time; the identity is a digest of either, so that a store meets both as
ids without order, the harder case. The same seed gives the same records, byte for byte.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from tests.support.outbox import content as content_of
from tests.support.outbox import identity as identity_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE: Final = "bench"
SCALES: Final = {"bench_requests": 0, "bench_storage": 3}
"""The meters of `meters.toml` by their scale."""
BEGIN: Final = datetime(2026, 11, 1, tzinfo=UTC)
"""The day of the usage: in the past, so that no record is ahead of any clock."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY: Final = timedelta(days=1)
LATEST_ON_TIME: Final = timedelta(hours=24)

Headers = list[tuple[str, bytes]]


class Message(NamedTuple):
    """One record to produce."""

    key: bytes
    value: bytes
    headers: Headers


@dataclass(frozen=True, slots=True)
class Shape:
    """What the workload looks like; shares are of all records."""

    records: int
    seed: int = 1
    tenants: int = 5_000
    copies: float = 0.05
    late: float = 0.01
    malformed: float = 0.001
    on_the_edge: float = 0.001
    """Usage received exactly 24 hours after it occurred: still on time."""


def messages(shape: Shape) -> Iterator[Message]:
    """The records in the order in which they are produced."""
    rng = random.Random(shape.seed)
    weights = list(accumulate(1 / rank for rank in range(1, shape.tenants + 1)))
    tenants = rng.choices(range(shape.tenants), cum_weights=weights, k=shape.records)
    step = DAY / shape.records
    recorded: list[Message] = []
    for number, tenant in enumerate(tenants):
        draw = rng.random()
        if recorded and draw < shape.copies:
            yield rng.choice(recorded)
            continue
        draw -= shape.copies
        received = BEGIN + number * step
        delay = _delay(rng, draw, shape)
        message = _usage(rng, tenant, received, delay)
        if 0 <= draw - shape.late - shape.on_the_edge < shape.malformed:
            yield message._replace(value=_broken(rng, message.value))
            continue
        recorded.append(message)
        yield message


def _delay(rng: random.Random, draw: float, shape: Shape) -> timedelta:
    """How long after it occurred usage was received."""
    if 0 <= draw < shape.late:
        return LATEST_ON_TIME + timedelta(microseconds=rng.randint(1, 10**11))
    if 0 <= draw - shape.late < shape.on_the_edge:
        return LATEST_ON_TIME
    return timedelta(microseconds=rng.randint(0, 60_000_000))


def _usage(
    rng: random.Random, number_of_tenant: int, received: datetime, delay: timedelta
) -> Message:
    """One recorded use. The value is PostgreSQL's text of a jsonb: short keys first."""
    event_key = str(_named(rng, received, ordered=number_of_tenant % 2 == 1))
    tenant = f"tenant-{number_of_tenant:05d}"
    metric, quantity = _quantity(rng)
    received_at, occurred_at = _text(received), _text(received - delay)
    identity = identity_of(SOURCE, tenant, event_key)
    content = content_of(identity, metric, quantity, occurred_at).hex()
    event_id = str(UUID(bytes=identity))
    value = (
        f'{{"v": 1, "type": "usage", "shard": 0, "metric": "{metric}", "source": "{SOURCE}", '
        f'"content": "{content}", "event_id": "{event_id}", "quantity": "{quantity}", '
        f'"event_key": "{event_key}", "kafka_key": "{tenant}", "tenant_id": "{tenant}", '
        f'"attributes": {{"region": "eu-central", "endpoint": "/v1/orders"}}, '
        f'"occurred_at": "{occurred_at}", "received_at": "{received_at}", "content_version": 1}}'
    )
    headers = [
        ("id", event_id.encode()),
        ("event_type", b"usage.recorded"),
        ("schema_version", b"1"),
        ("received_at", received_at.encode()),
        ("traceparent", f"00-{identity.hex()}-{identity[:8].hex()}-01".encode()),
    ]
    return Message(tenant.encode(), value.encode(), headers)


def _named(rng: random.Random, received: datetime, *, ordered: bool) -> UUID:
    """A UUID of version 7, which begins with the millisecond, or of version 4."""
    bits = rng.getrandbits(128)
    if ordered:
        bits = (received - EPOCH) // timedelta(milliseconds=1) << 80 | bits & (1 << 80) - 1
    version = 7 if ordered else 4
    return UUID(int=bits & ~(0xF << 76 | 0b11 << 62) | version << 76 | 0b10 << 62)


def _quantity(rng: random.Random) -> tuple[str, str]:
    """A metric and a quantity without trailing zeros, as `trim_scale` leaves it."""
    if rng.random() < 0.5:
        return "bench_requests", str(rng.randint(1, 100))
    thousandths = rng.randint(1, 99_999)
    return "bench_storage", f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".")


def _broken(rng: random.Random, value: bytes) -> bytes:
    """The record as nobody can read it: cut off, no number, no instant."""
    match rng.randrange(3):
        case 0:
            return value[: len(value) // 2]
        case 1:
            return value.replace(b'"quantity": "', b'"quantity": "about ')
        case _:
            return value.replace(b'"occurred_at": "2026', b'"occurred_at": "yesterday')


def _text(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
