"""`tailrace console` as a process, and pages of it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.stack import ROOT


@contextmanager
def console(directory: Path, secret_file: Path, log: Path, **settings: str) -> Iterator[str]:
    """Its address, as the process itself says it; it ends in order and without a traceback.

    Args:
        directory: of the sandbox.
        secret_file: what operators know.
        log: where its talk goes.
        settings: by the names of their variables.
    """
    words = ["console", "--dir", str(directory), "--port", "0", "--secret-file", str(secret_file)]
    with (
        log.open("w", encoding="utf-8") as talk,
        subprocess.Popen(
            [sys.executable, "-m", "streams.cli.main", *words],
            cwd=log.parent,
            env={"PYTHONPATH": str(ROOT), "PATH": "", **settings},
            stdout=subprocess.PIPE,
            stderr=talk,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            assert said.startswith("console ready: http://127.0.0.1:"), log.read_text()
            yield said.removeprefix("console ready: ").strip().rstrip("/")
        finally:
            process.terminate()
            process.wait(20)
    complaints = log.read_text(encoding="utf-8")
    assert process.returncode in {0, -15}, complaints
    assert "Traceback" not in complaints


def write_secret(folder: Path, text: str) -> Path:
    """A secret file that its owner alone can read."""
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(text, encoding="utf-8")
    return secret
