"""The judge of all tests on the stack: what was expected, what the books hold → five figures.

Pure: `books.read` fetches what the books hold. Each book is held against the one before it, so a
usage event that went missing is counted once, at the place where it is missing:

    the service's own notes → key registry → ledger → Stripe

`lost` and `double` count usage events up to the ledger, and units at Stripe, where there are only
sums. What moved from one cell to another is `misattributed`, what nobody recorded is `phantom`,
what waits although all is over is `stuck`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

HOUR_S: Final = 3_600

Place = TypeVar("Place")

Window = tuple[str, str, int]
"""Tenant, metric, start in seconds since 1970 UTC."""

Key = tuple[str, str]
"""Tenant and event key."""


class Amount(NamedTuple):
    """Usage events and units of a window; of a cell at Stripe the units alone."""

    events: int
    units: int


@dataclass(frozen=True, slots=True)
class Expected:
    """What has to come out."""

    keys: Mapping[Key, tuple[Window, Amount] | None]
    """Every identity, and what it adds to which window; None where a person decides on it."""
    conflicts: Mapping[str, int]
    """Other contents that were offered, per tenant."""
    parked: Mapping[tuple[str, str], int]
    """What a person decides on, per tenant and reason."""
    decided: Mapping[str, int] = field(default_factory=dict)
    """Dead letters that were there on the way and are settled since, per reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """A window in the ledger."""

    events: int
    total: int
    decided: int
    settled: int
    waiting: int
    """Pending, held, dead or ambiguous."""


class Counted(NamedTuple):
    """A meter event that Stripe counts."""

    customer: str
    event_name: str
    at_s: int
    identifier: str
    units: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What the books hold."""

    keys: Counter[Key]
    conflicts: Mapping[str, int]
    windows: Mapping[Window, Row]
    parked: Mapping[tuple[str, str], int]
    stripe: tuple[Counted, ...]
    doubted: tuple[Counted, ...] = ()
    """Taken back by Stripe without a name; the ledger lists their cells as doubt."""
    findings: tuple[str, ...] = ()
    """Contradictions that the ledger has noted and nobody has cleared, in its words."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The five figures, and each difference in words."""

    lost: int = 0
    double: int = 0
    phantom: int = 0
    misattributed: int = 0
    stuck: int = 0
    differences: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    """What was held against what, with its size: a verdict on nothing says so."""

    @property
    def exact(self) -> bool:
        return not any(self.figures.values())

    @property
    def figures(self) -> dict[str, int]:
        names = ("lost", "double", "phantom", "misattributed", "stuck")
        return {name: int(getattr(self, name)) for name in names}

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(
            **{name: number + other.figures[name] for name, number in self.figures.items()},
            differences=self.differences + other.differences,
            compared=self.compared + other.compared,
        )

    def __str__(self) -> str:
        return " · ".join(f"{name} {number}" for name, number in self.figures.items())


def compare(expected: Expected, seen: Seen, *, by_hour: bool = True) -> Verdict:
    """Holds the books against each other.

    Args:
        expected: what has to come out.
        seen: what the books hold.
        by_hour: whether usage has to be dated into its own hour; what was carried is not.
    """
    recorded = {key: use for key, use in expected.keys.items() if seen.keys[key]}
    windows: dict[Window, Amount] = {}
    for window, more in filter(None, recorded.values()):
        has = windows.get(window, Amount(0, 0))
        windows[window] = Amount(has.events + more.events, has.units + more.units)
    whole = (
        _registry(expected, seen)
        + _parked(expected, seen)
        + _ledger(windows, seen)
        + _settling(seen)
        + _findings(seen)
        + _stripe(seen, by_hour=by_hour)
    )
    sizes = (
        f"{len(expected.keys)} identities",
        f"{len(windows)} windows with {sum(amount.events for amount in windows.values())} events",
        f"{len(seen.stripe)} meter events at Stripe",
        *((f"{len(seen.doubted)} of them listed as doubt",) if seen.doubted else ()),
    )
    return replace(whole, compared=sizes)


def _registry(expected: Expected, seen: Seen) -> Verdict:
    missing = sorted(key for key in expected.keys if not seen.keys[key])
    foreign = sorted(key for key in seen.keys if key not in expected.keys)
    found = Verdict(
        lost=len(missing),
        phantom=len(foreign),
        differences=(
            *(f"registry: {_words(key)} is missing" for key in missing),
            *(f"registry: {_words(key)} was never committed" for key in foreign),
        ),
    )
    for tenant, short in _deltas(expected.conflicts, seen.conflicts).items():
        said = f"registry: {tenant}: {short:+d} conflicts"
        found += Verdict(lost=max(0, -short), phantom=max(0, short), differences=(said,))
    return found


