"""Minutes that differ → without what was only recorded again after the registry went back in time.

A registry restored from a backup has forgotten what it recorded since. Where the service records
that again, under the same keys, it gets another `received_at`; the workers remember the identity
and count nothing. So its one verdict stands in the minute of the first recording: there is one too
many, and one too few in the minute of the second. No identity has to be named for it: what is too
many in a run of minutes and what is missing in another has the same digest of 128 bits only where
both are the same identities.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from streams.core.audit import NOTHING, Group, Judgment, MinuteVerdict, Tally, without_copies

GROUPS: Final[tuple[Group, ...]] = ("usage", "conflict")
MINUTES_MAX: Final = 1_000
"""Half a million runs of each side, about a second; with more minutes nothing is recognised."""


class _Run(NamedTuple):
    """Minutes that follow each other among those that differ in one way."""

    places: tuple[int, int]
    """First and last, as places in the list of them."""
    tally: Tally


def without_recorded_again(judgments: Sequence[Judgment]) -> tuple[list[Judgment], int]:
    """The judgments with verdicts counted where their identities are recorded now.

    Returns:
        All judgments in their order, and how many identities were recorded again.
    """
    judged, again = list(judgments), 0
    for group in GROUPS:
        over = _places(judgments, group, "phantom")
        short = _places(judgments, group, "lost")
        if not over or not short or max(len(over), len(short)) > MINUTES_MAX:
            continue
        missing = {run.tally: run for run in _runs([_missing(judgments[place]) for place in short])}
        surplus = _runs([NOTHING.minus(_missing(judgments[place])) for place in over])
        found = max(
            (run for run in surplus if run.tally in missing),
            key=lambda run: run.tally.count,
            default=None,
        )
        if found is None:
            continue
        again += found.tally.count
        for places, run in ((over, found), (short, missing[found.tally])):
            for place in places[run.places[0] : run.places[1] + 1]:
                judgment = judgments[place]
                judged[place] = without_copies(judgment, NOTHING.minus(_missing(judgment)))
    return judged, again


def perhaps_again(judgments: Iterable[Judgment]) -> int:
    """How many that are lost could be phantoms of earlier minutes, recorded again: not proven.

    While only a part was recorded again no digest says so: of what is too many in a minute some is
    in the registry, and the contents of the rest are nowhere. So nothing is taken off what is lost;
    what is lost beyond this number is lost whatever was recorded again.

    Args:
        judgments: in order of time, without phantoms that are known to be something else.
    """
    waiting, perhaps = dict.fromkeys(GROUPS, 0), 0
    for judgment in judgments:
        group = judgment.group
        if group not in waiting or judgment.verdict not in ("lost", "phantom"):
            continue
        matched = min(waiting[group], judgment.lost)
        waiting[group] += judgment.phantom - matched
        perhaps += matched
    return perhaps


def _places(judgments: Sequence[Judgment], group: str, verdict: MinuteVerdict) -> list[int]:
    return [
        place
        for place, judgment in enumerate(judgments)
        if judgment.group == group and judgment.verdict == verdict
    ]


def _missing(judgment: Judgment) -> Tally:
    """What the registry has and the cells have not; negative where it is the other way round."""
    return judgment.second.minus(judgment.cells)


def _runs(tallies: Sequence[Tally]) -> Iterator[_Run]:
    for first in range(len(tallies)):
        total = NOTHING
        for last in range(first, len(tallies)):
            total = total.plus(tallies[last])
            yield _Run((first, last), total)
