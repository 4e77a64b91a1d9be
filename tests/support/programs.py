"""Programs that tests need from the system: found, installed where that is allowed, or named."""

import os
import shutil
import subprocess


def program(name: str, package: str) -> str:
    """The path of a program of Debian's; as root it is installed where it is missing.

    Raises:
        AssertionError: it is missing, with the one command that brings it.
    """
    found = shutil.which(name)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        for step in (["update"], ["install", "-y", "--no-install-recommends", package]):
            subprocess.run(
                ["apt-get", "-qq", *step],
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            )
        found = shutil.which(name)
    assert found is not None, f"{name} is missing: apt-get install {package}"
    return found
