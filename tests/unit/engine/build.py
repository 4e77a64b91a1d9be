"""Values for the tests of the engine."""

import hashlib

import msgspec

from streams.engine.log import LogId
from streams.engine.packed import PackedRecord
from streams.engine.settlement import ID_BYTES, Settlement, unsent_key
from streams.engine.table import PartitionTable


def id_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:ID_BYTES]


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def settlement(first: int, last: int, *, at_ms: int = 5_000, **changes: object) -> Settlement:
    """A settlement that saw one id, changed one level and left one fact per offset."""
    values: dict[str, object] = {
        "first": first,
        "last": last,
        "anchor": bytes(15) + bytes([last % 256]),
        "catalogue_hash": b"rules",
        "timestamp_ms_max": at_ms,
        "received_max_us": at_ms * 1_000,
        "seen": [(id_of(f"e{n}"), number(n)) for n in range(first, last + 1)],
        "levels": [(b"level", number(last))],
        "unsent": [(unsent_key(n, 0), b"fact") for n in range(first, last + 1)],
    }
    return Settlement(**(values | changes))  # type: ignore[arg-type]  # a test's own names


def settle(table: PartitionTable, batch: Settlement) -> Settlement:
    table.enter(batch.timestamp_ms_max)
    table.settle(batch)
    return batch


def complete(table: PartitionTable) -> None:
    """Mark a table as recovered, so that it survives being opened again."""
    table.replace(lambda _: None, msgspec.structs.replace(table.meta, complete=True))


def packed(log: LogId, batch: Settlement, floor_us: int = -1, confirmed: int = -1) -> PackedRecord:
    return PackedRecord(
        topic_id=log.topic_id,
        partition=log.partition,
        first=batch.first,
        last=batch.last,
        anchor=batch.anchor,
        catalogue_hash=batch.catalogue_hash,
        timestamp_ms_max=batch.timestamp_ms_max,
        received_max_us=batch.received_max_us,
        floor_us=floor_us,
        ids=b"".join(key for key, _ in batch.seen),
        values=b"".join(value for _, value in batch.seen),
        pinned_ids=b"".join(key for key, _ in batch.pinned),
        pinned_values=b"".join(value for _, value in batch.pinned),
        levels=batch.levels,
        unsent=batch.unsent,
        confirmed=confirmed,
    )