def _parked(expected: Expected, seen: Seen) -> Verdict:
    """Decided ones are known by their number alone: which tenant they hit is up to chance."""
    found = Verdict()
    usual = {place: n for place, n in seen.parked.items() if place[1] not in expected.decided}
    for place, more in _deltas(expected.parked, usual).items():
        said = f"parked: {_words(place)}: {more:+d}"
        found += Verdict(lost=max(0, -more), stuck=max(0, more), differences=(said,))
    for reason, number in expected.decided.items():
        has = sum(n for place, n in seen.parked.items() if place[1] == reason)
        if has != number:
            said = f"parked: {has} {reason} instead of {number}"
            short, over = max(0, number - has), max(0, has - number)
            found += Verdict(lost=short, stuck=over, differences=(said,))
    return found


def _ledger(windows: Mapping[Window, Amount], seen: Seen) -> Verdict:
    has = {window: Amount(row.events, row.total) for window, row in seen.windows.items()}
    return _cells("ledger", windows, has)


def _settling(seen: Seen) -> Verdict:
    """Within the ledger: everything admitted is settled, and nothing else is."""
    found = Verdict()
    for window, row in sorted(seen.windows.items()):
        unsettled = row.total + row.decided - row.waiting - row.settled
        one = Verdict(
            stuck=abs(row.waiting),
            phantom=abs(row.decided),
            lost=max(0, unsettled),
            double=max(0, -unsettled),
            differences=(f"ledger: {_words(window)}: {row}",),
        )
        found += Verdict() if one.exact else one
    return found


def _findings(seen: Seen) -> Verdict:
    """Equal books with a contradiction among them wait for a person, though all is over."""
    said = tuple(f"ledger: it has found a contradiction: {finding}" for finding in seen.findings)
    return Verdict(stuck=len(said), differences=said)


def _stripe(seen: Seen, *, by_hour: bool) -> Verdict:
    """What the ledger calls settled against what Stripe counts, per customer, meter and hour."""

    def hour(at_s: int) -> int:
        return at_s - at_s % HOUR_S if by_hour else 0

    found = Verdict()
    settled: Counter[Window] = Counter()
    for (tenant, metric, start_s), row in seen.windows.items():
        settled[f"cus_{tenant}", metric, hour(start_s)] += row.settled
    counts: Counter[Window] = Counter()
    identifiers: set[str] = set()
    for event in (*seen.stripe, *seen.doubted):
        if event.identifier in identifiers:
            said = f"Stripe: {event.identifier} counts again, {event.units} units"
            found += Verdict(double=max(1, abs(event.units)), differences=(said,))
            continue
        identifiers.add(event.identifier)
        counts[event.customer, event.event_name, hour(event.at_s)] += event.units
    return found + _cells("Stripe", _units_only(settled), _units_only(counts))


def _units_only(counts: Mapping[Window, int]) -> dict[Window, Amount]:
    return {window: Amount(0, units) for window, units in counts.items()}


def _cells(book: str, want: Mapping[Window, Amount], has: Mapping[Window, Amount]) -> Verdict:
    """Shortages and surpluses of cells; a pair that cancels out has moved and is not lost."""
    nothing = Amount(0, 0)
    deltas: dict[Window, Amount] = {}
    for cell in sorted(want.keys() | has.keys()):
        is_, should = has.get(cell, nothing), want.get(cell, nothing)
        if is_ != should:
            deltas[cell] = Amount(is_.events - should.events, is_.units - should.units)
    moved = set(_moved(deltas))
    found = Verdict()
    for cell, delta in deltas.items():
        size = delta.events or delta.units
        said = f"{book}: {_words(cell)}: {delta.events:+d} events, {delta.units:+d} units"
        if cell in moved:
            found += Verdict(misattributed=max(0, -size), differences=(said + ", elsewhere",))
        elif size < 0:
            found += Verdict(lost=-size, differences=(said,))
        elif cell in want:
            found += Verdict(double=size, differences=(said,))
        else:
            found += Verdict(phantom=size, differences=(said,))
    return found


def _moved(deltas: Mapping[Window, Amount]) -> Iterator[Window]:
    """All of them where they cancel out as a whole, else the pairs that do."""
    if all(sum(column) == 0 for column in zip(*deltas.values(), strict=True)):
        yield from deltas
        return
    open_: dict[Amount, list[Window]] = {}
    for cell, delta in deltas.items():
        opposite = open_.get(Amount(-delta.events, -delta.units))
        if opposite:
            yield opposite.pop()
            yield cell
        else:
            open_.setdefault(delta, []).append(cell)


def _deltas(want: Mapping[Place, int], has: Mapping[Place, int]) -> dict[Place, int]:
    both = sorted(want.keys() | has.keys(), key=str)
    found = {each: has.get(each, 0) - want.get(each, 0) for each in both}
    return {each: delta for each, delta in found.items() if delta}


def _words(parts: Iterable[object]) -> str:
    return " ".join(str(part) for part in parts)
