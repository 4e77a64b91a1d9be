"""No order of readings, corrections, claims, answers and deaths changes what is billed."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.simulation.lanes_machine import LanesMachine
from tests.simulation.ledger.facts import Facts
from tests.simulation.ledger.lanes import Lanes
from tests.simulation.ledger.people import People
from tests.simulation.ledger.work_list import WorkList
from tests.support.machines import assert_caught

STEPS = 40


def test_no_sequence_changes_what_is_billed() -> None:
    chosen = settings(max_examples=150, stateful_step_count=STEPS, deadline=None)
    run_state_machine_as_test(LanesMachine, settings=chosen)


def _merges_what_is_under_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkList, "unfinished", lambda *_: False)


def _merges_what_may_be_executed(patch: pytest.MonkeyPatch) -> None:
    merge_pending = Lanes.merge_pending

    def merge(self: Lanes, lanes: Any) -> int:
        for m in self.tables.meter_events:
            m.possibly_executed = False
            m.state = "pending" if m.state == "ambiguous" else m.state
        return merge_pending(self, lanes)

    patch.setattr(Lanes, "merge_pending", merge)


def _lets_negatives_pass(patch: pytest.MonkeyPatch) -> None:
    open_in = Lanes.open_in

    def candidate(self: Lanes, lane_id: int) -> Any:
        patch.setattr(Lanes, "open_in", lambda *_: [])
        found = _candidate(self, lane_id)
        patch.setattr(Lanes, "open_in", open_in)
        return found

    _candidate = Lanes._candidate
    patch.setattr(Lanes, "_candidate", candidate)


def _takes_any_reading(patch: pytest.MonkeyPatch) -> None:
    apply_levels = Facts.apply_levels

    def apply(self: Facts, log_id: str, partition: int, rows: str) -> int:
        for level in self.tables.levels.values():
            level.count = -1
        return apply_levels(self, log_id, partition, rows)

    patch.setattr(Facts, "apply_levels", apply)
    patch.setattr(Facts, "find_levels", lambda *_: 0)


def _corrects_each_time(patch: pytest.MonkeyPatch) -> None:
    correct = People.correct

    def again(self: People, tenant: str, metric: str, at_us: int, units: int, key: str) -> int:
        return correct(self, tenant, metric, at_us, units, f"{key}-{len(self.tables.entries)}")

    patch.setattr(People, "correct", again)


def _lends_what_is_lent(patch: pytest.MonkeyPatch) -> None:
    lock_lanes = Lanes.lock_lanes

    def lock(self: Lanes, limit: int) -> Any:
        for lane in self.tables.lanes.values():
            lane.claimed_until_us, lane.next_due_us = None, 0
        for m in self.tables.meter_events:
            m.next_attempt_us = 0 if m.open else m.next_attempt_us
        return lock_lanes(self, limit)

    patch.setattr(Lanes, "lock_lanes", lock)


def _forgets_what_merging_covered(patch: pytest.MonkeyPatch) -> None:
    freeze = Lanes.freeze

    def first_alone(self: Lanes, requests: str) -> Any:
        told = msgspec.json.decode(requests)
        for request in told:
            for entry_id in request["entry_ids"][1:]:
                del self.tables.uncovered[entry_id]
            del request["entry_ids"][1:]
        return freeze(self, msgspec.json.encode(told).decode())

    patch.setattr(Lanes, "freeze", first_alone)


@pytest.mark.parametrize(
    "plant",
    [
        _merges_what_is_under_way,
        _merges_what_may_be_executed,
        _lets_negatives_pass,
        _takes_any_reading,
        _corrects_each_time,
        _lends_what_is_lent,
        _forgets_what_merging_covered,
    ],
    ids=lambda plant: plant.__name__.strip("_"),
)
def test_planted(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert_caught(LanesMachine, examples=600, steps=STEPS)
