"""A chunk to its settlement: what goes where, in which order, and what stops it."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from streams import topics
from streams.agents import admit
from streams.agents.memory import memory_of
from streams.core.instant import HOUR_US
from streams.core.level import Reading
from streams.engine.chunk import Chunk, Guards
from streams.engine.errors import (
    ChunkTooLarge,
    DeliveryFailed,
    Fenced,
    LogChanged,
    PartitionHeld,
    SettlementRefused,
    StateUnavailable,
)
from streams.engine.settlement import Settlement
from streams.ports import OutputsDeadError, UndeliveredError
from tests.support.events import CATALOGUE, T0_US, canary, conflict, log_of, usage
from tests.unit.agents.checks import check_end, check_state, totals, whole
from tests.unit.agents.world import Life, World

Worlds = Callable[[Any], World]
NEWER: Final = usage("newer", v=2)
LATE_US: Final = T0_US + 30 * HOUR_US


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admit, "CATALOGUE_DEADLINE_S", 0.05)


# -- where it goes --------------------------------------------------------------------------------


async def test_each_verdict_has_its_topic_and_its_count(world_of: Worlds, begin: Any) -> None:
    first = usage("a", "5")
    world = world_of(
        [
            first,
            first,
            usage("late", received_us=LATE_US),
            conflict(first, event_key="a", quantity="6"),
            b"{",
            usage("job", metric="jobs"),
            canary(1),
        ]
    )
    life = await begin(world)
    assert await life.feed()
    sent = {topic: len(records) for topic, records in world.broker.outputs.items()}
    assert sent == {topics.ACCEPTED: 2, topics.REVIEW: 2, topics.DEAD_LETTER: 1}
    assert life.admitter.figures.verdicts == {
        "accepted": 2,
        "duplicate": 1,
        "review": 1,
        "conflict": 1,
        "dead": 1,
        "canary": 1,
    }
    assert (life.admitter.figures.chunks, life.admitter.figures.records) == (1, 7)
    await life.tell()
    check_end(world, life.table)


@pytest.mark.parametrize(("metric", "rings"), [("jobs", True), ("api_calls", False)])
async def test_the_bell_is_rung_for_events_that_are_entries_of_their_own(
    world_of: Worlds, begin: Any, metric: str, rings: bool
) -> None:
    """And not for readings: those are told once in an interval, however many records they hold."""
    life = await begin(world_of([usage("a", metric=metric), canary(1), b"{"]))
    assert await life.feed()
    resting = asyncio.get_running_loop().create_task(life.admitter.entries.rest(3_600.0))
    for _ in range(5):
        await asyncio.sleep(0)
    if rings:
        async with asyncio.timeout(5):
            await resting
    else:
        assert not resting.done()
        resting.cancel()


async def test_outputs_keep_the_key_so_that_a_tenant_stays_in_order(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a", tenant_id="acme"), usage("b", tenant_id="zeta")])
    await (await begin(world)).feed()
    assert [key for key, _ in world.broker.outputs[topics.ACCEPTED]] == [b"acme", b"zeta"]


async def test_a_record_with_which_two_workers_ended_is_parked_unread(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("killer", "5")])
    life = await begin(world)
    await life.admitter.admit(whole(life, suspect=0))
    (_, value), *_ = world.broker.outputs[topics.DEAD_LETTER]
    assert b"parked unread" in value
    # Nothing is said against it: what ended them may have met it by chance, and it is still owed.
    assert (b'"kind":"unread"' in value, b"metering.reemit" in value) == (True, True)
    assert totals(life) == {}
    assert life.table.applied == 0


# -- order ----------------------------------------------------------------------------------------


async def test_outputs_then_packed_record_then_table_then_memory(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of([usage("a"), usage("late", received_us=LATE_US)])
    life = await begin(world)
    memory, settle = memory_of(life.table), life.table.settle

    def settling(batch: Settlement) -> None:
        assert memory.readings == {}, "memory ran ahead of the table"
        settle(batch)
        world.effects.append("table")

    async def asked(question: str) -> None:
        world.effects.append(question)

    monkeypatch.setattr(life.table, "settle", settling)
    guards = Guards(verify_log=lambda: asked("whose log"), fence=lambda: asked("ours?"))
    chunk = whole(life, guards=guards)
    await life.admitter.admit(chunk)
    assert world.effects == ["whose log", "ours?", "outputs", "packed", "table"]
    assert memory.readings
    assert chunk.done.is_set()
    assert chunk.reached == "settled"


@pytest.mark.parametrize("error", [LogChanged("another log"), Fenced("another worker's")])
@pytest.mark.parametrize(
    "guarded",
    [lambda ask: Guards(verify_log=ask), lambda ask: Guards(fence=ask)],
    ids=["verify_log", "fence"],
)
async def test_a_guard_that_says_no_comes_before_any_output(
    world_of: Worlds, begin: Any, guarded: Callable[[Any], Guards], error: Exception
) -> None:
    async def refuse() -> None:
        raise error

    world = world_of([usage("a")])
    life = await begin(world)
    chunk = whole(life, guards=guarded(refuse))
    with pytest.raises(type(error)):
        await life.admitter.admit(chunk)
    assert life.outputs.queue == []
    assert world.broker.packed == []
    assert life.table.applied == -1


# -- what fails leaves nothing --------------------------------------------------------------------


def outputs_fail(life: Life, _: pytest.MonkeyPatch) -> None:
    life.outputs.fault = UndeliveredError("usage.accepted: _MSG_TIMED_OUT")


def packed_log_fails(life: Life, _: pytest.MonkeyPatch) -> None:
    life.producer.fault = KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))


def packed_record_is_too_large(life: Life, _: pytest.MonkeyPatch) -> None:
    life.producer.fault = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))


def disk_is_full(life: Life, patch: pytest.MonkeyPatch) -> None:
    def write(*_: Any, **__: Any) -> None:
        message = "no space left on device"
        raise StateUnavailable(message)

    patch.setattr(life.table._store, "write", write)


@pytest.mark.parametrize(
    ("fail", "error"),
    [
        (outputs_fail, DeliveryFailed),
        (packed_log_fails, DeliveryFailed),
        (packed_record_is_too_large, ChunkTooLarge),
        (disk_is_full, StateUnavailable),
    ],
    ids=lambda one: one.__name__,
)
async def test_a_failure_leaves_table_and_memory_untouched(
    world_of: Worlds,
    begin: Any,
    monkeypatch: pytest.MonkeyPatch,
    fail: Callable[[Life, pytest.MonkeyPatch], None],
    error: type[Exception],
) -> None:
    world = world_of([usage("a", "5"), usage("b", "7"), usage("job", metric="jobs")])
    life = await begin(world)
    assert await life.feed(1)
    memory = memory_of(life.table)
    before = dict(memory.readings), set(memory.dirty), life.table.meta
    with monkeypatch.context() as patch:
        fail(life, patch)
        with pytest.raises(error):
            await life.admitter.admit(whole(life))
    assert (memory.readings, memory.dirty, life.table.meta) == before
    check_state(world, life.table)

    life.outputs.fault = life.producer.fault = None
    life.discard()
    check_state(world, life.table)
    await life.feed()
    await life.tell()
    check_end(world, life.table)


async def test_undelivered_outputs_are_no_records_fault(world_of: Worlds, begin: Any) -> None:
    """A fault with this name takes the mark back that would otherwise lead to parking."""
    life = await begin(world_of([usage("a")]))
    life.outputs.fault = UndeliveredError("usage.accepted: _MSG_TIMED_OUT")
    assert await life.feed()
    assert [type(one) for one in life.refused] == [DeliveryFailed]
    assert "usage.accepted" in str(life.refused[0])


async def test_a_dead_producer_ends_the_worker(world_of: Worlds, begin: Any) -> None:
    life = await begin(world_of([usage("a")]))
    life.outputs.fault = OutputsDeadError("_FATAL")
    with pytest.raises(OutputsDeadError):
        await life.feed()


# -- the settlement -------------------------------------------------------------------------------


async def test_the_settlement_of_a_part_covers_just_that_part(world_of: Worlds, begin: Any) -> None:
    world = world_of([usage("a"), usage("b"), NEWER])
    life = await begin(world)
    with pytest.raises(PartitionHeld):
        await life.admitter.admit(whole(life))
    records = log_of([usage("a"), usage("b")])
    assert life.table.meta.anchor == Chunk(life.table.log, 0, 1, records, life.table).anchor  # type: ignore[arg-type]  # the engine's own record has the same fields
    assert life.table.log_time_ms == records[-1].timestamp_ms
    assert life.table.meta.catalogue_hash == CATALOGUE.hash
    packed = world.broker.packed[-1]
    assert msgspec.msgpack.decode(packed[3:])[2:4] == [0, 1]


async def test_a_settlement_that_contradicts_itself_never_reaches_the_packed_log(
    world_of: Worlds, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settlement_of = admit.settlement_of

    def broken(chunk: Chunk, decided: Any, catalogue: Any) -> Settlement:
        settlement = settlement_of(chunk, decided, catalogue)
        settlement.anchor = b""
        return settlement

    monkeypatch.setattr(admit, "settlement_of", broken)
    world = world_of([usage("a")])
    life = await begin(world)
    with pytest.raises(SettlementRefused, match="anchor"):
        await life.admitter.admit(whole(life))
    assert world.broker.packed == []


async def test_a_reading_that_was_acknowledged_beside_the_chunk_is_told_again_at_worst(
    world_of: Worlds, begin: Any
) -> None:
    world = world_of([usage("a", "5"), usage("b", "7")])
    life = await begin(world)
    assert await life.feed(1)
    life.outputs.meanwhile = life.tell
    assert await life.feed(1)
    level = next(r for r in memory_of(life.table).readings.values() if r.total)
    assert isinstance(level, Reading)
    assert level.last_offset > life.table.acknowledged
    assert (level.records, level.total) == (2, 12)
    await life.tell()
    check_end(world, life.table)
