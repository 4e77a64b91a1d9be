"""Entries, and the work list that follows from them: uncovered amounts and their lanes."""

from collections.abc import Callable, Iterable

from streams.core.catalogue import MeterVersion
from tests.simulation.ledger.rows import Entry, Lane, MeterEventRow, Tables, Uncovered

SECOND_US = 1_000_000


class NoDataFoundError(Exception):
    """A row that is said to exist does not."""


class WorkList:
    """What every statement rests on."""

    def __init__(
        self, meters: Iterable[MeterVersion], clock: Callable[[], int], note: Callable[..., None]
    ) -> None:
        self.tables = Tables()
        self.meters = {(m.metric, m.version): m for m in meters}
        self.clock = clock
        self.deaths: list[str] = []
        """Why meter events died, as an observer noted it."""
        self.note = note

    @property
    def now_us(self) -> int:
        """The database's clock."""
        return self.clock()

    def entry(self, entry_id: int) -> Entry:
        return self.tables.entries[entry_id - 1]

    def meter_event(self, meter_event_id: int) -> MeterEventRow:
        """As STRICT selects it.

        Raises:
            NoDataFoundError: this ledger has never heard of it.
        """
        if meter_event_id > len(self.tables.meter_events):
            raise NoDataFoundError
        return self.tables.meter_events[meter_event_id - 1]

    def insert_entry(self, entry: Entry) -> int:
        """Adds an entry; its number. The caller has looked for its identity."""
        tables = self.tables
        entry.entry_id = len(tables.entries) + 1
        if entry.event_id is not None:
            assert (entry.kind, entry.event_id) not in tables.identities, "an identity twice"
            tables.identities[entry.kind, entry.event_id] = entry.entry_id
        tables.entries.append(entry)
        self.note("entry", entry.kind, entry.tenant_id, entry.metric, entry.start_us, entry.delta)
        return entry.entry_id

    def customer_of(self, tenant_id: str, at_us: int) -> str | None:
        """Who pays for a window that starts then."""
        mapped = [c for since, c in self.tables.customers.get(tenant_id, ()) if since <= at_us]
        return mapped[-1] if mapped else None

    def has_passed(self, deadline_us: int | None) -> bool:
        """Whether what has this deadline is on no invoice any more."""
        return deadline_us is not None and deadline_us <= self.now_us

    def place_entries(self, entry_ids: Iterable[int]) -> None:
        """Puts entries on the work list, under the lane of the customer of their window."""
        woken: dict[int, None] = {}
        for entry_id in entry_ids:
            entry = self.entry(entry_id)
            meter = self.meters[entry.metric, entry.version]
            customer = self.customer_of(entry.tenant_id, entry.start_us)
            lane_id = None if customer is None else self._lane(customer, meter.event_name)
            single = None
            if meter.publish == "event":
                single = entry.start_us if entry.occurred_us is None else entry.occurred_us
            first_us, last_us = entry.start_us + SECOND_US, entry.end_us - SECOND_US
            cycle = None if customer is None else self.tables.cycle
            if single is not None:
                first_us = last_us = single
            elif cycle is not None and cycle.end_us(first_us) != cycle.end_us(last_us):
                first_us = last_us  # a window of two periods is dated in the later one
            self.tables.uncovered[entry_id] = Uncovered(
                entry_id, entry.tenant_id, entry.start_us, entry.end_us, single, entry.delta,
                lane_id, first_us, None if cycle is None else cycle.deadline_us(last_us),
            )  # fmt: skip
            if lane_id is not None:
                woken[lane_id] = None
        self.wake(woken)

    def held_by_doubt(self, customer: str, event_name: str, at_us: int) -> bool:
        """Whether a restored ledger may have sent it: Stripe's sums tell first."""
        del customer, event_name, at_us
        return False

    def _lane(self, customer: str, event_name: str) -> int:
        known = self.tables.lane_ids.get((customer, event_name))
        if known is not None:
            return known
        number = len(self.tables.lanes) + 1
        self.tables.lanes[number] = Lane(number, customer, event_name)
        self.tables.lane_ids[customer, event_name] = number
        return number

    def open_in(self, lane_id: int) -> list[MeterEventRow]:
        """Meter events of a lane that are not at their end, oldest first."""
        return [
            m
            for m in self.tables.meter_events
            if m.lane_id == lane_id and m.state in {"pending", "ambiguous", "dead"}
        ]

    def wake(self, lane_ids: Iterable[int]) -> None:
        """Lanes learn when they have something to do."""
        for lane_id in lane_ids:
            instants = [
                m.next_attempt_us for m in self.open_in(lane_id) if m.next_attempt_us is not None
            ]
            instants += [u.due_us for u in self.tables.uncovered.values() if u.lane_id == lane_id]
            self.tables.lanes[lane_id].next_due_us = min(instants, default=None)

    def unfinished(self, m: MeterEventRow) -> bool:
        """Whether an attempt has no end: its publisher died or sleeps."""
        return any(self.tables.attempts[n - 1].finished_us is None for n in m.attempts)

    def release(self, events: Iterable[MeterEventRow]) -> None:
        """Ends meter events; their entries go back to the work list."""
        for m in events:
            m.state, m.next_attempt_us = "superseded", None
            if m.live:
                m.live = False
                self.place_entries(m.entry_ids)
