"""What must be true in the end, worked out from what services committed and people decided.

Nothing of the product is used here: the rules are written down again, in the plainest way, and
compared with what stands in the ledger's tables and in Stripe's recorded multiset.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from streams.engine.log import Record
from streams.topics import EVENTS
from tests.simulation.ledger.rows import Entry
from tests.simulation.rules import (
    HORIZON_US,
    HOUR_US,
    MINUTE_US,
    RULES,
    Rule,
    rule_of,
    units_of,
    verdict_of,
)
from tests.simulation.service import SOURCE, Row
from tests.simulation.world import World

DECIDED: Final = frozenset({"late", "early", "above_limit"})
"""What is billed if a person says so."""
Cell = tuple[str, str, int]
"""customer, event name, start of the hour."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never be; `name` is what the summary counts."""

    name: str
    detail: str


class Truth:
    """What a world must come to."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rows = world.service.committed
        self.forgotten: Counter[str] = Counter()
        """Copies that came when nobody had to know any more that they are copies: event ids."""
        self.outlived: set[str] = set()
        """What came first when others of its time may have been forgotten: event ids."""
        self.identities: list[set[str]] = []
        """On each partition, event ids that were recorded."""
        self._read_logs()
        parked = world.database.tables.parked
        beyond = {p.row.get("event_id") for p in parked if p.reason == "beyond_horizon"}
        beyond &= self.outlived
        self.verdicts = [
            (row, "beyond_horizon" if _dated(row) and row.event_id in beyond else verdict_of(row))
            for row in self.rows
        ]

    def _read_logs(self) -> None:
        received_us = {(row.event_id, row.content): row.received_us for row in self.rows}
        for before, log in self._logs():
            seen: set[tuple[str, str]] = set()
            own: set[str] = set()
            old: deque[tuple[int, int]] = deque()
            floor_us = 0
            for place, record in enumerate([*before, *log]):
                wire = msgspec.json.decode(record.value or b"{}")
                told = wire["event_id"], wire["content"]
                if told not in received_us:
                    continue  # nobody recorded it
                logged_us, at_us = record.timestamp_ms * 1_000, received_us[told]
                while old and old[0][0] <= logged_us - HORIZON_US:
                    floor_us = max(floor_us, old.popleft()[1])
                old.append((logged_us, at_us))
                if place >= len(before):
                    if told not in seen and at_us <= floor_us:
                        self.outlived.add(told[0])
                    if told in seen and logged_us - at_us > HORIZON_US:
                        self.forgotten[told[0]] += 1
                    own.add(told[0])
                seen.add(told)
            self.identities.append(own)

    def _logs(self) -> Iterator[tuple[list[Record], list[Record]]]:
        """Of each partition what it has to know of the one whose keys it took over, and its own."""
        logs = self.world.broker.logs[EVENTS]
        (ends,) = self.world.broker.grew_at or [tuple(len(log) for log in logs)]
        for partition, log in enumerate(logs):
            first = partition % len(ends)
            yield (logs[first][: ends[first]] if partition >= len(ends) else []), log

    def counted_again(self) -> Counter[int]:
        """How often identities of a minute may be counted once more for such copies."""
        minutes: Counter[int] = Counter()
        for row in self.rows:
            minute_us = row.received_us - row.received_us % MINUTE_US
            minutes[minute_us] += self.forgotten[row.event_id]
        return minutes

    def payer(self, tenant_id: str, at_us: int) -> str:
        """The customer mapped for an instant."""
        since = [(f, c) for t, f, c in self.world.mapped if t == tenant_id and f <= at_us]
        return max(since)[1] if since else "nobody"

    def cell(self, tenant_id: str, metric: str, at_us: int) -> Cell:
        """Where an amount of an instant belongs in Stripe's books."""
        return self._cell(tenant_id, rule_of(metric, at_us), at_us)

    def _cell(self, tenant_id: str, rule: Rule, at_us: int) -> Cell:
        payer = self.payer(tenant_id, at_us - at_us % rule.window_us)
        return payer, rule.name, at_us - at_us % HOUR_US

    def amounts(self) -> dict[Cell, int]:
        """Units by cell: accepted usage, what people approved, and corrections."""
        amounts: defaultdict[Cell, int] = defaultdict(int)
        approved = set(self.world.operator.approved)
        for row, verdict in self.verdicts:
            billed = verdict in {"accepted", "correction"}
            if billed or (verdict in DECIDED and row.event_id in approved):
                amounts[self.cell(row.use.tenant_id, row.use.metric, row.occurred_us)] += units_of(
                    row
                )
        for fix in self.world.operator.finance.fixes:
            if fix.state == "booked":
                wanted = fix.wanted
                amounts[self.cell(wanted.tenant_id, wanted.metric, wanted.at_us)] += wanted.units
        for entry, put in self.carried():
            # By the rule that it was judged by, also where its invoice is a later one's.
            rule = RULES[entry.metric][entry.version - 1]
            amounts[self._cell(entry.tenant_id, rule, entry.start_us)] -= entry.delta
            if put is not None:
                amounts[self._cell(put.tenant_id, rule, put.start_us)] += entry.delta
        return {cell: units for cell, units in amounts.items() if units}

    def carried(self) -> Iterator[tuple[Entry, Entry | None]]:
        """What the ledger says of amounts that missed their invoice; see `checks.uninvoiced`."""
        entries = self.world.database.tables.entries
        for carry in self.world.database.tables.carries:
            put = carry.in_entry_id
            yield entries[carry.entry_id - 1], None if put is None else entries[put - 1]

    def cells(self) -> dict[tuple[int, str], tuple[int, int]]:
        """Identities by minute and class: how many, and the sum of their contents."""
        classes = dict.fromkeys(("late", "early", "beyond_horizon", "above_limit"), "review")
        classes |= dict.fromkeys(("unknown", "uncountable"), "dead")
        found: dict[tuple[int, str], tuple[int, int]] = {}
        for row, verdict in self.verdicts:
            key = row.received_us - row.received_us % MINUTE_US, classes.get(verdict, verdict)
            count, digest = found.get(key, (0, 0))
            found[key] = count + 1, (digest + int(row.content, 16)) % (1 << 128)
        return found

    def parked(self) -> Counter[tuple[str, str]]:
        """Reason and event id of what a person has to see."""
        reasons = {"late", "early", "conflict", "beyond_horizon", "above_limit"}
        return Counter(
            (verdict.replace("above_limit", "correction_limit"), row.event_id)
            for row, verdict in self.verdicts
            if verdict in reasons
        )


