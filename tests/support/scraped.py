"""`tailrace exporter` as a process, and what /metrics tells."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.support.stack import ROOT


@contextmanager
def exporter(directory: Path, **settings: str) -> Iterator[str]:
    """Its address, as the process itself says it; it ends in order.

    Args:
        directory: of the sandbox.
        settings: by the names of their variables.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TAILRACE_EXPORTER_PORT": "0", **settings}
    with subprocess.Popen(
        [sys.executable, "-m", "streams.cli.main", "exporter", "--dir", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            assert said.startswith("exporter ready: http://127.0.0.1:"), said
            yield said.removeprefix("exporter ready: ").strip()
        finally:
            process.terminate()
            assert process.wait(20) == 0


def page(address: str) -> str:
    """The text at an address."""
    with urlopen(address, timeout=20) as answer:  # noqa: S310 - of a process of the test's own
        return str(answer.read().decode())


def scraped(address: str) -> dict[str, float]:
    """Every sample by its name and labels."""
    found = re.findall(r"^(usage_\w+(?:\{.*\})?) (\S+)$", page(address), re.MULTILINE)
    return {name: float(value) for name, value in found}
