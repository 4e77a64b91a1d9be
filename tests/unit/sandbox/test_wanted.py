from pathlib import Path

from sandbox import wanted
from sandbox.paths import Paths
from sandbox.wanted import Wanted

TYPED = Paths(Path("/srv/box"), "--dir box").command


def test_what_is_wanted_survives_the_file(tmp_path: Path) -> None:
    file = tmp_path / "wanted.json"
    assert wanted.read(file) is None
    asked = Wanted(3, "http://127.0.0.1:1", "sk_test_1", True, ("kafka",))
    wanted.write(file, asked)
    assert wanted.read(file) == asked


def test_parts_are_held_and_released_one_by_one() -> None:
    held = Wanted().hold("stripe").hold("kafka").hold("stripe")
    assert held.held == ("kafka", "stripe")
    assert held.release("stripe").held == ("kafka",)
    assert held.release("postgres") == held


def test_no_difference_is_nothing_to_say() -> None:
    assert wanted.differences(Wanted(workers=2), Wanted(workers=2), TYPED) == []


def test_every_difference_is_said_with_the_way_to_change_it() -> None:
    running = Wanted(workers=1, held=("kafka",))
    lines = wanted.differences(running, Wanted(3, "http://127.0.0.1:9", None, True), TYPED)
    assert len(lines) == 4
    text = "\n".join(lines)
    for word in (
        "workers: 1 run, 3 asked",
        "`tailrace sandbox workers 3 --dir box`",
        "stand-in runs",
        "`tailrace sandbox start kafka --dir box`",
    ):
        assert word in text
    assert text.count("`tailrace sandbox down --dir box` first") == 2
