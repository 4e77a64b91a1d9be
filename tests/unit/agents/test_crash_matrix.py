"""A worker may die anywhere, with its disk or without: totals, ids and facts stay those of the log.

Every check of `world.live` is then proven to see what it is there for: each planted bug in the
order of effects makes it fail.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams.agents import admit, facts
from streams.agents.admit import Admitter
from streams.agents.facts import Collected, collect
from streams.agents.memory import PartitionMemory
from streams.core.catalogue import Catalogue
from streams.core.decided import Decided
from streams.core.instant import HOUR_US
from streams.crash_points import STEPS
from streams.engine import packed_log
from streams.engine.chunk import Chunk
from streams.engine.errors import RecoveryGap
from streams.engine.packed import PackedRecord, pack
from streams.engine.settlement import Settlement
from tests.support.events import T0_US, canary, conflict, correction, log_of, logs, usage
from tests.unit.agents.checks import live
from tests.unit.agents.world import Death, World

FIRST: Final = usage("a", "5")
LOG: Final = log_of(
    [
        FIRST,
        usage("b", "7"),
        usage("job-1", "3", metric="jobs"),
        FIRST,
        usage("c", "2", occurred_us=T0_US + HOUR_US),
        usage("job-2", "4", metric="jobs"),
        conflict(FIRST, event_key="a", quantity="6"),
        b"{",
        usage("d", "1", tenant_id="zeta"),
        correction(FIRST, "-2"),
        usage("b", "7"),
        canary(1),
        usage("e", "11"),
        usage("unknown", "1", metric="no_such_meter"),
        usage("job-1", "3", metric="jobs"),
        usage("f", "13"),
    ]
)
ALL_STEPS: Final = (*STEPS, "ledger_told")


@pytest.fixture(autouse=True)
def _few_facts_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that positions stop before facts that were left out."""
    monkeypatch.setattr(facts, "UNSENT_LIMIT", 1)


async def test_without_a_death_everything_is_as_the_log_says(tmp_path: Path) -> None:
    await live(World(tmp_path, LOG), [], [3])


@pytest.mark.parametrize("disk_lost", [False, True], ids=["disk_kept", "disk_lost"])
@pytest.mark.parametrize("nth", [1, 2, 4])
@pytest.mark.parametrize("step", ALL_STEPS)
async def test_death_at_a_step(tmp_path: Path, step: str, nth: int, *, disk_lost: bool) -> None:
    await live(World(tmp_path, LOG), [Death(step, nth, disk_lost)], [3])


@pytest.mark.parametrize("second", ALL_STEPS)
async def test_death_after_death(tmp_path: Path, second: str) -> None:
    deaths = [Death(step, 2, disk_lost=n % 3 == 2) for n, step in enumerate((*ALL_STEPS, second))]
    await live(World(tmp_path, LOG), deaths, [2, 1])


deaths_drawn = st.lists(
    st.builds(Death, st.sampled_from(ALL_STEPS), st.integers(1, 4), st.booleans()), max_size=3
)


@given(source=logs(), deaths=deaths_drawn, sizes=st.lists(st.integers(1, 9), min_size=1))
@settings(
    max_examples=25,
    deadline=None,
    # The directory of a test is shared by its examples; each takes a new one inside.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_any_log_any_deaths(
    tmp_path_factory: pytest.TempPathFactory, source: Any, deaths: list[Death], sizes: list[int]
) -> None:
    await live(World(tmp_path_factory.mktemp("world"), source), deaths, sizes)


# -- planted bugs ---------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch
_settle, _settlement_of, _settled = Admitter._settle, admit.settlement_of, PartitionMemory.settled


def patch_settle(patch: Patch, body: Callable[..., Awaitable[None]]) -> None:
    patch.setattr(Admitter, "_settle", body)


def packed_record_after_the_table(patch: Patch) -> None:
    async def settle(
        self: Admitter, chunk: Chunk, memory: PartitionMemory, decided: Decided, cat: Catalogue
    ) -> None:
        await self._produce(decided)
        chunk.step("outputs_produced")
        settlement = admit.settlement_of(chunk, decided, cat)
        chunk.table.settle(settlement)
        chunk.step("batch_written")
        await self._packed_log.append(chunk.table, settlement)
        chunk.step("packed_produced")
        memory.settled(decided.readings, cat.hash)

    patch_settle(patch, settle)


