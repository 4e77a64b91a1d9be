"""Bugs of a topic that got more partitions."""

from typing import Final

from streams.agents import lineage
from streams.core import growth
from streams.core.growth import Life, Log
from streams.engine import packed_reader
from streams.engine.before import Before
from streams.engine.layout import Layout, ungrown
from tests.simulation.mutants import Mutant, Patch


def _remembers_nothing_elsewhere(patch: Patch) -> None:
    patch.setattr(Before, "elsewhere", lambda *_: [])
    patch.setattr(Before, "missing", lambda *_: None)


def _asks_for_less(patch: Patch) -> None:
    left_at = growth._left_at

    def earlier(life: Life, log: Log, there: int, partition: int) -> int | None:
        last = left_at(life, log, there, partition)
        return None if last is None else last // 2

    patch.setattr(growth, "_left_at", earlier)


def _does_not_wait(patch: Patch) -> None:
    patch.setattr(Before, "missing", lambda *_: None)


def _keeps_count_of_what_is_gone(patch: Patch) -> None:
    patch.setattr(packed_reader, "_GROUP_RECORDS", 1)  # so that its memory takes several readings
    patch.setattr(Before, "begin_anew", lambda _: None)


def _takes_it_for_ungrown(patch: Patch) -> None:
    def laid_out(_: object, life_id: str, partitions: int, partition: int) -> Layout:
        return ungrown(life_id, partitions, partition)

    patch.setattr("tests.simulation.feeder.laid_out", laid_out)


def _knows_no_origin(patch: Patch) -> None:
    patch.setattr(lineage, "frozenset", lambda *_: (), raising=False)


MUTANTS: Final = (
    Mutant(
        "grown_without_memory",
        "a new partition remembers the one whose keys it took over",
        _remembers_nothing_elsewhere,
        ("identity_phantom", "double"),
        ("grown_and_replaced",),
    ),
    Mutant(
        "grown_from_too_early",
        "it remembers all of it up to where keys left",
        _asks_for_less,
        ("identity_phantom", "double"),
        ("grown_and_replaced",),
    ),
    Mutant(
        "grown_without_waiting",
        "it reads nothing before that is settled",
        _does_not_wait,
        ("identity_phantom", "double"),
        ("grown_and_replaced",),
    ),
    Mutant(
        "grown_with_half_a_memory",
        "a table that is emptied is given all of its memory anew",
        _keeps_count_of_what_is_gone,
        ("identity_phantom", "double"),
        ("grown_and_replaced",),
    ),
    Mutant(
        "growth_overlooked",
        "records are judged by the count that was in force when they were written",
        _takes_it_for_ungrown,
        ("lost", "identity_lost", "stuck"),
        ("grown_and_replaced",),
    ),
    Mutant(
        "canary_of_before_refused",
        "a canary that waited while the topic grew proves the partition that it reaches",
        _knows_no_origin,
        ("identity_phantom", "identity_lost", "review_phantom", "silent"),
        ("grown_and_replaced",),
    ),
)
