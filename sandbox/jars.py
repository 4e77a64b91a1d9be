"""The Java archives: a pinned list with checksums → verified folders in the user's cache.

Maven resolves two closures (Kafka and Debezium); `jars.lock` says which files of them are used and
what each must hash to. A file that differs is never put on a class path.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.connect import PLUGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

HERE = Path(__file__).parent
LOCK_FILE = HERE / "jars.lock"
POMS: Mapping[str, Path] = {
    "kafka": HERE / "maven" / "kafka.pom.xml",
    f"plugins/{PLUGIN}": HERE / "maven" / "debezium.pom.xml",
}
PLUGIN_PREFIXES = ("debezium-", "postgresql-", "protobuf-java-", "sketches-java-")
"""The rest of Debezium's closure is on Kafka's class path already and would shadow it."""

DOWNLOAD_MB = 100
"""What the first run fetches, for messages."""


class JarsError(Exception):
    """The archives are not as the lock says. The message names the file and the way out."""


@dataclass(frozen=True, slots=True)
class Jars:
    """A verified folder of archives."""

    root: Path

    @property
    def kafka(self) -> Path:
        """The class path of broker and Connect."""
        return self.root / "kafka"

    @property
    def plugins(self) -> Path:
        """Connect's plugin path: one folder per plugin."""
        return self.root / "plugins"


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Where verified archives are kept, one folder per content of the lock."""
    base = environ.get("XDG_CACHE_HOME") or str(
        Path(environ.get("HOME", "~")).expanduser() / ".cache"
    )
    return Path(base) / "tailrace" / "jars"


def parse_lock(text: str) -> dict[str, str]:
    """Relative path → SHA-256, from lines of `hash  path`.

    Raises:
        JarsError: A line has another form.
    """
    wanted: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        digest, _, path = line.partition("  ")
        if len(digest) != 64 or not path:
            message = f"jars.lock line {number}: expected `sha256  path`, got {line!r}"
            raise JarsError(message)
        wanted[path] = digest
    return wanted


def verify(root: Path, wanted: Mapping[str, str]) -> list[str]:
    """Every difference between a folder and the lock, one line each; empty is good."""
    problems = []
    for path, digest in wanted.items():
        file = root / path
        if not file.is_file():
            problems.append(f"{file}: missing")
        elif (got := sha256(file)) != digest:
            problems.append(f"{file}: expected sha256 {digest}, got {got}")
    return problems


def sha256(file: Path) -> str:
    """The checksum of a file, in hex."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def cached(environ: Mapping[str, str], lock_text: str) -> Path | None:
    """The folder for this lock if it is there, unverified."""
    root = _root(environ, lock_text)
    return root if root.is_dir() else None


def ensure(
    environ: Mapping[str, str],
    *,
    lock_text: str,
    resolve: Callable[[Path], None],
    say: Callable[[str], None],
) -> Jars:
    """The archives of the lock, from the cache or resolved into it; blocks while Maven downloads.

    Args:
        environ: XDG_CACHE_HOME and HOME name the cache.
        lock_text: The content of jars.lock.
        resolve: Fills a folder with what the POMs name; `maven` in production.
        say: Told when a download begins.

    Raises:
        JarsError: A file differs from the lock (it is not used), or Maven could not resolve.
    """
    wanted = parse_lock(lock_text)
    root = _root(environ, lock_text)
    root.parent.mkdir(parents=True, exist_ok=True)
    with locked(root.parent / f"{root.name}.lock"):
        if root.is_dir():
            _refuse(verify(root, wanted), f"remove {root} and run the command again")
            return Jars(root)
        say(f"first run: Maven fetches {len(wanted)} jars (about {DOWNLOAD_MB} MB) into {root}")
        _fill(root, wanted, resolve)
        return Jars(root)


def _fill(root: Path, wanted: Mapping[str, str], resolve: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir=root.parent, prefix=".filling-") as name:
        fetched = Path(name) / "fetched"
        resolve(fetched)
        advice = "the repository serves another file under this version: do not use it, tell us"
        _refuse(verify(fetched, wanted), advice)
        picked = Path(name) / "picked"
        for path in wanted:
            (picked / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(fetched / path, picked / path)
        picked.rename(root)


def maven(
    program: str, environ: Mapping[str, str], poms: Mapping[str, Path] = POMS
) -> Callable[[Path], None]:
    """A resolver that runs Maven once per POM, into the folder it stands under.

    Returns:
        A function that raises JarsError with Maven's own last words.
    """

    def resolve(target: Path) -> None:
        for folder, pom in poms.items():
            arguments = (
                program,
                "--quiet",
                "--batch-mode",
                f"--file={pom}",
                "dependency:copy-dependencies",
                "-DincludeScope=runtime",
                f"-DoutputDirectory={target / folder}",
            )
            done = subprocess.run(
                arguments, env=environ, cwd=HERE, capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                message = (
                    f"Maven ended with {done.returncode} for {pom.name}: {done.stdout[-1500:]}"
                )
                raise JarsError(message)

    return resolve


def make_lock(fetched: Path) -> str:
    """The lock of what a resolver put into a folder: for the maintainer who moves a version."""
    lines = ["# sha256 and path of every jar the sandbox runs; `python -m sandbox jars --relock`"]
    for folder in POMS:
        names = sorted(file.name for file in (fetched / folder).glob("*.jar"))
        if folder != "kafka":
            names = [name for name in names if name.startswith(PLUGIN_PREFIXES)]
        lines += [f"{sha256(fetched / folder / name)}  {folder}/{name}" for name in names]
    return "\n".join(lines) + "\n"


def _root(environ: Mapping[str, str], lock_text: str) -> Path:
    return cache_dir(environ) / hashlib.sha256(lock_text.encode()).hexdigest()[:16]


def _refuse(problems: list[str], advice: str) -> None:
    if problems:
        message = "\n".join([*problems, f"Nothing of it was used. Fix: {advice}."])
        raise JarsError(message)


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Holds a file's lock, so that two first runs at the same time do the work once."""
    with file.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
