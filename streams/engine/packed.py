"""A settled chunk ⇄ one packed record of the admit log: the state's own changelog."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from streams.engine.errors import PackedRecordDamaged, UnknownPackedVersion
from streams.engine.log import LogId
from streams.engine.settlement import ID_BYTES, Pair, Settlement

VERSION: Final = 2
"""Version this release writes; it reads version 1 too, which lays values of ids out otherwise."""
_MAGIC: Final = b"TP"


class PackedRecord(msgspec.Struct, frozen=True, array_like=True):
    """Everything one chunk changed, enough to rebuild the table by union and maxima.

    Fields are written in this order and without names; a new field needs a new version.
    """

    topic_id: str
    """Life of the source topic; offsets below mean nothing without it."""
    partition: int
    """Source partition; the packed record lies in the partition of the same number."""
    first: int
    """First source offset covered."""
    last: int
    """Last source offset covered."""
    anchor: bytes
    """Fingerprint of the source record at `last`."""
    catalogue_hash: bytes
    """Rules that judged the chunk."""
    timestamp_ms_max: int
    """Greatest log append time of the source log up to `last`."""
    received_max_us: int
    """Greatest `received_at` among the ids; -1 when there is none."""
    floor_us: int
    """Floor the chunk was judged with, so that a rebuilt table judges alike."""
    ids: bytes
    """Event ids, 16 bytes each, one after the other."""
    values: bytes
    """Their values, of equal length, in the same order."""
    pinned_ids: bytes
    """Ids that no generation may drop."""
    pinned_values: bytes
    """Their values."""
    levels: list[Pair]
    """(key, value) of the levels changed."""
    unsent: list[Pair]
    """(key, value) of the facts for the ledger."""
    confirmed: int
    """Source offset up to which the ledger was known to have everything; -1 for none."""

    def seen(self) -> list[Pair]:
        """The ids with their values."""
        return _unpack(self.ids, self.values)

    def pinned(self) -> list[Pair]:
        """The pinned ids with their values."""
        return _unpack(self.pinned_ids, self.pinned_values)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PackedRecord)


def pack(
    log: LogId,
    settlement: Settlement,
    *,
    timestamp_ms_max: int,
    floor_us: int,
    confirmed: int,
) -> PackedRecord:
    """Pack a settlement.

    Args:
        log: source log.
        settlement: what the chunk changes.
        timestamp_ms_max: greatest log append time up to its end (`PartitionTable.log_time_ms`).
        floor_us: floor it was judged with (`PartitionTable.floor_us`).
        confirmed: what the ledger was known to have (`PartitionTable.confirmed`).
    """
    ids, values = _pack(settlement.seen)
    pinned_ids, pinned_values = _pack(settlement.pinned)
    return PackedRecord(
        topic_id=log.topic_id,
        partition=log.partition,
        first=settlement.first,
        last=settlement.last,
        anchor=settlement.anchor,
        catalogue_hash=settlement.catalogue_hash,
        timestamp_ms_max=timestamp_ms_max,
        received_max_us=settlement.received_max_us,
        floor_us=floor_us,
        ids=ids,
        values=values,
        pinned_ids=pinned_ids,
        pinned_values=pinned_values,
        levels=settlement.levels,
        unsent=settlement.unsent,
        confirmed=confirmed,
    )


def encode(record: PackedRecord) -> bytes:
    """Bytes of a packed record: magic, version, body."""
    return _MAGIC + bytes((VERSION,)) + _encoder.encode(record)


def decode(data: bytes, from_version_1: Callable[[bytes], bytes]) -> PackedRecord:
    """Read a packed record.

    Args:
        data: its bytes.
        from_version_1: the value of an id as version 1 has it → as it is now.

    Raises:
        UnknownPackedVersion: a newer release wrote it; upgrade this worker.
        PackedRecordDamaged: it is no packed record at all.
    """
    if data[:2] != _MAGIC or len(data) < 3:
        raise PackedRecordDamaged(
            f"packed record starts with {data[:3].hex() or 'nothing'}, not with "
            f"{_MAGIC.hex()}: something else writes to the packed log"
        )
    if not 1 <= data[2] <= VERSION:
        raise UnknownPackedVersion(
            f"packed record has version {data[2]}, this release reads versions 1 to {VERSION}: "
            "upgrade this worker, then restart it"
        )
    try:
        record = _decoder.decode(memoryview(data)[3:])
    except msgspec.DecodeError as error:
        raise PackedRecordDamaged(f"packed record cannot be read: {error}") from error
    for name, ids, values in (
        ("ids", record.ids, record.values),
        ("pinned_ids", record.pinned_ids, record.pinned_values),
    ):
        count, rest = divmod(len(ids), ID_BYTES)
        if rest or (len(values) % count if count else len(values)):
            raise PackedRecordDamaged(
                f"packed record: {name}: {len(ids)} bytes of ids do not match "
                f"{len(values)} bytes of values"
            )
    return _converted(record, from_version_1) if data[2] == 1 else record


def _converted(record: PackedRecord, convert: Callable[[bytes], bytes]) -> PackedRecord:
    return msgspec.structs.replace(
        record,
        values=b"".join([convert(value) for _, value in record.seen()]),
        pinned_values=b"".join([convert(value) for _, value in record.pinned()]),
    )


def _pack(pairs: Sequence[Pair]) -> tuple[bytes, bytes]:
    return b"".join([key for key, _ in pairs]), b"".join([value for _, value in pairs])


def _unpack(ids: bytes, values: bytes) -> list[Pair]:
    count = len(ids) // ID_BYTES
    if not count:
        return []
    width = len(values) // count
    return [
        (ids[n * ID_BYTES : (n + 1) * ID_BYTES], values[n * width : (n + 1) * width])
        for n in range(count)
    ]
