"""A Kafka key → its home partition, exactly as Kafka's Java clients compute it."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 of the bytes, as an unsigned 32-bit number."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        k = (int.from_bytes(data[start : start + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if whole != length:
        h = ((h ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


def home_partition(key: bytes, partitions: int) -> int:
    """Partition a key belongs to, among `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def home_of(partitions: int, keys_max: int = 65_536) -> Callable[[bytes], int]:
    """`home_partition` for a fixed partition count, remembering the `keys_max` latest keys.

    Murmur2 in Python costs several microseconds a key; tenants repeat.
    """
    if partitions < 1:
        raise ValueError(f"partitions: at least 1, not {partitions}")

    @lru_cache(maxsize=keys_max)
    def home(key: bytes) -> int:
        return home_partition(key, partitions)

    return home
