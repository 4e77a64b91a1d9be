"""Bugs in how state is rebuilt from logs whose beginning is gone."""

from typing import Any, Final

from msgspec.structs import replace as changed

from streams.engine import absorb, recovery
from streams.engine.generations import KEPT
from streams.engine.source_check import source_marks
from streams.engine.table import PartitionTable
from tests.simulation.mutants import Mutant, Patch
from tests.simulation.mutants.layers import ignore_holes

_fold = absorb._fold


def _begins_where_the_source_does(patch: Patch) -> None:
    def cold(self: Any, table: PartitionTable) -> PartitionTable:
        marks = source_marks(self._reader, self._log, self._cancelled)
        at = changed(table.meta, applied=marks.low - 1)
        table.replace(lambda _: None, at)
        self._settle_position(table, self._packed.marks()[1])
        return table

    patch.setattr(recovery._Attempt, "_cold", cold)


def _forgets_a_generation_early(patch: Patch) -> None:
    def fold(table: Any, records: Any, rules: Any, current: int) -> Any:
        merge = _fold(table, records, rules, current)
        merge.ids.pop(current - KEPT + 1, None)
        return merge

    patch.setattr(absorb, "_fold", fold)


MUTANTS: Final = (
    Mutant(
        "packed_log_taken_as_whole",
        "a packed log whose beginning is gone is no state: the source is judged again",
        ignore_holes,
        ("lost", "double", "identity_lost", "identity_phantom"),
        ("packed_log_cut", "all_emitted_again"),
    ),
    Mutant(
        "source_taken_as_whole",
        "an events topic whose beginning is gone is no state: the packed log has it",
        _begins_where_the_source_does,
        ("lost", "double", "identity_lost", "identity_phantom"),
        ("events_cut", "all_emitted_again"),
    ),
    Mutant(
        "oldest_ids_lost",
        "state that is read again remembers as far back as state that was kept",
        _forgets_a_generation_early,
        ("double", "identity_phantom"),
        ("replaced_and_emitted_again",),
    ),
)