def packed_record_before_the_outputs(patch: Patch) -> None:
    async def settle(
        self: Admitter, chunk: Chunk, memory: PartitionMemory, decided: Decided, cat: Catalogue
    ) -> None:
        settlement = admit.settlement_of(chunk, decided, cat)
        await self._packed_log.append(chunk.table, settlement)
        chunk.step("packed_produced")
        await self._produce(decided)
        chunk.step("outputs_produced")
        chunk.table.settle(settlement)
        chunk.step("batch_written")
        memory.settled(decided.readings, cat.hash)

    patch_settle(patch, settle)


def memory_before_the_table(patch: Patch) -> None:
    async def settle(
        self: Admitter, chunk: Chunk, memory: PartitionMemory, decided: Decided, cat: Catalogue
    ) -> None:
        _settled(memory, decided.readings, cat.hash)
        await _settle(self, chunk, memory, decided, cat)

    patch.setattr(PartitionMemory, "settled", lambda *_: None)
    patch_settle(patch, settle)


def seen_is_not_written(patch: Patch) -> None:
    def settlement_of(chunk: Chunk, decided: Decided, catalogue: Catalogue) -> Settlement:
        settlement = _settlement_of(chunk, decided, catalogue)
        settlement.seen = []
        return settlement

    patch.setattr(admit, "settlement_of", settlement_of)


def _packs(patch: Patch, **missing: Any) -> None:
    def without(*args: Any, **kwargs: Any) -> PackedRecord:
        from msgspec.structs import replace  # noqa: PLC0415 - named as in the engine

        return replace(pack(*args, **kwargs), **missing)

    patch.setattr(packed_log, "pack", without)


def unsent_is_not_packed(patch: Patch) -> None:
    _packs(patch, unsent=[])


def ids_are_not_packed(patch: Patch) -> None:
    _packs(patch, ids=b"", values=b"")


def levels_are_not_packed(patch: Patch) -> None:
    _packs(patch, levels=[])


def position_passes_an_unsent_fact(patch: Patch) -> None:
    def bold(of: PartitionMemory) -> tuple[Collected | None, bool]:
        collected, more = collect(of)
        if collected is not None:
            object.__setattr__(collected.batch, "position", of.table.applied)
        return collected, more

    patch.setattr(facts, "collect", bold)


def position_passes_what_was_told(patch: Patch) -> None:
    """What was settled while the ledger answered is noted as told."""
    acknowledge = PartitionMemory.acknowledge

    def bold(self: PartitionMemory, _position: int, told: Any, sent: Any) -> None:
        acknowledge(self, self.table.applied, told, sent)

    patch.setattr(PartitionMemory, "acknowledge", bold)


def told_counts_as_clean(patch: Patch) -> None:
    """The mark is cleared by key, though the reading grew while the ledger answered."""
    acknowledge = PartitionMemory.acknowledge

    def clearing(self: PartitionMemory, position: int, told: Any, sent: Any) -> None:
        acknowledge(self, position, told, sent)
        self.dirty.difference_update(told)

    patch.setattr(PartitionMemory, "acknowledge", clearing)


def facts_are_marked_before_the_ledger_has_them(patch: Patch) -> None:
    send_one = facts.FactSender._send_one

    async def send(self: facts.FactSender, of: PartitionMemory) -> bool:
        collected, _ = collect(of)
        if collected is None:
            return False
        of.acknowledge(collected.batch.position, collected.told, collected.keys)
        return await send_one(self, of)

    patch.setattr(facts.FactSender, "_send_one", send)


BUGS: Final = (
    packed_record_after_the_table,
    packed_record_before_the_outputs,
    memory_before_the_table,
    seen_is_not_written,
    unsent_is_not_packed,
    ids_are_not_packed,
    levels_are_not_packed,
    position_passes_an_unsent_fact,
    position_passes_what_was_told,
    told_counts_as_clean,
    facts_are_marked_before_the_ledger_has_them,
)
SCHEDULES: Final = (
    [],
    *([Death(step, 2, disk_lost)] for step in ALL_STEPS for disk_lost in (False, True)),
    *([Death("ledger_told", nth, disk_lost=True)] for nth in range(1, 10)),
)


async def live_through_all(root: Path) -> None:
    for number, deaths in enumerate(SCHEDULES):
        await live(World(root / str(number), LOG), deaths, [3])


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
async def test_a_planted_bug_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Callable[[Patch], None]
) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, RecoveryGap)):
        await live_through_all(tmp_path)
