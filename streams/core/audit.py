"""Audit: registry, cells, registry again → each minute equal, lost, phantom, mixed or open.

In: what the key registry held before and after the cells were read, per minute of `received_at`.
Everything in the first reading has been settled before the cells are read (canaries committed
after it have arrived), and everything in the cells was committed before the second reading. So
first ⊆ cells ⊆ second holds whatever is in flight, without asking a clock: what breaks it is lost
or phantom, and what lies strictly between is open.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from streams.core.identity import DIGEST_MODULUS
from streams.core.instant import MINUTE_US

Group = Literal["usage", "conflict", "canary"]
MinuteVerdict = Literal["equal", "lost", "phantom", "mixed", "open"]

GROUP_OF_KIND: Final[Mapping[str, Group]] = {
    "usage": "usage",
    "correction": "usage",
    "conflict": "conflict",
    "canary": "canary",
}
"""What the registry calls its rows."""

GROUP_OF_CLASS: Final[Mapping[str, Group]] = {
    "accepted": "usage",
    "review": "usage",
    "dead": "usage",
    "correction": "usage",
    "skipped": "usage",
    "conflict": "conflict",
    "skipped conflict": "conflict",
    "canary": "canary",
}
"""What the workers call a first verdict, and people where a record was skipped that nobody could
read. Together the usage classes equal the usage kinds."""


class UnknownClassError(Exception):
    """A kind or verdict class that this code cannot place: upgrade the command, audit again."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many identities, and the sum of their contents modulo 2^128."""

    count: int
    digest: int

    def plus(self, other: "Tally") -> "Tally":
        """Both together."""
        return Tally(self.count + other.count, (self.digest + other.digest) % DIGEST_MODULUS)

    def minus(self, other: "Tally") -> "Tally":
        """What this has and the other has not; the count may be negative."""
        return Tally(self.count - other.count, (self.digest - other.digest) % DIGEST_MODULUS)


NOTHING: Final = Tally(0, 0)


class Row(NamedTuple):
    """One line of either side: a minute (UTC microseconds), a kind or class, a tally."""

    minute_us: int
    name: str
    tally: Tally


Readings = Mapping[tuple[int, Group], Tally]


class Judgment(NamedTuple):
    """One minute of one group: what the registry says (twice) and what the cells say."""

    minute_us: int
    group: Group
    verdict: MinuteVerdict
    first: Tally
    cells: Tally
    second: Tally

    @property
    def lost(self) -> int:
        """Identities that certainly got no verdict, at least."""
        if self.verdict == "mixed":
            return 1
        return self.first.count - self.cells.count if self.verdict == "lost" else 0

    @property
    def phantom(self) -> int:
        """Verdicts on identities that nobody recorded, at least."""
        if self.verdict == "mixed":
            return 1
        return self.cells.count - self.second.count if self.verdict == "phantom" else 0


def registry_readings(rows: Iterable[Row]) -> Readings:
    """The registry's rows by minute and group.

    Raises:
        UnknownClassError: a kind that this code does not know.
    """
    return _folded(rows, GROUP_OF_KIND, "registry kind")


def cell_readings(rows: Iterable[Row]) -> Readings:
    """The ledger's cells by minute and group, all partitions and logs together.

    Raises:
        UnknownClassError: a verdict class that this code does not know.
    """
    return _folded(rows, GROUP_OF_CLASS, "verdict class")


def judge(first: Readings, cells: Readings, second: Readings) -> list[Judgment]:
    """Every minute and group that any side knows, in order of time."""
    judgments = []
    for minute_us, group in sorted(first.keys() | cells.keys() | second.keys()):
        place = (minute_us, group)
        before, held, after = (side.get(place, NOTHING) for side in (first, cells, second))
        judgments.append(
            Judgment(minute_us, group, _verdict(before, held, after), before, held, after)
        )
    return judgments


def without_copies(judgment: Judgment, copies: Tally) -> Judgment:
    """The judgment of a minute once records that were only copies do not count as verdicts."""
    _, _, _, first, cells, second = judgment
    cells = cells.minus(copies)
    return judgment._replace(verdict=_verdict(first, cells, second), cells=cells)


def sealable(judgments: Iterable[Judgment], floor_us: int) -> dict[int, Tally]:
    """Minutes that are equal in every group and can get no further identities.

    A seal holds what is billed or decided on; canaries are swept away after a while.

    Args:
        judgments: of one audit.
        floor_us: no transaction that may still commit began before this instant (the source
            database's clock), so every later `received_at` lies at or after it.
    """
    totals: dict[int, Tally] = {}
    unfinished: set[int] = set()
    for minute_us, group, verdict, _, _, second in judgments:
        if verdict != "equal" or minute_us + MINUTE_US > floor_us:
            unfinished.add(minute_us)
        before = totals.get(minute_us, NOTHING)
        totals[minute_us] = before if group == "canary" else before.plus(second)
    return {minute: tally for minute, tally in totals.items() if minute not in unfinished}


def broken_seals(sealed: Mapping[int, Tally], second: Readings) -> list[int]:
    """Sealed minutes for which the registry says something else today, or nothing."""
    totals: dict[int, Tally] = defaultdict(lambda: NOTHING)
    for (minute_us, group), tally in second.items():
        if group != "canary":
            totals[minute_us] = totals[minute_us].plus(tally)
    return sorted(minute for minute, tally in sealed.items() if totals[minute] != tally)


def without_swept_canaries(readings: Readings, kept_from_us: int) -> Readings:
    """Leaves out canaries of minutes whose rows the registry has swept away since."""
    return {
        (minute_us, group): tally
        for (minute_us, group), tally in readings.items()
        if group != "canary" or minute_us >= kept_from_us
    }


def _folded(rows: Iterable[Row], groups: Mapping[str, Group], what: str) -> Readings:
    readings: dict[tuple[int, Group], Tally] = {}
    for row in rows:
        group = groups.get(row.name)
        if group is None:
            message = (
                f"{what} {row.name!r} is unknown to this command: upgrade it, then audit again"
            )
            raise UnknownClassError(message)
        place = (row.minute_us, group)
        readings[place] = readings.get(place, NOTHING).plus(row.tally)
    return readings


def _verdict(first: Tally, cells: Tally, second: Tally) -> MinuteVerdict:
    """Holds first ⊆ cells ⊆ second? A registry that shrank meanwhile proves nothing."""
    if second.count < first.count:
        return "open"
    if cells.count < first.count:
        return "lost"
    if cells.count > second.count:
        return "phantom"
    for side in (first, second):
        if cells.count == side.count and cells.digest != side.digest:
            return "mixed"
    return "equal" if first == second else "open"
