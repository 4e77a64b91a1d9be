"""What a decided chunk leaves behind: written to the packed log and to the table as one."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from streams.engine.errors import SettlementRefused
from streams.engine.log import ANCHOR_BYTES

ID_BYTES: Final = 16
"""Length of an event id."""
UNSENT_KEY_BYTES: Final = 12
"""Length of an unsent key: 8-byte big-endian source offset, 4-byte big-endian sequence."""

Pair = tuple[bytes, bytes]
"""A key and its value, both opaque to the engine."""


_KEY, _VALUE = itemgetter(0), itemgetter(1)


def _lengths(pairs: Iterable[Pair], part: Callable[[Pair], bytes]) -> set[int]:
    # Without a loop of this module: it runs twice over every id.
    return set(map(len, map(part, pairs)))


def unsent_key(offset: int, sequence: int) -> bytes:
    """Key of a fact: where it came from, and its number among the facts of that record."""
    return offset.to_bytes(8, "big") + sequence.to_bytes(4, "big")


def unsent_offset(key: bytes) -> int:
    """Source offset a fact came from."""
    return int.from_bytes(key[:8], "big")


@dataclass(slots=True)
class Settlement:
    """Everything one chunk changes, settled in one step or not at all."""

    first: int
    """First source offset covered; the table's applied offset + 1."""
    last: int
    """Last source offset covered; becomes the applied offset."""
    anchor: bytes
    """`Chunk.anchor`: fingerprint of the last record."""
    catalogue_hash: bytes
    """Hash of the rules that judged the chunk."""
    timestamp_ms_max: int
    """`Chunk.timestamp_ms_max`: greatest log append time in the chunk."""
    received_max_us: int = -1
    """Greatest `received_at` among `seen` (not `pinned`); -1 when there is none."""
    seen: list[Pair] = field(default_factory=list)
    """(event id, value) of every id first seen in this chunk; values all of one length."""
    pinned: list[Pair] = field(default_factory=list)
    """The same for ids that no generation may drop: their `received_at` is ahead of log time."""
    levels: list[Pair] = field(default_factory=list)
    """(key, new value) of every level the chunk changed."""
    unsent: list[Pair] = field(default_factory=list)
    """(`unsent_key`, value) of every fact for the ledger."""
    packed_offset: int = -1
    """Offset its packed record got; set by `PackedLog.append`."""

    def check(self) -> None:
        """Refuse what cannot be stored.

        Raises:
            SettlementRefused: naming the field and the rule.
        """
        ids, values = _lengths(self.seen, _KEY), _lengths(self.seen, _VALUE)
        if self.pinned:
            ids, values = ids | _lengths(self.pinned, _KEY), values | _lengths(self.pinned, _VALUE)
        problems = [
            text
            for wrong, text in (
                (self.first < 0 or self.last < self.first, "first, last: 0 <= first <= last"),
                (len(self.anchor) != ANCHOR_BYTES, f"anchor: {ANCHOR_BYTES} bytes"),
                (len(values) > 1, "seen, pinned: values all of one length"),
                (ids - {ID_BYTES}, f"seen, pinned: ids of {ID_BYTES} bytes"),
                (
                    not self._covers([key for key, _ in self.unsent]),
                    f"unsent: keys of {UNSENT_KEY_BYTES} bytes with an offset in [first, last]",
                ),
            )
            if wrong
        ]
        if problems:
            raise SettlementRefused(
                f"settlement of {self.first}..{self.last}: " + "; ".join(problems)
            )

    def _covers(self, keys: list[bytes]) -> bool:
        if not keys:
            return True
        # Keys sort by offset, so the outermost two speak for all.
        inside = self.first <= unsent_offset(min(keys)) and unsent_offset(max(keys)) <= self.last
        return set(map(len, keys)) == {UNSENT_KEY_BYTES} and inside
