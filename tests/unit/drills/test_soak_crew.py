"""The soak's workers: whoever dies comes back, a suspended one wakes up, and every kill counts."""

from pathlib import Path
from random import Random
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals
from types import SimpleNamespace
from typing import Any

import pytest

from tests.drills.soak.crew import WORKERS_MAX, Crew


class FakeWorker:
    """Stands for a process: it ends on SIGTERM at once."""

    def __init__(self, name: str, directory: Path, crash_at: str) -> None:
        self.name, self.data_dir, self.crash_at = name, directory / name, crash_at
        self.data_dir.mkdir(exist_ok=True)
        self.process = SimpleNamespace(returncode=None)
        self.signals: list[Signals] = []

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    def signal(self, number: Signals) -> None:
        self.signals.append(number)
        if number is SIGTERM:
            self.process.returncode = 0

    def kill(self) -> None:
        self.process.returncode = -SIGKILL

    def ends_within(self, _: float) -> bool:
        return not self.alive


class Scene:
    """A crew, the processes that it has started so far, and its clock."""

    def __init__(self, directory: Path) -> None:
        self.now_s = 0.0
        self.started: list[FakeWorker] = []
        self.directory = directory
        stack: Any = SimpleNamespace(start_worker=self.start)
        self.crew = Crew(stack, "http://127.0.0.1:1", lambda: self.now_s, Random(1))

    def start(self, name: str, *, crash_at: str, stripe_api_base: str) -> FakeWorker:
        assert stripe_api_base == "http://127.0.0.1:1"
        self.started.append(FakeWorker(name, self.directory, crash_at))
        return self.started[-1]

    def later(self, seconds: float) -> None:
        self.now_s += seconds
        self.crew.keep()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.crew.more()
    return made


def test_a_killed_one_counts_and_comes_back_with_its_data(scene: Scene) -> None:
    assert scene.crew.kill(Random(1))
    assert scene.crew.kills == 1
    assert not scene.crew.kill(Random(1)), "nobody is there to be killed"
    scene.later(5)
    assert [worker.name for worker in scene.started] == ["soak-0", "soak-0"]
    assert scene.started[1].data_dir.is_dir()


def test_a_lost_disk_is_gone(scene: Scene) -> None:
    assert scene.crew.kill_and_lose_disk(Random(1))
    assert not scene.started[0].data_dir.exists()
    assert scene.crew.kills == 1


def test_one_that_kills_itself_at_a_step_counts_when_it_has(scene: Scene) -> None:
    assert scene.crew.kill_at_step(Random(1))
    assert scene.started[1].crash_at
    assert scene.crew.kills == 0
    scene.started[1].kill()
    scene.later(0)
    assert scene.crew.kills == 1
    scene.later(5)
    assert scene.started[2].crash_at == ""


def test_one_that_ended_by_itself_is_no_kill_and_comes_back(scene: Scene) -> None:
    scene.started[0].process.returncode = 70
    scene.later(0)
    scene.later(5)
    assert (scene.crew.kills, scene.crew.ended_themselves, len(scene.started)) == (0, 1, 2)


def test_a_suspended_one_is_struck_by_nothing_until_it_wakes(scene: Scene) -> None:
    assert scene.crew.sleep(Random(1))
    assert not scene.crew.kill(Random(1))
    scene.later(30)
    assert scene.started[0].signals == [SIGSTOP, SIGCONT]
    assert scene.crew.kill(Random(1))


def test_there_are_never_too_many_and_never_none(scene: Scene) -> None:
    while scene.crew.more():
        pass
    assert len({worker.name for worker in scene.started}) == len(scene.started) == WORKERS_MAX
    while scene.crew.less(Random(1)):
        scene.later(5)
    assert [place.works for place in scene.crew.places] == [True]


def test_in_the_end_all_are_awake_and_there(scene: Scene) -> None:
    scene.crew.sleep(Random(1))
    scene.crew.calm()
    assert [place.works for place in scene.crew.places] == [True, True]
