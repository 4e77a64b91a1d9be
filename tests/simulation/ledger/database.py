"""The whole database, and how the product's adapters reach it: transactions and outages."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from copy import deepcopy
from dataclasses import astuple, dataclass
from typing import Any, Final, TypeVar, cast

from streams.adapters.ledger_carry import LedgerCarry
from streams.adapters.ledger_facts import LedgerFacts
from streams.adapters.ledger_pool import Connection, LedgerPool
from streams.adapters.ledger_publishing import LedgerPublishing
from streams.adapters.ledger_rejections import LedgerRejections
from streams.core.catalogue import DEFAULT_NOTICE_US, MeterVersion
from streams.core.orders import HeldRecord, Orders
from streams.ports import LedgerUnavailableError
from tests.simulation.ledger.carrying import Carrying
from tests.simulation.ledger.facts import Facts
from tests.simulation.ledger.rows import Entry, Lane, MeterEventRow, Tables, Uncovered
from tests.simulation.timeline import Process, Timeline

Result = TypeVar("Result")
LEDGER_ID = "ledger-a"
POOL_TIMEOUT_S: Final = 10.0
COMMITTED: Final = {
    "lent": "claimed",
    "position_advance": "facts_told",
    "settle_many": "settlement_written",
    "cut_entries": "entries_cut",
    "doubt_unnamed": "report_noted",
    "carry_overdue": "invoices_closed",
}
"""Named steps: what a transaction was that ends with a statement."""


class Database(Facts, Carrying):
    """One PostgreSQL with the ledger in it."""

    def __init__(self, timeline: Timeline, meters: Sequence[MeterVersion]) -> None:
        super().__init__(meters, self._clock_us, timeline.note)
        self.timeline = timeline
        self.away = False
        self.clock_ahead_us = 0
        self.restores = 0
        self.attempted: dict[str, int] = {}
        """When each key was first attempted, as an observer noted it: no restore takes it back."""
        self.restored_us: list[int] = []
        self.adopted_us: list[int] = []
        self.entries_seen: dict[tuple[int, int], tuple[Any, ...]] = {}
        """Each entry as it was when it was made, by restores and number."""
        self.leases: dict[tuple[int, int], int] = {}
        """Until when each attempt's lane is lent, by the true clock; by restores and attempt."""
        self.lent_to: list[tuple[int, str, str]] = []
        """When a lane was lent, and whose it is: customer and event name."""

    @property
    def ledger_id(self) -> str:
        """Another name after each adoption, so that no identifier of the lost ledger returns."""
        adoptions = self.tables.adoptions
        return f"{LEDGER_ID}.{len(adoptions)}" if adoptions else LEDGER_ID

    def _clock_us(self) -> int:
        return self.timeline.now_us() + self.clock_ahead_us

    def lend(self, events: Sequence[int], worker: str, lease_ms: int) -> list[int]:
        made = super().lend(events, worker, lease_ms)
        now_us = self.timeline.now_us()
        for m in map(self.meter_event, events):
            self.attempted.setdefault(f"{m.identifier}.g{m.key_generation}", now_us)
            self.lent_to.append((now_us, m.customer, m.event_name))
        for attempt_id in made:
            self.leases[self.restores, attempt_id] = now_us + lease_ms * 1_000
        return made

    def adopt(self) -> int | None:
        number = super().adopt()
        if number is not None:
            self.adopted_us.append(self.timeline.now_us())
            self.timeline.strike("ledger adopted")
        return number

    def park_dead(self, m: MeterEventRow) -> None:
        super().park_dead(m)
        self.timeline.strike(f"request dead: {m.dead_kind}")

    def carry_out(self, u: Uncovered, *, elsewhere: bool) -> None:
        super().carry_out(u, elsewhere=elsewhere)
        self.timeline.strike(f"invoices_close: {'billed elsewhere' if elsewhere else 'carried'}")

    def is_paused(self, lane: Lane) -> bool:
        """Asked of lanes that are due: a pause has met something."""
        paused = super().is_paused(lane)
        if paused:
            self.timeline.strike("publishing_paused")
        return paused

    def insert_entry(self, entry: Entry) -> int:
        number = super().insert_entry(entry)
        self.entries_seen[self.restores, number] = astuple(entry)
        return number

    def backup(self) -> Tables:
        """What a restore brings back."""
        return deepcopy(self.tables)

    def restore(self, backup: Tables) -> None:
        """Everything after the backup is forgotten."""
        if len(self.tables.attempts) == len(backup.attempts):
            # Nothing was sent that it does not know of: there is nothing to notice.
            self.adopted_us.append(self.timeline.now_us())
        else:
            self.timeline.strike("ledger_restored")
        self.tables = deepcopy(backup)
        self.restores += 1
        self.restored_us.append(self.timeline.now_us())
        self.timeline.note("ledger restored")


