"""Some seeds for every build: nothing lost, nothing double, and each seed the same every time."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from tests.simulation import strikes
from tests.simulation.checks import violations
from tests.simulation.faults import FAULTS
from tests.simulation.ledger.rows import Tables
from tests.simulation.mutants.layers import remember_no_attempt
from tests.simulation.run import quiet, run_seed
from tests.simulation.story import TENANTS, write
from tests.simulation.world import HOUR_S, World

SEEDS = range(1, 501)
SEEDS_A_TEST = 20


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", SEEDS[::SEEDS_A_TEST])
def test_no_seed_breaks_an_invariant(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        outcome = run_seed(seed)
        assert not outcome.violations, (outcome.violations, outcome.command)


def test_a_seed_has_one_history_whatever_the_hash_of_texts() -> None:
    last_lines = {_history(hash_seed) for hash_seed in ("0", "1", "4711")}
    assert len(last_lines) == 1


def _history(hash_seed: str) -> str:
    script = (
        "from tests.simulation.run import quiet, run_seed\n"
        "with quiet():\n"
        "    print(*(run_seed(seed).history for seed in range(1, 6)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_seeds_differ() -> None:
    assert len({run_seed(seed).history for seed in range(1, 6)}) == 5


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_ordered_meets_something(fault: str) -> None:
    """In one of a few seeds, each of which has little usage and an end soon."""
    proof = {"stripe_down_past_the_fence": "request dead: ambiguous"}.get(fault, fault)
    met = (
        any(name.startswith(proof) for name in run_seed(seed, (fault,), short=True).strikes)
        for seed in range(1, 9)
    )
    assert any(met)


def test_what_never_happened_in_enough_seeds_is_named() -> None:
    met = dict.fromkeys(strikes.EXPECTED, 1) | {"worker_killed": 0}
    assert strikes.missing(met, strikes.SEEDS_ENOUGH) == ("worker_killed",)
    assert strikes.missing({}, strikes.SEEDS_ENOUGH - 1) == ()
    assert "       0 worker_killed" in list(strikes.lines(met))


def _restored_with_nobody_who_remembers(world: World) -> float:
    """A ledger comes back half an hour old while the machines are replaced."""
    for number, tenant_id in enumerate(TENANTS):
        world.map_customer(tenant_id, f"cus_{number}", 0)
    world.writing = world.timeline.create_task(write(world, 3.0, 40))
    world.canaries(600.0, 3 * HOUR_S)

    def replace_all(backup: Tables) -> None:
        for machine in world.machines:
            world.kill(machine, 60.0)
            machine.disk.lose()
        world.restore(backup)

    def keep() -> None:
        world.later(HOUR_S / 2, partial(replace_all, world.database.backup()))

    world.later(2 * HOUR_S, keep)
    return 4 * HOUR_S


def _restored_in_quiet_hours(world: World, *, new_machines: bool) -> float:
    """Usage ends, its last windows are sent, and the ledger comes back from just before that.

    No position moves meanwhile, and no canary: all that it has forgotten are attempts.
    """
    for number, tenant_id in enumerate(TENANTS):
        world.map_customer(tenant_id, f"cus_{number}", 0)
    world.writing = world.timeline.create_task(write(world, 1.0, 40))
    backups: list[Tables] = []

    def restore() -> None:
        told = world.database.tables.positions
        before = [b for b in backups if b.positions == told]
        assert before, "every backup is older than the last fact"
        assert len(before[0].attempts) < len(world.database.tables.attempts)
        if new_machines:
            for machine in world.machines:
                world.kill(machine, 60.0)
                machine.disk.lose()
        world.restore(before[0])

    for minute in range(300):
        world.later(60.0 * minute, lambda: backups.append(world.database.backup()))
    world.later(5 * HOUR_S, restore)
    return 6 * HOUR_S


@pytest.mark.parametrize("new_machines", [False, True])
def test_a_ledger_that_forgot_nothing_but_attempts_is_noticed(new_machines: bool) -> None:
    world = World(2)
    world.run(partial(_restored_in_quiet_hours, new_machines=new_machines))
    assert not violations(world)
    assert world.database.tables.adoptions


def test_that_is_what_the_memory_of_attempts_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_no_attempt(monkeypatch)
    world = World(2)
    world.run(partial(_restored_in_quiet_hours, new_machines=False))
    assert "unnoticed" in {violation.name for violation in violations(world)}


def test_a_restored_ledger_is_noticed_though_all_machines_are_new() -> None:
    world = World(1)
    world.run(_restored_with_nobody_who_remembers)
    assert not violations(world)
