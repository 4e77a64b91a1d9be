"""Wire records, a small rule book, and a partition as a plain model: for every suite.

`usage`, `conflict`, `correction` and `canary` build wire records as the service's database writes
them; `record` puts one into a log. `Partition` is what a worker remembers, as dictionaries. The
strategies draw logs that crowd around every boundary of the rules.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from hypothesis import strategies as st

from streams.core import admission
from streams.core.catalogue import Catalogue, MeterVersion
from streams.core.decided import Decided, Keyed, Place, SourceRecord
from streams.core.fact_codec import StoredFact
from streams.core.identity import content_digest, correction_id, event_id
from streams.core.instant import DAY_US, HOUR_US, MINUTE_US, SECOND_US, to_us, wire_text
from streams.core.level import Key, Reading

T0_US: Final = 1_795_910_400 * SECOND_US
"""2026-11-29T00:00Z: a UTC midnight that the drawn events crowd around."""
SOURCE: Final = "orders"
Wire = dict[str, Any]


def meter(metric: str, **changes: Any) -> MeterVersion:
    """A meter version: hourly sums of whole numbers from the beginning, unless changed."""
    plain = MeterVersion(
        metric=metric,
        version=1,
        event_name=metric,
        window_us=HOUR_US,
        publish="window",
        scale=0,
        skew_max_us=DAY_US,
        close_delay_us=MINUTE_US,
        carry="review",
        aggregation="sum",
        rules=1,
        effective_from_us=0,
    )
    return plain._replace(**changes)


METERS: Final = (
    meter("api_calls"),
    meter("api_calls", version=2, window_us=DAY_US, effective_from_us=T0_US + DAY_US),
    meter("storage", scale=2, window_us=MINUTE_US, skew_max_us=HOUR_US),
    meter("jobs", publish="event"),
    meter("calls", publish="event", aggregation="count"),
)
CATALOGUE: Final = Catalogue(METERS, read_at_us=T0_US + 40 * DAY_US)


class Record(msgspec.Struct, frozen=True):
    """One record of the events topic."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def usage(
    event_key: str = "order-1",
    quantity: str = "1",
    *,
    tenant_id: str = "acme",
    metric: str = "api_calls",
    occurred_us: int = T0_US,
    received_us: int | None = None,
    **changes: Any,
) -> Wire:
    """What the service's database writes for one use; `changes` replace wire fields.

    The caller gave its instant; `untimed` is usage that was left to the time of its recording.
    """
    identity = event_id(SOURCE, tenant_id, event_key)
    wire: Wire = {
        "v": 1,
        "type": "usage",
        "source": SOURCE,
        "event_id": str(UUID(bytes=identity)),
        "tenant_id": tenant_id,
        "event_key": event_key,
        "kafka_key": tenant_id,
        "shard": 0,
        "metric": metric,
        "quantity": quantity,
        "occurred_at": wire_text(occurred_us),
        "received_at": wire_text(occurred_us + SECOND_US if received_us is None else received_us),
        "content_version": 1,
        "attributes": {"region": "eu"},
    } | changes
    content = content_digest(identity, metric, quantity, wire["occurred_at"])
    return wire | {"content": content.hex()} | changes


def untimed(one: Wire) -> Wire:
    """The same as it is where the caller gave no instant: that of its recording."""
    identity = UUID(one["event_id"]).bytes
    content = content_digest(identity, one["metric"], one["quantity"], "")
    return one | {"occurred_at": one["received_at"], "content": content.hex()}


def retold(one: Wire, quantity: str) -> Wire:
    """Another quantity under the same identity, with the content that is true of it."""
    identity = UUID(one["event_id"]).bytes
    content = content_digest(identity, one["metric"], quantity, one["occurred_at"])
    return one | {"quantity": quantity, "content": content.hex()}


def conflict(first: Wire, **changes: Any) -> Wire:
    """A second recording of `first` with other content, as the database writes it."""
    named = {"event_key": first["event_key"], "tenant_id": first["tenant_id"]}
    second = usage(**named | changes)
    return second | {
        "type": "conflict",
        "first_content": first["content"],
        "first_received_at": first["received_at"],
    }


