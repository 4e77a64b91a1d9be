"""The ledger → what it was told of one partition: everything that a replay is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from streams.cli.database import Connection, ledger_rows, rows, snapshot
from streams.cli.errors import ConfigurationError
from streams.core.catalogue import Catalogue, MeterVersion
from streams.core.decided import Decided
from streams.core.fact import Series
from streams.core.instant import LAST_US
from streams.core.level import CellKey, Key
from streams.core.orders import Skip
from streams.core.replay import (
    Compared,
    Entered,
    Parked,
    Reach,
    Sum,
    ToldFacts,
    asked_of,
    compare_facts,
)
from streams.core.trial import Written, original


@dataclass(frozen=True, slots=True)
class Told:
    """Of one moment."""

    log_id: str
    partition: int
    position: int
    """The last offset whose facts the ledger has."""
    catalogue: Catalogue
    """The rules that judged it, as they stood then."""
    sums: dict[Key, Sum]
    skips: dict[int, Skip] = field(default_factory=dict)
    unread: frozenset[int] = frozenset()


def read_told(
    ledger: Connection, log_id: str, partition: int, tenants: Sequence[str] | None
) -> Told | None:
    """Everything about a partition; None where the ledger was told nothing of it.

    Raises:
        ConfigurationError: its last chunk was judged by rules that this ledger never had.
    """
    which = {
        "log_id": log_id, "partition": partition, "tenants": tenants and list(tenants)
    }  # fmt: skip
    with snapshot(ledger):
        places = {line["partition"]: line for line in rows(ledger, "replay_positions", which)}
        place = places.get(partition)
        if place is None:
            return None
        return Told(
            log_id,
            partition,
            place["position"],
            _catalogue(ledger, bytes.fromhex(place["catalogue_hash"])),
            _sums(ledger, which, whole=tenants is None),
            _skips(ledger, log_id, partition),
            frozenset(line["record_offset"] for line in rows(ledger, "replay_unread", which)),
        )


def _catalogue(ledger: Connection, wanted: bytes) -> Catalogue:
    history = []
    for line in rows(ledger, "replay_history"):
        at_us = line.pop("at_us")
        history.append(Written(at_us, MeterVersion(*line.values())))
    versions = original(history, wanted)
    if versions is None:
        raise ConfigurationError(
            f"usage was judged by the rules {wanted.hex()}, which this ledger never had",
            fix="is TAILRACE_LEDGER_DSN the ledger of these workers? `tailrace ledger log`",
        )
    # Read for ever: every version of then is known, and nothing has to wait for a fresh reading.
    return Catalogue(versions, LAST_US)


def _sums(ledger: Connection, which: dict[str, object], *, whole: bool) -> dict[Key, Sum]:
    sums: dict[Key, Sum] = {}
    for line in rows(ledger, "replay_levels", which):
        *series, count, total, digest, birth = line.values()
        sums[Series(*series)] = Sum(count, int(total), int(digest), birth)
    # A cell counts all tenants of its minute.
    for line in rows(ledger, "replay_cells", which) if whole else ():
        *cell, count, digest, birth = line.values()
        sums[CellKey(*cell)] = Sum(count, 0, int(digest), birth)
    return sums


def _skips(ledger: Connection, log_id: str, partition: int) -> dict[int, Skip]:
    found = (line for line in ledger_rows(ledger, "skips") if line[:2] == (log_id, partition))
    return {line[2]: Skip(*line[2:]) for line in found}


def compare_chunk(ledger: Connection, told: Told, decided: Decided, reach: Reach) -> Compared:
    """The facts of a chunk with the ledger's entries and items."""
    if not decided.facts:
        return Compared()
    asked = asked_of(decided.facts)
    which = {**asked._asdict(), "log_id": told.log_id, "partition": told.partition}
    entries = {
        (line["kind"], line["event_id"]): Entered(
            line["delta"], line["window_start_us"], line["catalogue_version"]
        )
        for line in rows(ledger, "replay_entries", which)
    }
    parked = frozenset(
        Parked(
            line["kind"],
            line["reason"],
            line["event_id"],
            None if line["content"] is None else int(line["content"]),
            line["record_offset"],
        )
        for line in rows(ledger, "replay_parked", which)
    )
    return compare_facts(decided.facts, ToldFacts(entries, parked), reach)
