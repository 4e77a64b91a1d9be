"""A log decided again agrees with what the ledger was told of it, and names what does not."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.core.catalogue import history_hash
from streams.core.fact import CanaryFact, CorrectionFact, EventFact, ParkedFact, Series
from streams.core.fact_codec import StoredFact
from streams.core.instant import DAY_US, HOUR_US
from streams.core.level import CellKey, Key, Reading
from streams.core.replay import (
    EARLIER_US,
    Entered,
    Parked,
    Reach,
    Sum,
    ToldFacts,
    asked_of,
    compare_facts,
    compare_readings,
)
from streams.core.trial import Figure, Written, figures_of, original, summed
from tests.support.events import (
    METERS,
    T0_US,
    Partition,
    Record,
    canary,
    chunk_sizes,
    correction,
    log_of,
    logs,
    meter,
    usage,
)

WHOLE = Reach(None, whole=True)
ONE, JOB = usage("one", "2"), usage("job", "5", metric="jobs")
LATE = usage("late", "3", received_us=T0_US + 2 * DAY_US)
LOG = log_of([ONE, JOB, LATE, b"{", correction(ONE, "-1"), canary(), ONE])


def told_sums(readings: Mapping[Key, Reading]) -> dict[Key, Sum]:
    """What a ledger holds that was told all of them."""
    return {key: Sum(r.records, r.total, r.digest, r.birth_offset) for key, r in readings.items()}


def told_facts(facts: Iterable[tuple[int, StoredFact]]) -> ToldFacts:
    """What a ledger holds that was told all of these."""
    entries: dict[tuple[str, str], Entered] = {}
    parked: set[Parked] = set()
    for offset, fact in facts:
        if isinstance(fact, CanaryFact):
            continue
        name = None if fact.event_id is None else str(UUID(bytes=fact.event_id))
        if isinstance(fact, ParkedFact):
            place = offset if name is None else None
            parked.add(Parked(fact.kind, fact.reason, name, fact.content, place))
            continue
        kind, units = ("event", fact.units) if isinstance(fact, EventFact) else (
            "correction", fact.delta_units,
        )  # fmt: skip
        series = fact.series
        entries[kind, str(name)] = Entered(units, series.window_start_us, series.catalogue_version)
    return ToldFacts(entries, frozenset(parked))


@settings(max_examples=25)
@given(logs(), chunk_sizes)
def test_a_replay_in_any_chunks_differs_in_nothing(log: list[Record], sizes: list[int]) -> None:
    worker, replayed = Partition().run(log), Partition().run(log, sizes)
    readings = compare_readings(replayed.readings, told_sums(worker.readings), WHOLE)
    facts = compare_facts(replayed.facts, told_facts(worker.facts), WHOLE)
    assert (readings.differences, facts.differences) == ([], [])
    assert (readings.equal, readings.partly, facts.partly) == (len(worker.readings), 0, 0)


def test_a_level_that_says_something_else_is_named_with_both_sides() -> None:
    partition = Partition().run(LOG)
    told = told_sums(partition.readings)
    (series,) = (key for key in told if isinstance(key, Series))
    told[series] = told[series]._replace(total=9)
    (difference,) = compare_readings(partition.readings, told, WHOLE).differences
    assert difference.kind == "level"
    assert difference.subject == "acme api_calls v1 2026-11-29T00:00:00.000000Z"
    assert (" 2 units" in difference.replayed, " 9 units" in difference.ledger) == (True, True)


def test_what_one_side_lacks_is_a_difference_and_a_shard_is_named() -> None:
    partition = Partition().run(LOG)
    made_up = Series("zeta", "api_calls", 1, T0_US, T0_US + HOUR_US, 3)
    told = {**told_sums(partition.readings), made_up: Sum(1, 1, 1, 0)}
    del told[CellKey("orders", T0_US, "accepted")]
    first, second = compare_readings(partition.readings, told, WHOLE).differences
    assert (first.kind, first.ledger) == ("cell", "nothing")
    assert first.subject == "orders 2026-11-29T00:00:00.000000Z accepted"
    assert (second.subject[-8:], second.replayed) == (" shard 3", "nothing")


def test_some_tenants_records_are_compared_by_their_levels_alone() -> None:
    partition = Partition().run(LOG)
    told = told_sums({k: r for k, r in partition.readings.items() if isinstance(k, Series)})
    compared = compare_readings(partition.readings, told, WHOLE, cells=False)
    assert (compared.equal, compared.differences) == (1, [])


def test_another_birth_or_digest_is_a_difference_though_the_sums_agree() -> None:
    partition = Partition().run(LOG)
    for change in ({"birth_offset": 50}, {"digest": 50}):
        told = {key: held._replace(**change) for key, held in told_sums(partition.readings).items()}
        assert len(compare_readings(partition.readings, told, WHOLE).differences) == len(told)


def test_what_began_before_the_part_that_is_read_is_left_out() -> None:
    partition = Partition().run(LOG)
    late = Reach(T0_US - EARLIER_US + 1, whole=True)
    compared = compare_readings({}, told_sums(partition.readings), late)
    assert (compared.equal, compared.partly) == (0, 4)
    # Of the late one, which came two days later.
    assert [d.kind for d in compared.differences] == ["cell"]
    facts = compare_facts(partition.facts, told_facts([]), late)
    assert (facts.partly, [d.subject for d in facts.differences]) == (3, ["a record at offset 3"])
    at_once = Reach(T0_US - EARLIER_US, whole=True)
    assert compare_readings({}, told_sums(partition.readings), at_once).partly == 0


def test_what_may_still_come_is_no_difference_but_too_much_is() -> None:
    partition = Partition().run(LOG)
    told = told_sums(partition.readings)
    part = Reach(None, whole=False)
    more = {key: held._replace(records=held.records + 1) for key, held in told.items()}
    assert compare_readings(partition.readings, more, part).partly == len(told)
    fewer = {key: held._replace(records=0) for key, held in told.items()}
    assert len(compare_readings(partition.readings, fewer, part).differences) == len(told)


def test_entries_and_items_that_the_ledger_lacks_or_holds_otherwise_are_named() -> None:
    facts = Partition().run(LOG).facts
    missing = compare_facts(facts, ToldFacts({}, frozenset()), WHOLE).differences
    assert [(d.kind, d.replayed, d.ledger) for d in missing] == [
        ("entry", "5 units, v1 2026-11-29T00:00:00.000000Z", "none"),
        ("verdict", "review late", "no such item"),
        ("verdict", "dead malformed", "no such item"),
        ("entry", "-1 units, v1 2026-11-29T00:00:00.000000Z", "none"),
    ]
    assert missing[0].subject == f"event {JOB['event_id']} at offset 1"
    told = told_facts(facts)
    other = {key: entered._replace(units=7) for key, entered in told.entries.items()}
    changed = compare_facts(facts, told._replace(entries=other), WHOLE)
    assert (changed.equal, [d.ledger.split()[0] for d in changed.differences]) == (2, ["7", "7"])


def test_a_conflict_with_another_content_is_another_item() -> None:
    facts = Partition().run(LOG).facts
    told = told_facts(
        (
            offset,
            replace(fact, content=1) if isinstance(fact, ParkedFact) and fact.event_id else fact,
        )
        for offset, fact in facts
    )
    differences = compare_facts(facts, told, WHOLE).differences
    assert [d.replayed for d in differences] == ["review late"]


def test_what_is_asked_of_the_ledger_names_ids_and_else_offsets() -> None:
    asked = asked_of(Partition().run(LOG).facts)
    assert asked.offsets == [3]
    assert asked.event_ids[:2] == [JOB["event_id"], LATE["event_id"]]
    assert len(asked.event_ids) == 3


@settings(max_examples=25)
@given(logs(), chunk_sizes)
def test_figures_add_up_to_the_same_however_the_log_is_cut(
    log: list[Record], sizes: list[int]
) -> None:
    def figures(cuts: list[int]) -> dict[tuple[str, str], Figure]:
        partition, parts, start, turn = Partition(), [], 0, 0
        while start < len(log):
            size = cuts[min(turn, len(cuts) - 1)]
            decided = partition.decide(log[start : start + size])
            parts.append(figures_of(decided, partition.readings))
            partition.settle(decided)
            start, turn = start + size, turn + 1
        return summed(parts)

    assert figures(sizes) == figures([5_000])


def test_figures_name_meter_and_verdict() -> None:
    partition = Partition()
    assert figures_of(partition.decide(LOG), partition.readings) == {
        ("", "dead malformed"): Figure(1, 0),
        ("api_calls", "accepted"): Figure(1, 2),
        ("api_calls", "correction"): Figure(1, -1),
        ("api_calls", "review late"): Figure(1, 3),
        ("jobs", "accepted"): Figure(1, 5),
    }
    assert any(isinstance(fact, CorrectionFact) for _, fact in partition.decide(LOG).facts)


@given(st.integers(0, len(METERS)))
def test_the_rule_book_of_a_hash_is_found_as_it_stood(count: int) -> None:
    history = [Written(at_us, version) for at_us, version in enumerate(METERS)]
    wanted = METERS[:count]
    assert original(history, history_hash(wanted)) == wanted


def test_lines_written_at_once_belong_together_and_a_foreign_hash_is_none() -> None:
    history = [Written(1, METERS[0]), Written(1, METERS[2]), Written(2, METERS[3])]
    assert original(history, history_hash(METERS[:1])) is None
    assert original(history, history_hash((METERS[0], METERS[2]))) == (METERS[0], METERS[2])
    assert original(history, history_hash((meter("another"),))) is None