def correction(target: Wire, delta: str, key: str = "fix-1", **changes: Any) -> Wire:
    """A service's correction of `target`."""
    identity = correction_id(SOURCE, target["tenant_id"], key)
    wire = {k: v for k, v in target.items() if k != "quantity"} | {
        "type": "correction",
        "event_id": str(UUID(bytes=identity)),
        "event_key": key,
        "delta": delta,
        "content": content_digest(identity, target["metric"], delta, target["event_id"]).hex(),
        "target_event_id": target["event_id"],
        "reason": "billed twice by the caller",
        "authorized_by": "ops@acme.example",
        "review": False,
    }
    return wire | changes


def sharded(one: Wire, shards: int = 2) -> Wire:
    """The same as its database writes it for a tenant of so many shards: the identity decides."""
    shard = 1 + UUID(one["event_id"]).int % shards
    return one | {"kafka_key": f"{one['tenant_id']}#{shard}", "shard": shard}


def canary(number: int = 0, *, partition: int = 0, received_us: int = T0_US) -> Wire:
    """A liveness row for one partition; nobody gave it an instant."""
    row = usage(
        f"canary-{number}",
        "0",
        tenant_id=f"tailrace.canary.{partition}",
        metric="tailrace.canary",
        occurred_us=received_us,
        received_us=received_us,
        type="canary",
        partition=partition,
        token=str(UUID(int=number)),
    )
    return untimed(row)