@dataclass(slots=True)
class Cursor:
    """What a statement answers with."""

    rowcount: int


class Statements:
    """Named statements, answered by the database's methods of that name."""

    def __init__(self, database: Database, used: list[str]) -> None:
        self._database, self._used = database, used

    async def run(self, _conn: object, name: str, parameters: Any = None) -> Cursor:
        count = self._call(name, parameters)
        return Cursor(count if isinstance(count, int) else -1)

    async def value(self, _conn: object, name: str, parameters: Any = None) -> Any:
        return self._call(name, parameters)

    async def rows(self, _conn: object, name: str, parameters: Any = None) -> Any:
        return self._call(name, parameters)

    def _call(self, name: str, parameters: Mapping[str, Any] | None) -> Any:
        self._used.append(name)
        if name == "ledger_id":
            return self._database.ledger_id
        return getattr(self._database, name)(**(parameters or {}))


class _Connection:
    async def rollback(self) -> None:
        """What is rolled back has changed nothing yet."""


class Pool:
    """One process's way to the database: requests and answers travel, and may be lost."""

    def __init__(
        self, database: Database, process: Process, delay_s: Callable[[], float],
        answer_lost: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._database, self._process = database, process
        self._delay_s, self._answer_lost = delay_s, answer_lost
        self._used: list[str] = []
        """Statements of the transaction that ran last."""

    async def run(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """One transaction, in one instant of the database."""
        self._process.check()
        await asyncio.sleep(self._delay_s())
        self._process.check()
        if self._database.away:
            # The pool goes on trying to connect for as long as its caller waits.
            await asyncio.sleep(POOL_TIMEOUT_S)
            self._process.check()
        if self._database.away:
            self._database.timeline.strike("ledger_away")
            message = "connection refused"
            raise LedgerUnavailableError(message)
        self._process.step("transaction_begun")
        self._used.clear()
        conn = cast("Connection", _Connection())
        result = _at_once(cast("Coroutine[Any, Any, Result]", work(conn)))
        self._process.step(COMMITTED.get(self._used[-1], "read") if self._used else "read")
        if self._process.state != "running":
            # Stopped just now: it hears the answer when it goes on.
            await asyncio.sleep(0)
        self._process.check()
        if self._answer_lost():
            self._database.timeline.strike("ledger_answers_lost")
            message = "connection reset"
            raise LedgerUnavailableError(message)
        return result

    def facts(self) -> LedgerFacts:
        """The product's adapter above this database."""
        adapter = LedgerFacts(cast("LedgerPool", self))
        adapter._sql = cast("Any", Statements(self._database, self._used))
        return adapter

    def publishing(self) -> LedgerPublishing:
        """The same for lanes."""
        adapter = LedgerPublishing(cast("LedgerPool", self), "acct_sandbox", livemode=False)
        adapter._sql = adapter._catalogue = cast("Any", Statements(self._database, self._used))
        return adapter

    def carry(self) -> LedgerCarry:
        """The same for invoices that close."""
        adapter = LedgerCarry(cast("LedgerPool", self))
        adapter._sql = cast("Any", Statements(self._database, self._used))
        return adapter

    def rejections(self) -> LedgerRejections:
        """The same for error reports."""
        adapter = LedgerRejections(cast("LedgerPool", self))
        adapter._sql = cast("Any", Statements(self._database, self._used))
        return adapter


def _at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs a transaction to its end; nothing in it waits, so it is one instant."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast("Result", done.value)
    work.close()
    raise AssertionError("a transaction waited for something outside the database")


class Catalogue:
    """The ledger's catalogue and orders, as a worker reads them."""

    def __init__(self, database: Database, pool: Pool) -> None:
        self._database, self._pool = database, pool

    async def load_catalogue(self) -> tuple[Sequence[MeterVersion], int]:
        async def read(_conn: Connection) -> tuple[Sequence[MeterVersion], int]:
            return list(self._database.meters.values()), self._database.now_us

        return await self._pool.run(read)

    async def notice_us(self) -> int:
        return DEFAULT_NOTICE_US

    async def orders(self) -> Orders:
        return Orders()

    async def report_held(self, held: HeldRecord, worker: str) -> None:
        """Nobody decides on held records here."""
