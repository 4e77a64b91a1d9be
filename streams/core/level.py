"""Levels and cells: pure folds of one log, readings whose count is their version.

In: the records of one chunk, tallied. Out: the next reading of each key, as a new value: a chunk
that is not settled leaves nothing behind. A level folds automatically accepted usage of one series;
a cell folds the first verdicts of one (source, minute of `received_at`, verdict class).
"""

from struct import Struct
from typing import Final

import msgspec

from streams.core.fact import CellFact, LevelFact, Series
from streams.core.identity import DIGEST_MODULUS

_DIGEST_MASK: Final = DIGEST_MODULUS - 1
_ENCODER: Final = msgspec.msgpack.Encoder()
_VALUE: Final = Struct(">Q16s16sQQ")
_SERIES_PREFIX: Final = b"s"
_CELL_PREFIX: Final = b"c"


class Reading(msgspec.Struct, frozen=True, gc=False):
    """A cumulative reading.

    `records` is the count and the version; `total` is in units for a level and 0 for a cell;
    `birth_offset` and `last_offset` are the source offsets of the first and the last record folded
    in: the ledger lacks something of it while its position in the log lies before the last.
    """

    records: int
    total: int
    digest: int
    birth_offset: int
    last_offset: int


class CellKey(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Which identities a cell counts."""

    source: str
    minute_us: int
    verdict_class: str


Key = Series | CellKey


class Tally:
    """What one chunk adds to a reading; the only mutable thing here, and it dies with the chunk."""

    __slots__ = ("birth_offset", "digest", "last_offset", "records", "total")

    def __init__(self, offset: int) -> None:
        self.records = 0
        self.total = 0
        self.digest = 0
        self.birth_offset = self.last_offset = offset

    def add(self, offset: int, units: int, digest: int) -> None:
        """One more record: where it stands, its units, and its content as a number."""
        self.records += 1
        self.total += units
        self.digest += digest
        self.last_offset = offset

    def onto(self, before: Reading | None) -> Reading:
        """The reading that follows `before` (None: these are the first records of the series)."""
        if before is None:
            digest = self.digest & _DIGEST_MASK
            return Reading(self.records, self.total, digest, self.birth_offset, self.last_offset)
        return Reading(
            before.records + self.records,
            before.total + self.total,
            (before.digest + self.digest) & _DIGEST_MASK,
            before.birth_offset,
            self.last_offset,
        )


def encode_key(key: Key) -> bytes:
    """The key as it stands in the state store: its kind, then its parts, unambiguous."""
    prefix = _SERIES_PREFIX if isinstance(key, Series) else _CELL_PREFIX
    return prefix + _ENCODER.encode(key)


_SERIES_DECODER: Final = msgspec.msgpack.Decoder(Series)
_CELL_DECODER: Final = msgspec.msgpack.Decoder(CellKey)


def decode_key(raw: bytes) -> Key:
    """The key again.

    Raises:
        ValueError: the bytes are no key of this code (`msgspec.DecodeError` is a ValueError).
    """
    prefix, parts = raw[:1], raw[1:]
    if prefix == _SERIES_PREFIX:
        return _SERIES_DECODER.decode(parts)
    if prefix == _CELL_PREFIX:
        return _CELL_DECODER.decode(parts)
    message = f"reading key: starts with {prefix.hex() or 'nothing'}, known are 73 and 63"
    raise ValueError(message)


def encode_reading(reading: Reading) -> bytes:
    """56 bytes, fixed width; the total has room for 2^63 events of the greatest quantity."""
    return _VALUE.pack(
        reading.records,
        reading.total.to_bytes(16, "big", signed=True),
        reading.digest.to_bytes(16, "big"),
        reading.birth_offset,
        reading.last_offset,
    )


def decode_reading(raw: bytes) -> Reading:
    """Raises `struct.error` on bytes of another width."""
    records, total, digest, birth_offset, last_offset = _VALUE.unpack(raw)
    return Reading(
        records,
        int.from_bytes(total, "big", signed=True),
        int.from_bytes(digest, "big"),
        birth_offset,
        last_offset,
    )


def newer(left: bytes, right: bytes) -> bytes:
    """Of two stored readings of one key in one log, the one that has folded more records in."""
    return right if right[:8] > left[:8] else left


def level_fact(series: Series, reading: Reading) -> LevelFact:
    """What the ledger is told of a level."""
    return LevelFact(series, reading.records, reading.total, reading.digest, reading.birth_offset)


def cell_fact(key: CellKey, reading: Reading) -> CellFact:
    """What the ledger is told of a cell."""
    return CellFact(
        key.source,
        key.minute_us,
        key.verdict_class,
        reading.records,
        reading.digest,
        reading.birth_offset,
    )