def record(
    content: Wire | bytes | None, offset: int = 0, *, timestamp_ms: int | None = None
) -> Record:
    """Puts wire content into a log, a second after it was received unless told otherwise.

    Bytes stand for what no database of ours wrote.
    """
    if not isinstance(content, dict):
        return Record(offset, timestamp_ms or T0_US // 1000, b"acme", content)
    if timestamp_ms is None:
        timestamp_ms = to_us(datetime.fromisoformat(content["received_at"])) // 1000 + 1000
    key = str(content["kafka_key"]).encode()
    return Record(offset, timestamp_ms, key, msgspec.json.encode(content))


def log_of(contents: Sequence[Wire | bytes | None]) -> list[Record]:
    """A log with these contents at offsets 0, 1, ..."""
    return [record(content, offset) for offset, content in enumerate(contents)]


@dataclass(slots=True)
class Partition:
    """What a worker remembers of one partition, and everything it has put out so far."""

    number: int = 0
    floor_us: int = -1
    catalogue: Catalogue = CATALOGUE
    marks: dict[bytes, bytes] = field(default_factory=dict)
    pinned: dict[bytes, bytes] = field(default_factory=dict)
    readings: dict[Key, Reading] = field(default_factory=dict)
    facts: list[tuple[int, StoredFact]] = field(default_factory=list)
    accepted: list[Keyed] = field(default_factory=list)
    review: list[Keyed] = field(default_factory=list)
    dead_letter: list[Keyed] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    received_max_us: int = -1

    def place(self) -> Place:
        """This partition as admission is given it."""
        return Place(
            topic="usage.events",
            partition=self.number,
            lookup=lambda ids: [self.marks.get(identity) for identity in ids],
            home=lambda _key: self.number,
            readings=self.readings,
            floor_us=self.floor_us,
        )

    def decide(self, records: Sequence[SourceRecord]) -> Decided:
        """The decision on a chunk, without taking it over."""
        return admission.decide(records, self.place(), self.catalogue, fresh=True)

    def settle(self, decided: Decided) -> None:
        """Takes a decision over, as the state store would."""
        self.marks.update(decided.seen)
        self.pinned.update(decided.pinned)
        self.readings |= decided.readings
        self.facts += decided.facts
        self.accepted += decided.accepted
        self.review += decided.review
        self.dead_letter += decided.dead_letter
        self.counts += decided.counts
        self.received_max_us = max(self.received_max_us, decided.received_max_us)

    def run(self, records: Sequence[SourceRecord], sizes: Sequence[int] = (5_000,)) -> "Partition":
        """Settles a whole log in chunks of these sizes, the last size repeated."""
        start, turn = 0, 0
        while start < len(records):
            size = sizes[min(turn, len(sizes) - 1)]
            self.settle(self.decide(records[start : start + size]))
            start, turn = start + size, turn + 1
        return self


_OCCURRED_US: Final = tuple(
    T0_US + base + shift
    for base in (0, MINUTE_US, HOUR_US, DAY_US - HOUR_US, DAY_US, DAY_US + HOUR_US)
    for shift in (-1, 0, 1, 59 * SECOND_US + 999_999)
)
_DELAY_US: Final = (
    *(5 * SECOND_US for _ in range(6)),  # most usage is on time
    *(-5 * MINUTE_US, -5 * MINUTE_US - 1, 0, HOUR_US, HOUR_US + 1, DAY_US, DAY_US + 1),
)
_QUANTITIES: Final = (
    *("1", "2", "7", "100", "999999999999999") * 2,
    *("0", "0.29", "1.1", "-1", "1.255", "1000000000000000", "9" * 25),
)
_METERS: Final = (*("api_calls", "storage") * 3, "jobs", "jobs", "calls", "no_such_meter")


@st.composite
def usages(draw: st.DrawFn, instants_us: Sequence[int] = _OCCURRED_US) -> Wire:
    """One use near a boundary; identities are few enough to meet again."""
    occurred_us = draw(st.sampled_from(instants_us))
    tenant_id = draw(st.sampled_from(("acme", "acme", "zeta", "hot")))
    one = usage(
        f"order-{draw(st.integers(0, 40))}",
        draw(st.sampled_from(_QUANTITIES)),
        tenant_id=tenant_id,
        metric=draw(st.sampled_from(_METERS)),
        occurred_us=occurred_us,
        received_us=occurred_us + draw(st.sampled_from(_DELAY_US)),
    )
    return sharded(one) if tenant_id == "hot" else one


@st.composite
def logs(draw: st.DrawFn, max_size: int = 30) -> list[Record]:
    """A log of a few identities, their copies and whatever else stands in a topic.

    Events crowd into few windows, so that levels grow; now and then the source's clock runs ahead
    of the log's, by an hour exactly or by more.
    """
    instants_us = draw(st.lists(st.sampled_from(_OCCURRED_US), min_size=1, max_size=3))
    size = draw(st.integers(1, max_size))
    pool = draw(st.lists(usages(instants_us), min_size=(size + 1) // 2, max_size=size))
    contents = [draw(_contents(pool, turn)) for turn in range(size)]
    records = log_of(contents)
    for index in draw(st.lists(st.integers(0, size - 1), max_size=3)):
        content = contents[index]
        if isinstance(content, dict):
            ahead_us = draw(st.sampled_from((HOUR_US, HOUR_US + 1000, 9 * DAY_US)))
            received_us = to_us(datetime.fromisoformat(content["received_at"]))
            logged_ms = (received_us - ahead_us) // 1000
            records[index] = record(content, index, timestamp_ms=logged_ms)
    return records


@st.composite
def _contents(draw: st.DrawFn, pool: list[Wire], turn: int) -> Wire | bytes:
    """The next of the pool, or a copy, another content, a correction, a canary, or rubbish."""
    one = pool[turn % len(pool)]
    kind = draw(st.integers(0, 15))
    match kind:
        case 0:
            return one | {"type": "conflict", "first_content": "ab" * 16}
        case 1:
            delta = draw(st.sampled_from(("-1", "3", "0.5", "-1000000000000000")))
            key = f"fix-{draw(st.integers(0, 3))}"
            fix = correction(one, delta, key, review=draw(st.booleans()))
            return sharded(fix) if one["shard"] else fix
        case 2:
            return canary(draw(st.integers(0, 3)))
        case 3:
            return draw(st.sampled_from((b"", b"{", b"[]", b'{"v":1}', b"\xff")))
        case 4:
            return draw(usages())
        case 5:
            return retold(pool[draw(st.integers(0, len(pool) - 1))], "3.14")
        case _:
            return pool[draw(st.integers(0, len(pool) - 1))] if kind > 12 else one


chunk_sizes = st.lists(st.integers(1, 9), min_size=1, max_size=6)
"""How a log is cut into chunks."""
