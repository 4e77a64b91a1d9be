"""stripe-mock, Stripe's own checker of request shapes: found on PATH, or built once with Go."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from sandbox.jars import cache_dir
from tests.support.waiting import until

VERSION: Final = "v0.203.0"
MODULE: Final = f"github.com/stripe/stripe-mock@{VERSION}"
BUILD_S_MAX: Final = 400
START_S_MAX: Final = 20


class MissingError(Exception):
    """There is no stripe-mock here and none can be built: why."""


def find(cache: Path | None = None) -> Path:
    """The program; builds it where Go is.

    Args:
        cache: directory of what was built before.

    Raises:
        MissingError: there is none, and Go is missing or cannot build it.
    """
    on_path = shutil.which("stripe-mock")
    if on_path is not None:
        return Path(on_path)
    cache = cache or cache_dir(os.environ).with_name(f"stripe-mock-{VERSION}")
    built = cache / "stripe-mock"
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        raise MissingError("neither stripe-mock nor Go is installed here")
    environment = {**os.environ, "GOBIN": str(cache), "GOFLAGS": "-p=1"}
    try:
        subprocess.run(
            [go, "install", MODULE],
            env=environment, check=True, capture_output=True, text=True, timeout=BUILD_S_MAX,
        )  # fmt: skip
    except (subprocess.SubprocessError, OSError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        reason = said[-1] if said else "no word"
        raise MissingError(f"`go install {MODULE}` failed: {reason}") from error
    return built


@contextmanager
def running(program: Path, log: Path) -> Iterator[str]:
    """Runs it on loopback; its address."""
    with log.open("w") as out:
        process = subprocess.Popen(
            [program, "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0"],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            process.wait(20)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until(
        lambda: f"stripe-mock says where it listens: {log.read_text()}",
        lambda: _said(log) is not None or process.poll() is not None,
        START_S_MAX,
    )
    said = _said(log)
    if said is None:
        pytest.fail(f"stripe-mock did not start: {log.read_text()}")
    return f"http://{said[1]}"


def _said(log: Path) -> re.Match[str] | None:
    return re.search(r"HTTP at address: (127\.0\.0\.1:\d+)", log.read_text())
