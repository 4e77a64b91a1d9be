"""Progress and lag, for metrics and the status line."""

from dataclasses import dataclass

from streams.engine.group import Group
from streams.engine.hand_over import HandOver


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """One partition."""

    partition: int
    """Its number."""
    state: str
    """`recovering`, `feeding`, `paused` or `held`."""
    applied: int
    """Last offset settled; -1 for none."""
    acknowledged: int
    """Last offset whose facts the ledger has."""
    unsent: int
    """Facts the ledger has not acknowledged."""
    levels: int
    """Levels held."""
    lag: int | None
    """Records not yet settled, by the latest fetch; None before the first."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One worker."""

    partitions: tuple[PartitionFigures, ...]
    """Partitions assigned, in order."""
    settled: int
    """Chunks settled since the start."""
    discarded: int
    """Chunks not settled, their tables read again."""
    recoveries: int
    """Recoveries begun."""
    broker_errors: int
    """Errors librdkafka told of."""


def figures_of(group: Group | None, hand_over: HandOver | None, broker_errors: int) -> Figures:
    """Read the figures; from any thread."""
    if group is None or hand_over is None:
        return Figures((), 0, 0, 0, broker_errors)
    return Figures(
        partitions=tuple(
            _partition(group, partition) for partition in sorted(dict(group.assigned))
        ),
        settled=hand_over.outcomes.settled,
        discarded=hand_over.outcomes.discarded,
        recoveries=group.recoveries,
        broker_errors=broker_errors + hand_over.broker_errors,
    )


def _partition(group: Group, partition: int) -> PartitionFigures:
    assigned = group.assigned.get(partition)
    table = assigned.table if assigned is not None else None
    if assigned is None or table is None:
        held = assigned is not None and assigned.held is not None
        return PartitionFigures(partition, "held" if held else "recovering", -1, -1, 0, 0, None)
    meta = table.meta
    state = "held" if assigned.held is not None else "paused" if assigned.paused else "feeding"
    return PartitionFigures(
        partition,
        state,
        meta.applied,
        meta.acknowledged,
        meta.unsent,
        meta.levels,
        max(0, assigned.high - meta.applied - 1) if assigned.high >= 0 else None,
    )
