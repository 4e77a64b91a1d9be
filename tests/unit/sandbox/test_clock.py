import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox import clock
from sandbox.clock import ClockError, parse_offset
from sandbox.paths import Paths
from streams.cli.errors import UsageProblemError

DAY_S = 86_400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("+26h", 93_600),
        ("+90s", 90),
        ("-5m", -300),
        ("+28h30m", 102_600),
        ("-1d2h3m4s", -93_784),
        ("+2d", 172_800),
        ("0", 0),
        (" +1s ", 1),
    ],
)
def test_offsets_have_a_sign_and_a_unit(text: str, seconds: int) -> None:
    assert parse_offset(text) == seconds


@pytest.mark.parametrize(
    "text", ["26h", "+26", "+h", "+1.5h", "+26 h", "+26H", "", "+-1s", "+1h+2m", "+1h30"]
)
def test_other_forms_are_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageProblemError, match=r"expected a sign, then numbers with s, m, h or d"):
        parse_offset(text)


def test_the_offset_is_kept_in_a_file_that_is_written_in_place(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    assert clock.read_offset(file) is None
    clock.set_offset(file, 90)
    node = file.stat().st_ino
    clock.set_offset(file, -7200)
    assert clock.read_offset(file) == -7200
    assert file.stat().st_ino == node


def test_without_a_compiler_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClockError, match="apt-get install gcc"):
        clock.environment(Paths(tmp_path))


ASK = """
import sys, threading, time
print(time.time(), time.monotonic(), flush=True)
sys.stdin.readline()
print(time.time(), time.monotonic(), flush=True)
began = time.monotonic()
threading.Condition().__enter__() and None
lock = threading.Lock(); lock.acquire(); lock.acquire(timeout=0.2)
threading.Event().wait(0.2)
time.sleep(0.1)
print(time.monotonic() - began, flush=True)
"""


def test_a_running_process_sees_the_shift_at_once_and_its_timeouts_stay_true(
    tmp_path: Path,
) -> None:
    paths = Paths(tmp_path)
    environment = clock.environment(paths)
    with subprocess.Popen(
        [sys.executable, "-c", ASK],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        wall_s, monotonic_s = map(float, child.stdout.readline().split())
        assert abs(wall_s - time.time()) < 5  # noqa: TID251 - the machine's clock is the oracle
        clock.set_offset(paths.clock, 2 * DAY_S)
        child.stdin.write("go\n")
        child.stdin.flush()
        shifted_s, later_s = map(float, child.stdout.readline().split())
        assert 2 * DAY_S <= shifted_s - wall_s < 2 * DAY_S + 5
        assert 0 <= later_s - monotonic_s < 5
        assert 0.5 <= float(child.stdout.readline()) < 5
