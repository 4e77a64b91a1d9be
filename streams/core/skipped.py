"""Records that a person decided to skip → which of the missing identities they explain.

In: what a skipped record says of itself, as far as it can be read, and the identities of a minute
of which some have no verdict, or one too many. Out: those that were skipped, and those of which
only a copy was. Nothing is guessed: a record that does not name its identity explains none, until
a person names one that is missing.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from streams.core.audit import NOTHING, Judgment, Tally, without_copies
from streams.core.audit_names import Identity, name_surplus


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


def state_of(*, decided: bool, parked: bool, passed: bool) -> str:
    """How far a record that held its partition has come.

    Args:
        decided: somebody decided to skip it.
        parked: it is a dead letter.
        passed: the ledger has facts from beyond it.
    """
    if not decided:
        return "held"
    if parked:
        return "done"
    return "contradicted" if passed else "skipped"


class Missing(NamedTuple):
    """An identity without a verdict, singled out by its minute's digest."""

    minute_us: int
    identity: Identity


def meant(missing: Iterable[Missing], said: Said) -> tuple[Missing, ...]:
    """Those of the missing that agree with every name that is said."""
    return tuple(
        each
        for each in missing
        if said.event_id in {None, str(each.identity.event_id)}
        and said.tenant_id in {None, each.identity.tenant_id}
        and said.event_key in {None, each.identity.event_key}
    )


def explained(missing: Iterable[Identity], skipped: Iterable[Said]) -> tuple[Identity, ...]:
    """Which of these identities skipped records name, by their id."""
    ids = {said.event_id for said in skipped}
    return tuple(identity for identity in missing if str(identity.event_id) in ids)


def without_skipped_copies(
    judgment: Judgment, identities: Sequence[Identity], skipped: Iterable[Said]
) -> tuple[Judgment, tuple[Identity, ...]]:
    """A minute with one verdict too many, where that one is on a skipped copy: no verdict at all.

    A copy that stood on another partition than its key's is not known there, so its skip was told
    as a first verdict; only here, where all partitions meet, it shows that there was one already.

    Args:
        judgment: of the minute and group.
        identities: all identities of the minute and group.
        skipped: what the records say of themselves that were dead-lettered by decision.

    Returns:
        The judgment without the copies, and whose copies they were.
    """
    if judgment.verdict != "phantom":
        return judgment, ()
    by_id = {str(identity.event_id): identity for identity in identities}
    among = [by_id[said.event_id] for said in skipped if said.event_id in by_id]
    copies = name_surplus(among, judgment.cells.minus(judgment.second))
    total = NOTHING
    for identity in copies:
        total = total.plus(Tally(1, identity.content))
    return (without_copies(judgment, total) if copies else judgment), copies
