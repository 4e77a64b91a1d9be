"""Names behind a difference: a minute's identities, what the cells hold → which are missing.

In: all identities of a minute and group, in the order in which they were recorded. Out: those that
got no verdict, or more than one. A digest of 128 bits singles them out: whatever adds up to it are
they. Looked for are a few anywhere, and any number that follow each other, as the rows that a moved
replication slot skips do.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, combinations
from math import comb
from typing import Final, NamedTuple

from streams.core.audit import NOTHING, Tally
from streams.core.identity import DIGEST_MODULUS


class Identity(NamedTuple):
    """One row of the registry, as a finding names it."""

    event_id: str
    kind: str
    tenant_id: str
    event_key: str
    content: int


class Named(NamedTuple):
    """The identities behind a difference; when not exact, they are among these."""

    identities: tuple[Identity, ...]
    exact: bool


def name_missing(identities: Sequence[Identity], held: Tally) -> Named:
    """Which of a minute's identities have no verdict.

    Args:
        identities: all identities of the minute and group.
        held: what the cells say of it.
    """
    missing = _total(identities).minus(held)
    if missing.count <= 0:
        return Named((), exact=False)
    if held.count == 0:
        return Named(tuple(identities), exact=held.digest == 0)
    places = _subset(identities, missing)
    if places is None and (left := _subset(identities, held)) is not None:
        places = frozenset(range(len(identities))) - left
    return _named(identities, places, otherwise=tuple(identities))


def name_repeated(identities: Sequence[Identity], held: Tally) -> Named:
    """Which of a minute's identities got more than one verdict; empty when it is none of them."""
    return _named(identities, _subset(identities, held.minus(_total(identities))), otherwise=())


def name_surplus(among: Sequence[Identity], surplus: Tally) -> tuple[Identity, ...]:
    """Which of these verdicts, one an item, are what the cells hold too many; empty when not all.

    Args:
        among: identities, each as often as something was decided on a record of it.
        surplus: what the cells hold beyond the registry.
    """
    places = _subset(among, surplus)
    return () if places is None else tuple(among[place] for place in sorted(places))


SEARCH_DEPTH: Final = 3
SEARCH_WIDTH_MAX: Final = 3_000
"""Three of 3,000 are some 9 million sums, a few seconds; a minute with more is listed whole."""
HALVES_MAX: Final = 300_000
"""More of a few identities, as two halves: so many sums are kept of the greater one."""


def _named(
    identities: Sequence[Identity],
    places: frozenset[int] | None,
    otherwise: tuple[Identity, ...],
) -> Named:
    if places is None:
        return Named(otherwise, exact=False)
    return Named(tuple(identities[place] for place in sorted(places)), exact=True)


def _subset(identities: Sequence[Identity], wanted: Tally) -> frozenset[int] | None:
    """Places of identities whose contents add up to the wanted digest."""
    if not 1 <= wanted.count <= len(identities):
        return None
    contents = [identity.content for identity in identities]
    places = _run(contents, wanted.count, wanted.digest)
    if places is None and wanted.count <= SEARCH_DEPTH and len(contents) <= SEARCH_WIDTH_MAX:
        places = _addends(contents, wanted.count, wanted.digest, 0)
    elif places is None and comb(len(contents), wanted.count - wanted.count // 2) <= HALVES_MAX:
        places = _halves(contents, wanted.count, wanted.digest)
    return None if places is None else frozenset(places)


def _run(contents: Sequence[int], number: int, target: int) -> list[int] | None:
    """So many places in a row whose contents add up to `target`."""
    sums = [0, *accumulate(contents)]
    for start in range(len(contents) - number + 1):
        if (sums[start + number] - sums[start] - target) % DIGEST_MODULUS == 0:
            return list(range(start, start + number))
    return None


def _halves(contents: Sequence[int], number: int, target: int) -> list[int] | None:
    """Places anywhere: the sums of one half of them, against those of the other."""
    known = {
        sum(contents[place] for place in half) % DIGEST_MODULUS: half
        for half in combinations(range(len(contents)), number // 2)
    }
    for half in combinations(range(len(contents)), number - number // 2):
        rest = (target - sum(contents[place] for place in half)) % DIGEST_MODULUS
        # Two halves that share a place would need its content twice: no digest adds up to that.
        if (other := known.get(rest)) is not None and not set(half) & set(other):
            return [*half, *other]
    return None


def _addends(contents: Sequence[int], number: int, target: int, start: int) -> list[int] | None:
    """Places at or after `start`, rising, whose contents add up to `target`."""
    if number == 1:
        return next(([p] for p in range(start, len(contents)) if contents[p] == target), None)
    if number == 2:
        return _pair(contents, target, start)
    for place in range(start, len(contents) - number + 1):
        rest = _addends(
            contents, number - 1, (target - contents[place]) % DIGEST_MODULUS, place + 1
        )
        if rest is not None:
            return [place, *rest]
    return None


def _pair(contents: Sequence[int], target: int, start: int) -> list[int] | None:
    passed: dict[int, int] = {}
    for place in range(start, len(contents)):
        partner = passed.get((target - contents[place]) % DIGEST_MODULUS)
        if partner is not None:
            return [partner, place]
        passed.setdefault(contents[place], place)
    return None


def _total(identities: Iterable[Identity]) -> Tally:
    total = NOTHING
    for identity in identities:
        total = total.plus(Tally(1, identity.content))
    return total
