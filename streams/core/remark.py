"""A thing that needs a person: its figures in words → severity, text, and what to type next."""

from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["critical", "warning", "info"]
ORDER: Final[tuple[Severity, ...]] = ("critical", "warning", "info")


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that needs a person."""

    severity: Severity
    name: str
    """One word or two for rules of alerting and for tests; never changes its meaning."""
    text: str
    command: str
    """What to type next."""

    def __str__(self) -> str:
        return f"{self.text}: `{self.command}`"
