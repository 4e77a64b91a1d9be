"""Figures of admitting, partitions and publishing → samples for /metrics."""

from collections.abc import Collection, Iterator, Mapping

from streams.adapters.metrics import Sample
from streams.agents.admit import AdmitFigures
from streams.agents.facts import FactFigures
from streams.agents.publish import PublishFigures
from streams.engine.table import PartitionTable


def admit_samples(figures: AdmitFigures) -> Iterator[Sample]:
    """What was judged."""
    yield "usage_records_total", None, figures.records
    yield "usage_chunks_total", None, figures.chunks
    for verdict, count in figures.verdicts.items():
        yield "usage_verdicts_total", verdict, count


def partition_samples(
    tables: Mapping[int, PartitionTable], held: Collection[int]
) -> Iterator[Sample]:
    """How far each partition is."""
    for partition, table in tables.items():
        yield "usage_partition_applied_offset", str(partition), table.applied
        yield "usage_partition_told_offset", str(partition), table.acknowledged
    for partition in held:
        yield "usage_partition_held", str(partition), 1


def fact_samples(figures: FactFigures, publish_failures: int) -> Iterator[Sample]:
    """What the ledger was told, and how often it did not answer, publishing included."""
    yield "usage_fact_batches_total", None, figures.batches
    yield "usage_refused_readings_total", None, figures.refused_readings
    yield "usage_ledger_failures_total", None, figures.ledger_failures + publish_failures


def publish_samples(figures: PublishFigures) -> Iterator[Sample]:
    """What was cut, lent, sent, and what it came to."""
    yield "usage_entries_cut_total", None, figures.cut
    yield "usage_lanes_claimed_total", None, figures.claimed
    yield "usage_attempts_total", None, figures.attempts
    for state, count in figures.states.items():
        yield "usage_settlements_total", state, count
