"""What differs between the config Connect holds and the one wanted."""

from collections.abc import Mapping
from dataclasses import dataclass

_HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True)
class Change:
    """One option that differs; None where a side does not have it."""

    option: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        """One line as in a patch: `+` added, `-` removed, `~` changed; literal secrets hidden."""
        before, after = _shown(self.option, self.before), _shown(self.option, self.after)
        if self.before is None:
            return f"+ {self.option} = {after}"
        if self.after is None:
            return f"- {self.option} = {before}"
        return f"~ {self.option} = {before} -> {after}"


def diff(held: Mapping[str, str] | None, wanted: Mapping[str, str]) -> tuple[Change, ...]:
    """Every option that differs, in the order of its name; empty when both are equal."""
    before = held or {}
    return tuple(
        Change(option, before.get(option), wanted.get(option))
        for option in sorted(before.keys() | wanted.keys())
        if before.get(option) != wanted.get(option)
    )


def describe(changes: tuple[Change, ...]) -> str:
    """The changes, one a line; `no changes` when there are none."""
    return "\n".join(str(change) for change in changes) or "no changes"


def _shown(option: str, value: str | None) -> str | None:
    secret = option.endswith("password") and value is not None and not value.startswith("${")
    return _HIDDEN if secret else value
