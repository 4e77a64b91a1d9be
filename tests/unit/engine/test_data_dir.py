import os
import subprocess
import sys
from pathlib import Path

import pytest

from streams.engine.data_dir import DataDirectory, quarantine
from streams.engine.errors import DataDirectoryInUse

HOLD = """
import sys
from pathlib import Path
from streams.engine.data_dir import DataDirectory
DataDirectory(Path(sys.argv[1])).lock()
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)},
    ) as holder:
        if holder.stdout is None or holder.stdin is None:
            pytest.fail("no pipes")
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(DataDirectoryInUse, match=f"held by process {holder.pid}"):
            DataDirectory(tmp_path).lock()
        holder.kill()
        holder.wait()
    DataDirectory(tmp_path).lock()


def test_a_directory_given_up_may_be_taken_again(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path / "new")
    first.lock()
    first.unlock()
    first.unlock()
    second = DataDirectory(tmp_path / "new")
    second.lock()
    assert (tmp_path / "new" / "lock").read_text() == f"{os.getpid()}\n"
    second.unlock()


def test_damaged_state_is_set_aside_and_the_newest_two_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "usage-3"
    for n in range(1, 5):
        path.mkdir()
        (path / "evidence").write_text(str(n))
        assert quarantine(path, "flipped") == tmp_path / f"usage-3.corrupt-{n}"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["usage-3.corrupt-3", "usage-3.corrupt-4"]
    assert (tmp_path / "usage-3.corrupt-4" / "evidence").read_text() == "4"
