"""Every page that people read, for whoever tries what it says."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TRIED_ELSEWHERE: Final = {"docs/performance.md", "docs/drills.md", "docs/analysts.md"}
"""Made of measurements and runs, which have tests of their own; a text may name one before it is
there."""
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code."""

    page: str
    line: int
    language: str
    """Empty for commands to type, and for drawings."""
    text: str

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Its lines without comments, those that are continued as one."""
        joined = self.text.replace("\\\n", " ")
        lines = (line.split(" #")[0].strip() for line in joined.splitlines())
        return [line for line in lines if line and not line.startswith("#")]


@dataclass(frozen=True, slots=True)
class Page:
    """One file in Markdown."""

    name: str
    """From the root of the repository."""
    text: str

    @property
    def prose(self) -> str:
        """What is no code block."""
        return _FENCE.sub("", self.text)

    def blocks(self, *languages: str) -> Iterator[Block]:
        """Its blocks in these languages; all of them where none is named."""
        for found in _FENCE.finditer(self.text):
            if not languages or found[1] in languages:
                line = self.text.count("\n", 0, found.start()) + 1
                yield Block(self.name, line, found[1], found[2])

    @property
    def links(self) -> list[str]:
        """Where its links and pictures lead."""
        return _LINK.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """What a link may name of it: its headings, as GitHub spells them."""
        return {
            re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
            for heading in _HEADING.findall(self.prose)
        }


@cache
def pages() -> tuple[Page, ...]:
    """All of them: at the root, in docs, and beside what they are about."""
    found = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "schemas").rglob("*.md"),
    ]
    return tuple(
        Page(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
        for path in sorted(found)
    )


def page(name: str) -> Page:
    """The one of that name."""
    (found,) = [each for each in pages() if each.name == name]
    return found
