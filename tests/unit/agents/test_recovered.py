"""What a worker makes of state that it did not leave in order: half rebuilt, or older."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from msgspec.structs import replace

from streams.core import admission
from streams.core.mark import encode_mark
from streams.engine import packed, packed_reader, recovery, table_meta
from streams.engine.absorb import absorb
from streams.engine.errors import UnknownPackedVersion
from streams.engine.recovery import _Attempt
from streams.engine.store import Store
from streams.engine.table import PartitionTable
from tests.support.events import Record, canary, conflict, correction, log_of, usage
from tests.unit.agents.checks import check_end, check_state
from tests.unit.agents.outside import Consumer
from tests.unit.agents.world import Life, World

Patch = pytest.MonkeyPatch
FIRST: Final = [usage(f"u{n}", str(n + 1)) for n in range(4)]
LOG: Final = log_of(
    [
        *FIRST,
        usage("job-1", "3", metric="jobs"),
        FIRST[0],
        correction(FIRST[1], "-1"),
        b"{",
        *FIRST,
        conflict(FIRST[2], event_key="u2", quantity="9"),
        usage("job-1", "3", metric="jobs"),
        canary(1),
        usage("new", "7"),
    ]
)
HALF: Final = 8


async def settled(root: Path, source: list[Record]) -> World:
    """One worker has settled this, three records a chunk."""
    world = World(root, source)
    async with Life(world) as life:
        await life.work([3])
    return world


def aside(world: World) -> list[Path]:
    """Tables that were set aside as damaged."""
    return list((world.root / "tables").glob("*.corrupt-*"))


async def finish(world: World) -> None:
    """The next worker finds the state of the fold, and goes on to the end of the log."""
    life = Life(world)
    check_state(world, life.table)
    async with life:
        await life.work([2])
        check_end(world, life.table)


# -- killed while it rebuilds ----------------------------------------------------------------------


def pictures_of_a_rebuild(world: World, patch: Patch, folder: Path) -> list[Path]:
    """The disk as a SIGKILL would leave it after each step of a rebuild."""
    pictures: list[Path] = []

    def pictured(step: Callable[..., None]) -> Callable[..., None]:
        def taken(*args: Any, **kwargs: Any) -> None:
            step(*args, **kwargs)
            pictures.append(folder / f"{len(pictures)}-{step.__name__}")
            shutil.copytree(world.root, pictures[-1])

        return taken

    with patch.context() as within:
        within.setattr(packed_reader, "_GROUP_RECORDS", 1)
        for step in (Store.load, Store.write, Store.flush):
            within.setattr(Store, step.__name__, pictured(step))
        world.recovered().close()
    return pictures


async def killed_while_it_rebuilds(tmp_path: Path, patch: Patch) -> None:
    world = await settled(tmp_path / "world", LOG[:HALF])
    world.lose_disk()
    # The source is gone too: what the packed log has is all there is.
    world.broker.low = HALF
    pictures = pictures_of_a_rebuild(world, patch, tmp_path)
    assert sum("load" in picture.name for picture in pictures) == 3
    world.broker.source = list(LOG)
    for picture in pictures:
        again = World(picture, LOG)
        again.broker, again.ledger = world.broker, world.ledger
        table = again.recovered()
        assert table.applied == HALF - 1
        check_state(again, table)
        table.close()
        assert not aside(again), "half of it called itself whole"
    world.root = pictures[len(pictures) // 2]
    await finish(world)


async def test_a_worker_killed_at_any_step_of_a_rebuild_begins_it_anew(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    await killed_while_it_rebuilds(tmp_path, monkeypatch)


def half_is_taken_for_whole(patch: Patch) -> None:
    """Each group of packed records leaves a table that says it is complete."""

    def absorbed(table: PartitionTable, *args: Any) -> None:
        absorb(table, *args)
        meta = table.meta
        table.replace(lambda _: None, replace(meta, complete=True))
        table._meta = meta

    patch.setattr(recovery, "absorb", absorbed)


def called_complete_before_its_files_are_written(patch: Patch) -> None:
    finish_ = _Attempt._finish

    def finish(self: _Attempt, table: PartitionTable) -> None:
        with patch.context() as within:
            within.setattr(Store, "flush", lambda _: None)
            finish_(self, table)
        table.flush()

    patch.setattr(_Attempt, "_finish", finish)


@pytest.mark.parametrize(
    "plant", [half_is_taken_for_whole, called_complete_before_its_files_are_written]
)
async def test_a_rebuild_that_trusts_half_of_itself_is_caught(
    tmp_path: Path, monkeypatch: Patch, plant: Callable[[Patch], None]
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        await killed_while_it_rebuilds(tmp_path, monkeypatch)


# -- of an earlier release -------------------------------------------------------------------------


def as_the_release_before(patch: Patch) -> None:
    """Marks began with their content; tables had format 1, packed records version 1."""

    def mark_of(content: bytes, verdict_class: str, offset: int) -> bytes:
        mark = encode_mark(content, verdict_class, offset)
        return mark[9:] + mark[:9]

    patch.setattr(admission, "encode_mark", mark_of)
    patch.setattr(admission, "content_of", lambda mark: mark[:8])
    patch.setattr(admission, "same_content", lambda mark, content: mark[:8] == content[:8])
    patch.setattr(table_meta, "FORMAT", 1)
    patch.setattr(packed, "VERSION", 1)


async def upgraded(tmp_path: Path, patch: Patch, *, disk_kept: bool) -> World:
    """A worker of this release where one of the release before has stopped."""
    with patch.context() as within:
        as_the_release_before(within)
        world = await settled(tmp_path / "world", LOG[:HALF])
    assert {record[2] for record in world.broker.packed} == {1}
    if not disk_kept:
        world.lose_disk()
    world.broker.source = list(LOG)
    await finish(world)
    return world


@pytest.mark.parametrize("disk_kept", [True, False])
async def test_state_of_the_release_before_is_rebuilt_from_its_packed_log(
    tmp_path: Path, monkeypatch: Patch, *, disk_kept: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    world = await upgraded(tmp_path, monkeypatch, disk_kept=disk_kept)
    assert len(aside(world)) == int(disk_kept)
    said = "table has format 1, this release reads 2" in capsys.readouterr().out
    assert said == disk_kept
    assert {record[2] for record in world.broker.packed} == {1, 2}


def format_stays(patch: Patch) -> None:
    patch.setattr(table_meta, "FORMAT", 1)


def values_are_taken_as_they_are(patch: Patch) -> None:
    patch.setattr(packed, "_converted", lambda record, _: record)


@pytest.mark.parametrize("plant", [format_stays, values_are_taken_as_they_are])
async def test_state_that_is_misread_is_caught(
    tmp_path: Path, monkeypatch: Patch, plant: Callable[[Patch], None]
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        await upgraded(tmp_path, monkeypatch, disk_kept=True)


async def rolled_back(tmp_path: Path, patch: Patch, *, disk_kept: bool) -> World:
    """A worker of the release before where one of this release has stopped; then this one again."""
    world = await settled(tmp_path / "world", LOG[:HALF])
    if not disk_kept:
        world.lose_disk()
    left = list(world.broker.packed)
    with patch.context() as within:
        as_the_release_before(within)
        with pytest.raises(UnknownPackedVersion, match=r"version 2, .* upgrade this worker"):
            world.recovered().close()
    assert world.broker.packed == left
    assert len(aside(world)) == int(disk_kept)
    world.broker.source = list(LOG)
    await finish(world)
    return world


@pytest.mark.parametrize("disk_kept", [True, False])
async def test_a_worker_of_the_release_before_refuses_what_this_one_left_and_spoils_nothing(
    tmp_path: Path, monkeypatch: Patch, *, disk_kept: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    await rolled_back(tmp_path, monkeypatch, disk_kept=disk_kept)
    said = "table has format 2, this release reads 1" in capsys.readouterr().out
    assert said == disk_kept


# -- while Kafka has other things to do ------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER, KafkaError.NOT_LEADER_FOR_PARTITION]
)
async def test_a_broker_that_a_client_has_just_dropped_is_asked_again(
    tmp_path: Path, monkeypatch: Patch, code: int
) -> None:
    world = await settled(tmp_path, LOG)
    refusals = [KafkaException(KafkaError(code))]
    ask = Consumer.get_watermark_offsets

    def asked(self: Consumer, *args: Any, **kwargs: Any) -> tuple[int, int]:
        if refusals:
            raise refusals.pop()
        return ask(self, *args, **kwargs)

    monkeypatch.setattr(Consumer, "get_watermark_offsets", asked)
    monkeypatch.setattr(recovery, "RETRY_PAUSE_S", 0.0)
    table = world.recovered()
    check_state(world, table)
    table.close()
    assert not refusals
