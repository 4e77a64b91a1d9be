"""The README's code blocks, for whoever tries what they say."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

README: Final = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def blocks(heading: str) -> Iterator[list[str]]:
    """The code blocks of a section, as lines without their comments."""
    section = README.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    # Every fence is read, or the end of one block would be taken for the start of the next.
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    for block in (text for language, text in fences if not language):
        lines = [line.split(" #")[0].strip() for line in block.splitlines()]
        yield [line for line in lines if line]
