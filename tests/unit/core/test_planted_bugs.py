"""Each rule of money is pinned: planting its commonest bug makes a named property fail."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from streams.core import admission, catalogue, level, quantity, verdict, window
from streams.core import mark as marking
from streams.core.admission import _Admission
from streams.core.catalogue import Catalogue, MeterVersion
from streams.core.event import UsageEvent
from streams.core.level import Reading, Tally
from tests.unit.core import properties
from tests.unit.core.properties import run

Patch = pytest.MonkeyPatch
_at, _mark, _judge, _add, _onto = (
    Catalogue.at, _Admission._mark, verdict.judge, Tally.add, Tally.onto,
)  # fmt: skip


def window_end_is_inclusive(patch: Patch) -> None:
    for module in (window, verdict):
        patch.setattr(module, "window_start_us", lambda at, length: (at - 1) - (at - 1) % length)


def conflict_is_taken_as_duplicate(patch: Patch) -> None:
    def again(self: _Admission, *_: Any, **__: Any) -> None:
        self.decided.counts["duplicate"] += 1

    patch.setattr(_Admission, "_again", again)


def late_begins_one_microsecond_too_soon(patch: Patch) -> None:
    def at(self: Catalogue, metric: str, occurred_at_us: int) -> Any:
        found = _at(self, metric, occurred_at_us)
        if isinstance(found, MeterVersion):
            return found._replace(skew_max_us=found.skew_max_us - 1)
        return found

    patch.setattr(Catalogue, "at", at)


def late_is_never_asked(patch: Patch) -> None:
    def at(self: Catalogue, metric: str, occurred_at_us: int) -> Any:
        found = _at(self, metric, occurred_at_us)
        return found._replace(skew_max_us=2**60) if isinstance(found, MeterVersion) else found

    patch.setattr(Catalogue, "at", at)


def newest_rules_judge_old_usage(patch: Patch) -> None:
    def at(self: Catalogue, metric: str, _occurred_at_us: int) -> Any:
        return _at(self, metric, self.complete_until_us - 1)

    patch.setattr(Catalogue, "at", at)


def count_does_not_grow(patch: Patch) -> None:
    def add(self: Tally, offset: int, units: int, digest: int) -> None:
        _add(self, offset, units, digest)
        self.records = 1

    patch.setattr(Tally, "add", add)


def digest_is_forgotten(patch: Patch) -> None:
    patch.setattr(Tally, "add", lambda self, at, units, _digest: _add(self, at, units, 0))


def digest_is_not_reduced(patch: Patch) -> None:
    patch.setattr(level, "_DIGEST_MASK", -1)


def birth_moves_with_each_chunk(patch: Patch) -> None:
    def onto(self: Tally, before: Reading | None) -> Reading:
        return replace(_onto(self, before), birth_offset=self.birth_offset)

    patch.setattr(Tally, "onto", onto)


def last_offset_stands_still(patch: Patch) -> None:
    """What the ledger lacks would look told."""

    def add(self: Tally, offset: int, units: int, digest: int) -> None:
        _add(self, offset, units, digest)
        self.last_offset = self.birth_offset

    patch.setattr(Tally, "add", add)


def chunk_starts_from_nothing(patch: Patch) -> None:
    patch.setattr(Tally, "onto", lambda self, _before: _onto(self, None))


def copies_inside_a_chunk_are_not_seen(patch: Patch) -> None:
    def mark(self: _Admission, record: Any, event: Any, identity: bytes, *of: Any) -> None:
        _mark(self, record, event, identity, *of)
        self.known.pop(identity)

    patch.setattr(_Admission, "_mark", mark)


def late_ones_are_not_remembered(patch: Patch) -> None:
    def mark(self: _Admission, record: Any, event: Any, identity: bytes, *of: Any) -> None:
        _mark(self, record, event, identity, *of)
        if of[0] == "review":
            self.known.pop(identity)
            self.decided.seen.pop()

    patch.setattr(_Admission, "_mark", mark)


def floor_is_ignored(patch: Patch) -> None:
    def judge(event: UsageEvent, book: Catalogue, _floor_us: int, **options: Any) -> Any:
        return _judge(event, book, -(2**62), **options)

    patch.setattr(admission, "judge", judge)


def floor_itself_counts_as_remembered(patch: Patch) -> None:
    def judge(event: UsageEvent, book: Catalogue, floor_us: int, **options: Any) -> Any:
        return _judge(event, book, floor_us - 1, **options)

    patch.setattr(admission, "judge", judge)


def early_is_never_asked(patch: Patch) -> None:
    patch.setattr(verdict, "EARLY_MAX_US", 2**60)


def early_begins_one_microsecond_too_late(patch: Patch) -> None:
    patch.setattr(verdict, "EARLY_MAX_US", catalogue.EARLY_MAX_US + 1)


def far_future_moves_the_horizon(patch: Patch) -> None:
    patch.setattr(admission, "AHEAD_MAX_US", 2**60)


def wrong_clock_is_billed(patch: Patch) -> None:
    patch.setattr(verdict, "AHEAD_MAX_US", 2**60)


def quantities_pass_through_float(patch: Patch) -> None:
    def to_units(text: str, scale: int) -> int:
        quantity.to_units(text, scale)
        return int(float(text) * 10**scale)

    patch.setattr(verdict, "to_units", to_units)


def limit_is_one_too_high(patch: Patch) -> None:
    patch.setattr(verdict, "UNITS_LIMIT", 10**15 + 1)


def later_copy_wins_a_merge(patch: Patch) -> None:
    patch.setattr(marking, "earlier", lambda left, right: max(left, right, key=lambda m: m[9:]))


def older_reading_wins_a_merge(patch: Patch) -> None:
    patch.setattr(level, "newer", min)


def window_meters_make_entries_too(patch: Patch) -> None:
    accept = _Admission._accept

    def twice(self: _Admission, record: Any, event: UsageEvent, accepted: Any) -> None:
        accept(self, record, event, accepted)
        accept(self, record, event, accepted)

    patch.setattr(_Admission, "_accept", twice)


def store_truncates_large_totals(patch: Patch) -> None:
    encode = level.encode_reading
    patch.setattr(
        "tests.unit.core.properties.encode_reading",
        lambda reading: encode(replace(reading, total=reading.total & 0xFFFFFFFF)),
    )


PLANTED: list[tuple[Callable[[Patch], None], Callable[..., None]]] = [
    (window_end_is_inclusive, properties.levels_are_the_sums_of_what_was_accepted),
    (window_end_is_inclusive, properties.windows_tile_the_line),
    (conflict_is_taken_as_duplicate, properties.each_record_has_the_name_the_rules_give_it),
    (late_begins_one_microsecond_too_soon, properties.each_record_has_the_name_the_rules_give_it),
    (late_is_never_asked, properties.each_record_has_the_name_the_rules_give_it),
    (newest_rules_judge_old_usage, properties.levels_are_the_sums_of_what_was_accepted),
    (count_does_not_grow, properties.levels_are_the_sums_of_what_was_accepted),
    (count_does_not_grow, properties.cells_hold_each_identity_once),
    (digest_is_forgotten, properties.levels_are_the_sums_of_what_was_accepted),
    (digest_is_forgotten, properties.cells_hold_each_identity_once),
    (digest_is_not_reduced, properties.cells_hold_each_identity_once),
    (birth_moves_with_each_chunk, properties.every_prefix_in_every_chunking_comes_to_the_same),
    (last_offset_stands_still, properties.levels_are_the_sums_of_what_was_accepted),
    (last_offset_stands_still, properties.cells_hold_each_identity_once),
    (chunk_starts_from_nothing, properties.every_prefix_in_every_chunking_comes_to_the_same),
    (copies_inside_a_chunk_are_not_seen, properties.copies_change_nothing_but_counts),
    (late_ones_are_not_remembered, properties.copies_change_nothing_but_counts),
    (floor_is_ignored, properties.each_record_has_the_name_the_rules_give_it),
    (floor_itself_counts_as_remembered, properties.each_record_has_the_name_the_rules_give_it),
    (early_is_never_asked, properties.each_record_has_the_name_the_rules_give_it),
    (early_begins_one_microsecond_too_late, properties.each_record_has_the_name_the_rules_give_it),
    (far_future_moves_the_horizon, properties.a_clock_ahead_moves_no_horizon),
    (wrong_clock_is_billed, properties.each_record_has_the_name_the_rules_give_it),
    (quantities_pass_through_float, properties.levels_are_the_sums_of_what_was_accepted),
    (limit_is_one_too_high, properties.each_record_has_the_name_the_rules_give_it),
    (later_copy_wins_a_merge, properties.marks_of_two_owners_merge_to_the_first_copy),
    (older_reading_wins_a_merge, properties.packed_parts_merge_to_the_state),
    (window_meters_make_entries_too, properties.entries_and_corrections_stand_once),
    (window_meters_make_entries_too, properties.levels_are_the_sums_of_what_was_accepted),
    (store_truncates_large_totals, properties.stored_state_comes_back),
]


@pytest.mark.parametrize(
    ("plant", "claim"),
    PLANTED,
    ids=[f"{plant.__name__}-{claim.__name__}" for plant, claim in PLANTED],
)
def test_falls(
    plant: Callable[[Patch], None], claim: Callable[..., None], monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run(claim, max_examples=400, planted=True)