def _dated(row: Row) -> bool:
    """Whether it is usage that its instants are held against."""
    return row.kind == "usage" and verdict_of(row) in {"accepted", "late"}


def billed(world: World) -> dict[Cell, int]:
    """What Stripe has, read from its recorded multiset."""
    state = world.stripe.memory.state
    sums: defaultdict[Cell, int] = defaultdict(int)
    for event in state.recorded:
        if event.refused is None and event.identifier not in state.cancelled:
            at_us = event.timestamp_s * 1_000_000
            sums[event.customer, event.event_name, at_us - at_us % HOUR_US] += int(event.value)
    return {cell: units for cell, units in sums.items() if units}


def amounts_differ(world: World, truth: Truth) -> Iterator[Violation]:
    """Lost, double, phantom and misattributed units, cell by cell."""
    expected, found = truth.amounts(), billed(world)
    short = {c: expected[c] - found.get(c, 0) for c in expected if found.get(c, 0) < expected[c]}
    over = {
        c: units - expected.get(c, 0) for c, units in found.items() if units > expected.get(c, 0)
    }
    for cell, units in sorted(over.items()):
        twin = next((c for c, u in short.items() if c[1:] == cell[1:] and u == units), None)
        if twin is not None:
            del short[twin]
            yield Violation("misattributed", f"{units} units of {twin} are billed to {cell[0]}")
        else:
            name = "double" if cell in expected else "phantom"
            yield Violation(name, f"{cell}: {units} units ({_powers(units)}) too many")
    for cell, units in sorted(short.items()):
        yield Violation("lost", f"{cell}: {units} units ({_powers(units)}) are not billed")


def _powers(units: int) -> str:
    """The uses that a difference consists of, as powers of four."""
    digits, power = [], 0
    while units:
        units, digit = divmod(units, 4)
        if digit:
            digits.append(f"{digit}·4^{power}")
        power += 1
    return " + ".join(digits)


def cells_differ(world: World, truth: Truth) -> Iterator[Violation]:
    """Identities that the ledger counts and the registry does not have, or the other way round."""
    expected, found = truth.cells(), Counter[tuple[int, str]]()
    digests: dict[tuple[int, str], int] = {}
    for (source, minute_us, kind, _, _), cell in world.database.tables.cells.items():
        if source == SOURCE:
            key = minute_us, kind
            found[key] += cell.count
            digests[key] = (digests.get(key, 0) + cell.digest) % (1 << 128)
    again = truth.counted_again()
    for key in sorted(expected.keys() | found.keys()):
        count, digest = expected.get(key, (0, 0))
        if found[key] < count:
            yield Violation("identity_lost", f"{key}: {found[key]} of {count} identities")
        elif 0 < found[key] - count <= again[key[0]]:
            continue
        elif found[key] > count:
            yield Violation("identity_phantom", f"{key}: {found[key]} instead of {count}")
        elif digests[key] != digest:
            yield Violation("identity_differs", f"{key}: other contents than committed")


def parked_differs(world: World, truth: Truth) -> Iterator[Violation]:
    """A conflict or a late use that nobody would see, or one that is no such thing."""
    found = Counter(
        (p.reason, p.row["event_id"]) for p in world.database.tables.parked if p.kind == "review"
    )
    for item in sorted((truth.parked() - found).keys()):
        yield Violation("silent", f"{item} waits for nobody")
    for item in sorted((found - truth.parked()).keys()):
        if item[0] == "beyond_horizon" and truth.forgotten[item[1]]:
            continue
        yield Violation("review_phantom", f"{item} was parked, for no reason")
