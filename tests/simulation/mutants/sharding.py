"""Bugs about tenants that are spread over several keys: each part is a series of its own."""

from dataclasses import replace
from itertools import count
from typing import Any, Final

from msgspec.structs import replace as changed

from streams.core import verdict
from tests.simulation.ledger import facts
from tests.simulation.ledger.lanes import Lanes
from tests.simulation.ledger.rows import Entry, SeriesKey
from tests.simulation.mutants import Mutant, Patch
from tests.simulation.service import Row, wire_of

_series = verdict._series
_series_of = facts._series
_cut_entries = Lanes.cut_entries
SHARDS: Final = 3


def _adds_shards_up_in_one_level(patch: Patch) -> None:
    patch.setattr(verdict, "_series", lambda *given: changed(_series(*given), shard=0))


def _keeps_one_level_for_all(patch: Patch) -> None:
    def series(r: dict[str, Any], log_id: str) -> SeriesKey:
        return _series_of({**r, "shard": 0}, log_id)

    patch.setattr(facts, "_series", series)


def _cuts_beside_others(patch: Patch) -> None:
    def cut_entries(self: Lanes, limit: int) -> int:
        levels = self.tables.levels
        for key, level in levels.items():
            window = [lv for other, lv in levels.items() if other[:4] == key[:4]]
            level.cut_total = max(lv.cut_total for lv in window)
        return _cut_entries(self, limit)

    patch.setattr(Lanes, "cut_entries", cut_entries)


def _names_carries_by_window(patch: Patch) -> None:
    def name(self: Entry) -> str:
        own = self.event_id or (self.start_us, self.version, self.revision)
        return f"{self.kind}:{own}:{self.tenant_id}:{self.metric}"

    patch.setattr(Entry, "name", property(name))


def _spreads_evenly(patch: Patch) -> None:
    sent = count()

    def wire(row: Row) -> tuple[bytes, bytes]:
        spread = replace(row, shard=1 + next(sent) % SHARDS) if row.shard else row
        return wire_of(spread)

    patch.setattr("tests.simulation.connect.wire_of", wire)


MUTANTS: Final = (
    Mutant(
        "level_without_shard",
        "what another partition counts of a tenant is another level",
        _adds_shards_up_in_one_level,
        ("lost", "unseen", "finding"),
    ),
    Mutant(
        "one_level_for_all_shards",
        "the ledger keeps a reading for each shard of a tenant",
        _keeps_one_level_for_all,
        ("lost", "unseen", "finding"),
    ),
    Mutant(
        "cut_beside_another_shard",
        "an entry is what its own level has grown by since the last one",
        _cuts_beside_others,
        ("lost", "ledger"),
    ),
    Mutant(
        "carried_by_window_alone",
        "what is carried is named by the series it comes from, its shard included",
        _names_carries_by_window,
        ("lost", "stuck"),
        ("busy_shards", "invoices_close"),
    ),
    Mutant(
        "keyed_to_another_shard",
        "copies of an identity are on one key: its shard follows from nothing else",
        _spreads_evenly,
        ("double", "identity_phantom", "homeless"),
        ("all_emitted_again",),
    ),
)
