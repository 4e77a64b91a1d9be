"""The kinds of rule an option can have; each rule says what must be, and what happens otherwise."""

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """What one option must satisfy."""

    option: str
    """Full name of the option."""
    must: str
    """What the value must be, as the end of the sentence `OPTION must be ...`."""
    why: str
    """What happens otherwise."""
    accepts: Callable[[str], bool]
    """Whether a value satisfies the rule."""
    required: bool
    """Whether leaving it out is refused, because the default breaks the rule or may change."""
    secret: bool = False
    """Whether the value must never be shown."""


@dataclass(frozen=True, slots=True)
class Forbidden:
    """Options that are refused whatever their value."""

    option: str
    """Full name, or a prefix when it ends in a dot."""
    why: str
    """What they would do."""

    def covers(self, option: str) -> bool:
        """Whether the option is meant."""
        return option == self.option or (
            self.option.endswith(".") and option.startswith(self.option)
        )


def exactly(option: str, *values: str, why: str, required: bool = True) -> Rule:
    """One of a few values, compared as text."""
    return Rule(
        option, " or ".join(v or "empty" for v in values), why, values.__contains__, required
    )


def operations(option: str, *members: str, why: str) -> Rule:
    """A list that must hold exactly these members, in any order."""
    wanted = frozenset(members)

    def accepts(value: str) -> bool:
        return frozenset(part.strip() for part in value.split(",")) == wanted

    return Rule(option, ",".join(members), why, accepts, required=True)


def between(option: str, low: int, high: int, *, why: str, required: bool = False) -> Rule:
    """A whole number within both bounds."""

    def accepts(value: str) -> bool:
        return re.fullmatch(r"-?\d{1,18}", value) is not None and low <= int(value) <= high

    return Rule(option, f"a whole number from {low} to {high}", why, accepts, required)


def like(
    option: str, pattern: re.Pattern[str], must: str, *, why: str, required: bool = True
) -> Rule:
    """Text that matches a pattern as a whole."""
    return Rule(option, must, why, lambda value: pattern.fullmatch(value) is not None, required)


def placeholder(option: str, *, required: bool) -> Rule:
    """A secret, which may only appear as a placeholder that the Connect worker resolves."""
    return Rule(
        option,
        "a placeholder such as ${env:METERING_CDC_PASSWORD}",
        "Connect's REST interface shows a literal to whoever can reach it",
        lambda value: PLACEHOLDER.fullmatch(value) is not None,
        required,
        secret=True,
    )


def free(option: str, must: str, *, why: str, required: bool = False) -> Rule:
    """Any text on one line."""
    return like(option, _ONE_LINE, must, why=why, required=required)


PLACEHOLDER = re.compile(r"\$\{(?:env:METERING_[A-Z0-9_]+|[a-z]+:[^{}\s]+:[^{}\s]+)\}")
_ONE_LINE = re.compile(r"[^\n]{1,1000}")
