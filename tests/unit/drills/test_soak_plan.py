"""A soak's plan comes from its seed, and is long enough to show something."""

from dataclasses import dataclass
from random import Random

import pytest

from sandbox.stripe_sandbox.faults import MEANINGS
from tests.drills.soak.plan import CALM_S, KILLS, OTHERS, Plan, planned
from tests.drills.soak.storm import PARTS, Storm


@pytest.mark.parametrize("seed", range(20))
def test_half_an_hour_has_its_hundred_kills_and_its_events(seed: int) -> None:
    plan = planned(seed, 30)
    assert (plan.kills_min, plan.events_min) == (100, 50_000)
    assert sum(strike.what in KILLS for strike in plan.strikes) >= 1.15 * plan.kills_min
    # One in twenty is rolled back.
    assert plan.uses * 0.94 >= plan.events_min


def test_every_fault_is_in_half_an_hour_of_some_seeds() -> None:
    struck = {strike.what for seed in range(5) for strike in planned(seed, 30).strikes}
    assert struck == KILLS.keys() | OTHERS.keys()


def test_the_same_seed_is_the_same_plan_and_another_is_another() -> None:
    assert planned(7, 2) == planned(7, 2)
    assert planned(7, 2).strikes != planned(8, 2).strikes


def test_minutes_scale_it_and_its_ends_are_left_in_peace() -> None:
    plan = planned(3, 2)
    assert (plan.kills_min, plan.events_min) == (7, 3_334)
    times = [strike.at_s for strike in plan.strikes]
    assert times == sorted(times)
    assert times[0] >= CALM_S
    assert times[-1] <= plan.seconds - CALM_S
    assert plan.replay == "tailrace drill run soak --minutes 2 --seed 3"


def test_every_kind_of_bad_answer_is_among_the_faults() -> None:
    kinds = {what.split()[1] for what in OTHERS if what.startswith("stripe ")}
    assert kinds == MEANINGS.keys()


def test_somebody_knows_how_to_do_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.drills.soak.storm.WORKERS", 0)
    storm = Storm(None, Plan(1, 1, ()), None, _Network())  # type: ignore[arg-type]
    by_hand = {what for what in (*KILLS, *OTHERS) if not what.startswith("stripe ")}
    assert storm._ways.keys() == by_hand - PARTS.keys()


def test_kills_that_found_nothing_to_kill_are_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.drills.soak.storm.WORKERS", 0)
    monkeypatch.setattr("tests.drills.soak.storm.KILL_PAUSE_S", 0.0)
    storm = Storm(None, Plan(1, 1, ()), None, _Network())  # type: ignore[arg-type]
    crew = _Crew(kills=1)
    storm.crew = crew  # type: ignore[assignment]
    storm._kill_the_rest()
    assert (storm.kills, crew.asked) == (storm.plan.kills_min, 6)
    assert storm.done["worker killed"] == 3


class _Network:
    url = "http://127.0.0.1:1"


@dataclass
class _Crew:
    """Every other time all of them are asleep."""

    kills: int
    asked: int = 0

    def keep(self) -> None:
        """Nothing to do."""

    def kill(self, _: Random) -> bool:
        self.asked += 1
        self.kills += self.asked % 2 == 0
        return self.asked % 2 == 0
