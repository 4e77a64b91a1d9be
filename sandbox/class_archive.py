"""Loaded classes, kept beside the jars: a Java program that ran once → starts in half the time.

Half of what a broker or a Connect worker computes while it starts is reading and checking classes
that never change. The JVM can write them into an archive when it ends and map that at later starts.
Whatever goes wrong with an archive costs time only: the JVM checks that it fits and goes on without
one that does not, and only one that a JVM has accepted is kept.
"""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

VERIFY_S = 60.0


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one Java program."""

    java: Path
    jars: Path
    """Folder of the class path; the archive is valid for exactly these files."""
    flags: tuple[str, ...]
    """The JVM flags of the program; an archive fits the collector it was made with."""
    main: str

    @property
    def kept(self) -> Path:
        """Where the archive is, shared by every sandbox of this user."""
        return self._folder / f"{self._name}.jsa"

    @property
    def given_up(self) -> Path:
        """A file that says that making it failed, so that not every start tries again."""
        return self._folder / f"{self._name}.failed"

    @property
    def wanted(self) -> bool:
        """Whether it should be made now."""
        return not self.kept.exists() and not self.given_up.exists()

    @property
    def options(self) -> tuple[str, ...]:
        """What the program is started with, nothing while there is no archive."""
        if not self.kept.exists():
            return ()
        return ("-Xshare:auto", f"-XX:SharedArchiveFile={self.kept}")

    def writing(self, fresh: Path) -> str:
        """The option with which the program writes an archive when it ends."""
        return f"-XX:ArchiveClassesAtExit={fresh}"

    def keep(self, fresh: Path) -> bool:
        """Keeps what the program has written, if a JVM accepts it; a half-written one is refused.

        Args:
            fresh: What was written, on the file system of the jars.

        Raises:
            OSError: It cannot be moved.
        """
        accepted = fresh.exists() and self._accepted(fresh)
        if accepted:
            fresh.replace(self.kept)
        else:
            self.given_up.write_text("no archive could be made here; delete this to try again\n")
        return accepted

    def _accepted(self, fresh: Path) -> bool:
        check = ("-Xshare:on", f"-XX:SharedArchiveFile={fresh}", "-cp", f"{self.jars}/*")
        try:
            done = subprocess.run(
                (str(self.java), *self.flags, *check, "-version"),
                capture_output=True,
                check=False,
                timeout=VERIFY_S,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    @property
    def _folder(self) -> Path:
        return self.jars.parent / "classes"

    @property
    def _name(self) -> str:
        program = self.java.resolve()
        facts = f"{program}|{program.stat().st_mtime_ns}|{' '.join(self.flags)}|{self.main}"
        digest = hashlib.sha256(facts.encode()).hexdigest()[:16]
        return f"{self.main.rpartition('.')[2]}-{digest}"
