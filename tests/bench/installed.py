"""What contenders need that is not in .venv: an environment of Python and classes of Java.

Both are made once and kept, by the content of what they are made from: the environment in
build/bench, the jars where the sandbox keeps its own. What cannot be had here raises, with the
reason, and the contender is listed as not run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sandbox import jars
from sandbox.java import find_java
from tests.bench.summary import FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable

HERE: Final = Path(__file__).parent
LOCK: Final = HERE / "requirements.lock"
STREAMS: Final = HERE / "kafka_streams"
_REASON_LETTERS: Final = 300


class MissingError(Exception):
    """A contender cannot run on this machine; the text says what it lacks."""


def python(say: Callable[[str], None]) -> Path:
    """The interpreter of the environment that `requirements.lock` describes.

    Raises:
        MissingError: It could not be made, with the installer's last words.
    """
    content = LOCK.read_bytes() + sys.version.encode()
    folder = FOLDER / f"venv-{hashlib.sha256(content).hexdigest()[:16]}"
    program = folder / "bin" / "python"
    complete = folder / "complete"
    if complete.exists():
        return program
    say(f"first run: installing {LOCK.name} into {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(folder))
    _run(str(program), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(LOCK))
    complete.touch()
    return program


def streams(say: Callable[[str], None]) -> tuple[str, ...]:
    """The command that runs the Kafka Streams contender, without its arguments.

    Raises:
        MissingError: There is no Java compiler, or Maven could not bring the jars.
    """
    java, _ = find_java(os.environ)
    # The program on PATH is often a link into the installation that has the compiler, or has not.
    compiler = None if java is None else java.program.resolve().with_name("javac")
    if java is None or compiler is None or not compiler.exists():
        message = "no Java compiler: a JDK of 17 or newer is needed, a JRE is not enough"
        raise MissingError(message)
    try:
        root = jars.ensure(
            os.environ,
            lock_text=(STREAMS / "jars.lock").read_text(encoding="ascii"),
            resolve=jars.maven("mvn", os.environ, {"streams": STREAMS / "pom.xml"}),
            say=say,
        ).root
    except (jars.JarsError, OSError) as error:
        raise MissingError(_last(str(error))) from error
    path = f"{root / 'streams'}/*"
    classes = FOLDER / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    _run(str(compiler), "-cp", path, "-d", str(classes), str(STREAMS / "Admit.java"))
    flags = ("-Xmx1g", "-XX:+UseSerialGC")
    return (str(java.program), *flags, "-cp", f"{classes}{os.pathsep}{path}", "Admit")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = f"{Path(command[0]).name}: {_last(done.stdout + done.stderr)}"
        raise MissingError(message)


def _last(text: str) -> str:
    return " ".join(text.split())[-_REASON_LETTERS:]
