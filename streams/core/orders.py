"""What operators ordered: records to skip, and pauses of publishing.

In: rows of the ledger. Out: values that admission is given with the catalogue. A skip is bound to
one record by log, partition, offset and fingerprint, and stands for ever: a replay, with newer code
too, decides the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class Skip:
    """The decision to dead-letter one record that its partition would else wait at."""

    offset: int
    """Offset in the source log."""
    fingerprint: str
    """Of the record that was decided on; another record at this offset is not meant."""
    reason: str
    """Why, in the words of whoever decided."""
    actor: str
    """Who decided."""
    receipt: int
    """The decision's row in the ledger's audit log."""


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A record that holds its partition: nothing after it is decided until somebody acts."""

    log_id: str
    """The log's topic id, as UUID text."""
    partition: int
    offset: int
    fingerprint: str
    reason: str
    """Why it cannot be decided."""
    record_bytes: int
    """Length of its value."""


Skips = Mapping[int, Skip]
"""Of one partition, by offset."""


@dataclass(frozen=True, slots=True)
class Orders:
    """Everything that stands ordered, of one moment."""

    skips: Mapping[tuple[str, int], Skips] = field(default_factory=dict)
    """By log id and partition."""
    pauses: Mapping[str, int] = field(default_factory=dict)
    """Number of pauses in force, by scope: all, meter, tenant."""

    def of(self, log_id: str, partition: int) -> Skips:
        """The skips of a partition."""
        return self.skips.get((log_id, partition), {})

    def skips_record(self, held: HeldRecord) -> bool:
        """Whether it was decided to skip exactly this record."""
        skip = self.of(held.log_id, held.partition).get(held.offset)
        return skip is not None and skip.fingerprint == held.fingerprint


def fingerprint(key: bytes | None, value: bytes | None) -> str:
    """SHA-256 over key and value, each with its length, so that no two records share it."""
    digest = sha256()
    for part in (key, value):
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.hexdigest()
