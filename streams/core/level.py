"""Levels and cells: pure folds of one log, readings whose count is their version.

A fold here never changes its input: the next state is a new value, so a chunk that is not settled
leaves nothing behind. A level folds automatically accepted usage of one series; a cell folds the
first verdicts of one (source, minute of `received_at`, verdict class).
"""

from struct import Struct
from typing import Final, NamedTuple

import msgspec

from streams.core.fact import CellFact, LevelFact, Series
from streams.core.identity import DIGEST_MODULUS

_DIGEST_MASK: Final = DIGEST_MODULUS - 1
_VALUE: Final = Struct(">Qq16sQQ")
_SERIES_PREFIX: Final = b"s"
_CELL_PREFIX: Final = b"c"


class Reading(NamedTuple):
    """A cumulative reading; dirty while more records are in it than the ledger has confirmed.

    `records` is the count and the version; `total` is in units
    for a level and 0 for a cell; `birth_offset` the source offset of the first record folded in;
    `acknowledged` the count that the ledger has confirmed.
    """

    records: int
    total: int
    digest: int
    birth_offset: int
    acknowledged: int

    @property
    def dirty(self) -> bool:
        """Whether the ledger has not confirmed this reading yet."""
        return self.records > self.acknowledged


class CellKey(NamedTuple):
    """Which identities a cell counts."""

    source: str
    minute_us: int
    verdict_class: str


Key = Series | CellKey


def fold(before: Reading | None, units: int, content: bytes, offset: int) -> Reading:
    """The reading with one more record in it."""
    digest = int.from_bytes(content, "big")
    if before is None:
        return Reading(1, units, digest, offset, 0)
    return Reading(
        before[0] + 1,
        before[1] + units,
        (before[2] + digest) & _DIGEST_MASK,
        before[3],
        before[4],
    )


def encode_key(key: Key) -> bytes:
    """The key as it stands in the state store: its kind, then its parts, unambiguous."""
    prefix = _SERIES_PREFIX if isinstance(key, Series) else _CELL_PREFIX
    return prefix + msgspec.msgpack.encode(tuple(key))


_SERIES_DECODER: Final = msgspec.msgpack.Decoder(tuple[str, str, int, int, int, int])
_CELL_DECODER: Final = msgspec.msgpack.Decoder(tuple[str, int, str])


def decode_key(raw: bytes) -> Key:
    """Raises `msgspec.DecodeError` on bytes that `encode_key` did not write."""
    if raw[:1] == _SERIES_PREFIX:
        return Series(*_SERIES_DECODER.decode(raw[1:]))
    return CellKey(*_CELL_DECODER.decode(raw[1:]))


def encode_reading(reading: Reading) -> bytes:
    """48 bytes, fixed width."""
    return _VALUE.pack(
        reading[0], reading[1], reading[2].to_bytes(16, "big"), reading[3], reading[4]
    )


def decode_reading(raw: bytes) -> Reading:
    """Raises `struct.error` on bytes of another width."""
    records, total, digest, birth_offset, acknowledged = _VALUE.unpack(raw)
    return Reading(records, total, int.from_bytes(digest, "big"), birth_offset, acknowledged)


def newer(left: bytes, right: bytes) -> bytes:
    """Of two stored readings of one key in one log, the one that has folded more records in."""
    return right if right[:8] > left[:8] else left


def level_fact(series: Series, reading: Reading) -> LevelFact:
    """What the ledger is told of a level."""
    return LevelFact(series, reading.records, reading.total, reading.digest, reading.birth_offset)


def cell_fact(key: CellKey, reading: Reading) -> CellFact:
    """What the ledger is told of a cell."""
    return CellFact(*key, reading.records, reading.digest, reading.birth_offset)
