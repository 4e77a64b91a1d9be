"""docs/analysts.md, for whoever does what it says."""

import re
from pathlib import Path
from typing import Final, NamedTuple

WALK: Final = Path(__file__).parents[2] / "docs" / "analysts.md"
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Step(NamedTuple):
    """One block: `shell` with a command a line, `sql` for the ledger, `duckdb` for the files."""

    kind: str
    text: str

    @property
    def gives_no_row(self) -> bool:
        """Whether the block itself says so."""
        return "It gives no row." in self.text

    @property
    def commands(self) -> list[str]:
        """Of a shell block."""
        return [line for line in self.text.splitlines() if line]


def steps() -> list[Step]:
    """All blocks, in order."""
    found = _FENCE.findall(WALK.read_text(encoding="utf-8"))
    return [Step(kind or "shell", text) for kind, text in found]
