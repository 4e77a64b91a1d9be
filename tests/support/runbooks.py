"""The runbooks, for whoever tries what they say."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "docs" / "runbooks"
HEADINGS: Final = ("Look", "Act", "It is over when")
PLACEHOLDER: Final = re.compile(r"\b[A-Z]{3,}\b")


@dataclass(frozen=True, slots=True)
class Runbook:
    """One page."""

    name: str
    text: str

    def commands(self, heading: str) -> list[str]:
        """What a section tells to type, without comments."""
        section = self.text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
        blocks = re.findall(r"^```\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
        lines = (line.split(" #")[0].strip() for block in blocks for line in block.splitlines())
        return [line for line in lines if line]

    @property
    def mentioned(self) -> list[str]:
        """Commands that stand in a sentence."""
        prose = re.sub(r"^```\n.*?^```$", "", self.text, flags=re.DOTALL | re.MULTILINE)
        return [" ".join(found.split()) for found in re.findall(r"`(tailrace [^`]+)`", prose)]


def runbooks() -> list[Runbook]:
    """All of them, by name."""
    return [
        Runbook(path.stem, path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.md"))
    ]


def runbook(name: str) -> Runbook:
    """The one of an alert."""
    return Runbook(name, (FOLDER / f"{name}.md").read_text(encoding="utf-8"))


def words(command: str, values: Mapping[str, str]) -> list[str]:
    """A command's arguments, with values in the place of what a reader fills in.

    Raises:
        KeyError: a placeholder has no value.
    """
    filled = PLACEHOLDER.sub(lambda found: values[found[0]], command)
    return shlex.split(filled)[1:]
