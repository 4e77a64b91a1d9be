"""Each planted bug is noticed by the invariant that it breaks; what breaks nothing is not."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.simulation.hunt import hunt
from tests.simulation.mutants import SEEDS_MAX, Mutant, Patch, every
from tests.simulation.rules import RULES
from tests.simulation.run import quiet

MUST_BE_THERE = frozenset({
    "marked_before_outputs", "offset_before_settling", "no_fence", "identifier_per_try",
    "one_idempotency_key", "doubt_forgotten", "dead_in_an_outage",
    "packed_record_after_the_batch", "offset_not_in_the_batch", "expiry_by_the_clock",
    "level_without_count", "level_without_birth", "rule_book_of_its_own",
    "decision_inside_the_level", "offsets_of_any_log", "positions_outside_the_ledger",
    "told_before_acknowledged", "audit_by_one_snapshot", "two_owners_without_guard",
    "any_duplicate_is_success", "negative_overtakes", "sent_past_its_deadline", "doubt_carried",
    "closed_at_its_end", "oldest_ids_lost", "judged_by_arrival", "counts_added_up",
    "level_without_shard", "cut_beside_another_shard", "keyed_to_another_shard",
    "one_person_suffices", "lent_in_a_pause", "slept_and_knows_all", "note_overwritten",
    "grown_without_memory", "grown_without_waiting", "growth_overlooked",
})  # fmt: skip
"""The rules that everything rests on: none of them is ever without its planted bug."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


# A survivor takes all seeds before it fails.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", tuple(every()), ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_noticed(mutant: Mutant) -> None:
    found = hunt(mutant, SEEDS_MAX)
    assert found.caught, found.line()


def _nothing(_patch: Patch) -> None:
    """A bug that is none."""


def test_a_bug_that_no_seed_notices_survives() -> None:
    found = hunt(Mutant("nothing", "no rule", _nothing, ("lost", "double")), 3)
    assert not found.caught
    assert "SURVIVES 3 seeds" in found.line()
    assert found.document()["caught"] is False


def _loses_late_usage(patch: Patch) -> None:
    rules = {name: (replace(of[0], late_us=1),) for name, of in RULES.items()}
    patch.setattr("tests.simulation.rules.RULES", rules)


def test_a_seed_that_is_noticed_without_the_bug_shows_nothing() -> None:
    bug = Mutant(
        "nothing", "no rule", _nothing, ("double", "phantom"), (), ("x",), _loses_late_usage
    )
    found = hunt(bug, 3)
    assert not found.caught
    assert "SURVIVES 3 seeds" in found.line()


def test_names_are_unique_and_none_is_missing() -> None:
    names = [mutant.name for mutant in every()]
    assert len(set(names)) == len(names) >= 25
    assert set(names) >= MUST_BE_THERE


@pytest.mark.parametrize("mutant", tuple(every()), ids=lambda mutant: mutant.name)
def test_layers_that_are_off_are_named(mutant: Mutant) -> None:
    plain = Mutant("", "", _nothing, ())
    assert bool(mutant.layers_off) == (mutant.layers is not plain.layers)
