"""Workers that die, sleep or meet a record that kills; a broker that goes away."""

import signal
import subprocess
from pathlib import Path

import pytest

from streams.crash_points import STEPS
from tests.integration.engine.broker import Broker
from tests.integration.engine.world import World
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.drill]


@pytest.mark.parametrize("step", STEPS)
async def test_a_worker_killed_at_any_step_loses_and_repeats_nothing(
    world: World, step: str
) -> None:
    world.produce(3_000)
    process = world.spawn("one", f"{step}:2")
    assert await world.ended(process) == -signal.SIGKILL
    world.produce(1_000)
    # The same directory, and one that knows nothing, in turn.
    again = await world.start("one")
    await world.settled(again)
    world.expect_exact(again)
    await world.stop(again)
    await world.expect_exact_anew()


@pytest.mark.parametrize("nth", [1, 3])
async def test_a_worker_killed_while_it_rebuilds_its_state_begins_anew(
    world: World, nth: int
) -> None:
    world.produce(3_000)
    worker = await world.start("one", chunk_records_max=200)
    await world.settled(worker)
    await world.stop(worker)
    process = world.spawn("two", f"load@{nth}")
    assert await world.ended(process) == -signal.SIGKILL
    world.produce(1_000)
    again = await world.start("two")
    await world.settled(again)
    world.expect_exact(again)
    await world.stop(again)
    assert not list((world.directory / "two").rglob("*.corrupt-*"))
    await world.expect_exact_anew()


async def test_kills_in_rotation_under_load_leave_the_exact_state(world: World) -> None:
    names = ["one", "two", "three"]
    processes = {name: world.spawn(name) for name in names}
    for turn in range(6):
        world.produce(1_500)
        name = names[turn % 3]
        processes[name].kill()
        processes[name].wait(10)
        processes[name] = world.spawn(name)
    await eventually("everything is settled", lambda: world.committed() == world.produced, 60)
    for process in processes.values():
        process.terminate()
    for process in processes.values():
        assert await world.ended(process) == 0
    await world.expect_exact_anew(*names)


@pytest.mark.parametrize("step", ["decided", "outputs_produced", "packed_produced"])
async def test_a_worker_that_slept_through_its_session_with_a_chunk_in_hand_changes_nothing(
    world: World, step: str
) -> None:
    """Another settles that chunk and more meanwhile; then the sleeper goes on where it was."""
    world.produce(3_000)
    sleeper = world.spawn("sleeper", f"sleep@{step}:2")
    await eventually("it sleeps", lambda: asleep(sleeper.pid), 60)
    other = await world.start("other")
    await world.serving(other)
    world.produce(1_000)
    await world.settled(other)
    world.expect_exact(other)
    sleeper.send_signal(signal.SIGCONT)
    log = world.directory / "sleeper.log"
    await eventually("it heard of it", lambda: "lost" in log.read_text(), 30)
    # Asked before outputs, it learns that the partition is another's; later, it only repeats.
    assert ("Fenced" in log.read_text()) == (step == "decided")
    world.produce(1_000)
    sleeper.terminate()
    assert await world.ended(sleeper) == 0
    await world.settled(other)
    world.expect_exact(other)
    await world.stop(other)
    await world.expect_exact_anew("sleeper", "other")


def asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_a_record_that_kills_is_parked_and_everything_else_counts(world: World) -> None:
    world.produce(500)
    world.produce_raw("s1", [b"KILL s1 0"])
    world.produce(500)
    deaths = 0
    for _ in range(10):
        process = world.spawn("one")
        if await died(world, process):
            deaths += 1
            continue
        process.terminate()
        assert await world.ended(process) == 0
        break
    assert 3 <= deaths <= 5
    await world.expect_exact_anew("one")


async def died(world: World, process: "subprocess.Popen[bytes]") -> bool:
    """Whether the worker died; False once it has settled everything."""
    await eventually(
        "it died or has settled everything",
        lambda: process.poll() is not None or world.committed() == world.produced,
        60,
    )
    return process.poll() is not None


async def test_a_broker_that_is_killed_and_comes_back_ends_no_worker(
    world: World, broker: Broker
) -> None:
    worker = await world.start("one", chunk_records_max=100)
    world.produce(2_000)
    await eventually("it began", lambda: bool(worker.agent.chunks), 30)
    broker.kill()
    broker.start()
    world.produce(2_000)
    await world.settled(worker, deadline_s=90)
    world.expect_exact(worker)
    assert world.exits == []
    await world.stop(worker)
    await world.expect_exact_anew("one")
