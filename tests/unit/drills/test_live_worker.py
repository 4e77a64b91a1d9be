"""What a drill reads of a worker is that worker's own."""

import subprocess
import sys
from pathlib import Path

from tests.support.live import LiveWorker


def test_what_another_of_the_same_name_has_said_is_not_its_own(tmp_path: Path) -> None:
    log = tmp_path / "test-sleeps.log"
    log.write_bytes(b'{"event": "lost", "partition": 1}\n')
    began_bytes = log.stat().st_size
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        worker = LiveWorker(process, tmp_path, log, began_bytes)
        assert worker.said("lost") == []
        with log.open("ab") as more:
            more.write(b'{"event": "lost", "partition": 2}\n')
        assert worker.said("lost") == [{"event": "lost", "partition": 2}]
