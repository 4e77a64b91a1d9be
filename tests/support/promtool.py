"""promtool, which tests alert rules: from this machine, else out of Debian's package."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.support.stack import ROOT

TOOLS = ROOT / "build" / "tools"
WAY_OUT = "`apt-get install prometheus` brings it, or put one of any version from 2.40 on in PATH"


class ToolMissingError(AssertionError):
    """promtool cannot be had here. A test that needs it fails with this, and says what to do."""


def promtool() -> Path:
    """The program; unpacked below build/ at its first use, so that nothing is installed or started.

    Raises:
        ToolMissingError: it is not here, and apt does not give it.
    """
    installed = shutil.which("promtool")
    if installed:
        return Path(installed)
    unpacked = TOOLS / "usr" / "bin" / "promtool"
    if not unpacked.is_file():
        _unpack()
    return unpacked


def _unpack() -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise ToolMissingError(f"promtool is not installed, and there is no apt: {WAY_OUT}")
    TOOLS.mkdir(parents=True, exist_ok=True)
    if _run("apt-get", "download", "-q", "prometheus").returncode != 0 and os.geteuid() == 0:
        _run("apt-get", "update", "-q")
        _run("apt-get", "download", "-q", "prometheus")
    packages = sorted(TOOLS.glob("prometheus_*.deb"))
    if not packages:
        raise ToolMissingError(f"apt does not give Debian's package prometheus: {WAY_OUT}")
    done = _run("dpkg-deb", "-x", packages[-1].name, ".")
    if done.returncode != 0:
        raise ToolMissingError(f"{packages[-1]}: {done.stderr.strip()}; {WAY_OUT}")
    packages[-1].unlink()


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, check=False)
