"""Records that a person decided to skip → which of the missing identities they explain.

In: what a skipped record says of itself, as far as it can be read, and the identities of a minute
of which some have no verdict. Out: those that were skipped. Nothing is guessed: a record that does
not name its identity explains none.
"""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

import msgspec

from streams.core.audit_names import Identity


class Said(NamedTuple):
    """What a record says of itself; None where it says nothing readable."""

    event_id: str | None = None
    tenant_id: str | None = None
    event_key: str | None = None


class _Loose(msgspec.Struct):
    event_id: UUID | None = None
    tenant_id: str | None = None
    event_key: str | None = None


def say(record: bytes | None) -> Said:
    """Reads the three names that every version of the contract has had; asks for nothing else."""
    try:
        read = msgspec.json.decode(record or b"", type=_Loose)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Said()
    event_id = None if read.event_id is None else str(read.event_id)
    return Said(event_id, read.tenant_id, read.event_key)


def explained(missing: Iterable[Identity], skipped: Iterable[Said]) -> tuple[Identity, ...]:
    """Which of these identities skipped records name, by their id."""
    ids = {said.event_id for said in skipped}
    return tuple(identity for identity in missing if str(identity.event_id) in ids)
