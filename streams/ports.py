"""Ports: what the agents need of the world, one protocol each; adapters implement them."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from streams.core.billing import CarryPass, Payer
from streams.core.catalogue import MeterVersion
from streams.core.fact import FactBatch, LedgerAnswer, Remembered, WentBack
from streams.core.lane import Claim, LastAttempt, Settlement, Standing
from streams.core.live_meter import LiveMeter, MeterFinding
from streams.core.observation import Observation
from streams.core.orders import HeldRecord, Orders
from streams.core.rejection import ErrorReport, UnreadableReport


class LedgerUnavailableError(Exception):
    """The ledger did not answer, or answered that it cannot now; nothing was lost by it.

    Facts stay unsent and are sent again, claims come back by their deadline.
    """


class UndeliveredError(Exception):
    """The brokers did not take an output record in time; no record of the source is to blame.

    Nothing was settled: the chunk is read and judged again, and its outputs are repeated.
    """


class OutputsDeadError(Exception):
    """The producer will never deliver again; only a new process helps."""


class FactsLedger(Protocol):
    """Where partitions put their facts."""

    async def apply_facts(self, batch: FactBatch) -> LedgerAnswer:
        """One transaction; may be repeated. Raises `LedgerUnavailableError`."""
        ...

    async def behind(self, known: Sequence[Remembered]) -> Sequence[tuple[Remembered, WentBack]]:
        """Of what workers remember: what the ledger does not hold. Halts publishing for the rest.

        Raises `LedgerUnavailableError`.
        """
        ...

    async def position(self, log_id: str, partition: int) -> int:
        """The offset up to which the ledger holds a partition's facts; -1 for none."""
        ...


class AuditNote(NamedTuple):
    """The last audit of a source: how long ago by the ledger's clock, and what it found."""

    source: str
    age_us: int
    lost: int
    double: int
    findings: int


class AuditLedger(Protocol):
    """Where audits leave their trace."""

    async def last_audits(self) -> Sequence[AuditNote]:
        """The last audit of each source. Raises `LedgerUnavailableError`."""
        ...


class CatalogueLedger(Protocol):
    """Where the rule book stands."""

    async def load_catalogue(self) -> tuple[Sequence[MeterVersion], int]:
        """All lines and the ledger's time in microseconds. Raises `LedgerUnavailableError`."""
        ...

    async def notice_us(self) -> int:
        """How long ahead a change must be announced. Raises `LedgerUnavailableError`."""
        ...

    async def orders(self) -> Orders:
        """What operators ordered. Raises `LedgerUnavailableError`."""
        ...


class MeterLedger(Protocol):
    """Where it is kept which meters at Stripe are wrong. Both raise `LedgerUnavailableError`."""

    async def claim_meters(self, pause_s: float) -> int | None:
        """The name of a look; None: somebody looked within the pause."""
        ...

    async def note_meters(self, look: int, found: Sequence[MeterFinding]) -> bool:
        """Keeps what a look found in the place of what the last one did; False: it is outdated."""
        ...


class MeterSource(Protocol):
    """Where meters are read."""

    async def meters(self) -> Sequence[LiveMeter]:
        """All meters of the account. Raises `StripeUnreadableError`."""
        ...


class HoldLedger(Protocol):
    """Where a worker says which records hold its partitions."""

    async def report_held(self, held: HeldRecord, worker: str) -> None:
        """Once more; a repetition only says that it still does. Raises `LedgerUnavailableError`."""
        ...


class OverdueLedger(Protocol):
    """Where billing deadlines are kept."""

    async def carry_overdue(self, limit: int) -> CarryPass:
        """Does what meters say about entries too late for their invoice; may be repeated."""
        ...

    async def payers(self) -> Sequence[Payer]:
        """Customers with a billing cycle. Raises `LedgerUnavailableError`."""
        ...


class LaneLedger(Protocol):
    """Where publishing finds its work and writes what became of it."""

    async def cut_entries(self, limit: int) -> int:
        """Cuts what is due into entries; the number cut. Raises `LedgerUnavailableError`."""
        ...

    async def claim(self, worker: str, limit: int, lease_s: int) -> Sequence[Claim]:
        """Lends at most `limit` lanes with their attempt rows written."""
        ...

    async def settle(self, settlement: Settlement) -> None:
        """Writes what an attempt did; a late answer of an expired claim is kept as well."""
        ...


class AttemptLedger(LaneLedger, Protocol):
    """The same, and whether it still has what it once lent."""

    async def claim(
        self,
        worker: str,
        limit: int,
        lease_s: int,
        last: LastAttempt | None = None,
        in_touch: Callable[[], bool] | None = None,
    ) -> Sequence[Claim]:
        """Lends nothing where it lacks this attempt, and halts publishing.

        Nothing either where the worker is not `in_touch`, asked once the ledger has answered within
        the transaction of the claim: whatever put it back later ends that transaction.
        """
        ...

    async def attempt_stands(self, last: LastAttempt | None) -> Standing:
        """Whether it has this attempt; halts publishing if not.

        Raises `LedgerUnavailableError`.
        """
        ...


class Sink(Protocol):
    """Where usage is billed."""

    async def send(self, meter_event: Claim, idempotency_key: str) -> Observation:
        """One request; whatever happens is an observation, never an exception."""
        ...


NotedBy = Literal["webhook", "sweep"]
"""The way by which a report came first."""


class Noted(NamedTuple):
    """What a report came to."""

    repeated: bool
    """It was noted before; nothing was done."""
    taken_back: int
    """Meter events that are dead since."""


class Concerned(NamedTuple):
    """Whose errors a report may count beyond those that it names."""

    event_name: str | None = None
    """Of the report's meter; None where Stripe names none that it knows."""
    not_of: frozenset[str] = frozenset()
    """Names that another meter took all the while."""


class Told(NamedTuple):
    """An event that Stripe tells of, without its data."""

    event_id: str
    event_type: str


class RejectionLedger(Protocol):
    """Where error reports are noted. Every method raises `LedgerUnavailableError`."""

    async def known_reports(self, event_ids: Sequence[str]) -> set[str]:
        """Which of these are noted."""
        ...

    async def note_report(
        self,
        report: ErrorReport | UnreadableReport,
        body: bytes,
        concerned: Concerned,
        noted_by: NotedBy,
    ) -> Noted:
        """Notes a report and takes back what it names, in one transaction."""
        ...

    async def judge_again(self) -> int:
        """Looks again at what a later attempt left in doubt; how many it decided."""
        ...

    async def claim_sweep(self, pause_s: float) -> int | None:
        """From when on to read reports, microseconds; None: somebody did so within the pause."""
        ...

    async def swept(self, until_us: int) -> None:
        """Remembers that all reports up to then are noted."""
        ...

    async def unanswered(self, cause: str, *, refused: bool) -> None:
        """Remembers that Stripe gave no answer, or refused the key, until it has been swept."""
        ...


class ReportSource(Protocol):
    """Where error reports are read. Every method raises `StripeUnreadableError`."""

    async def event(self, event_id: str) -> bytes:
        """An event with its data, as JSON."""
        ...

    async def reports_since(self, since_us: int) -> Sequence[Told]:
        """The error reports that Stripe made since then."""
        ...

    async def meter_event_name(self, meter_id: str) -> str | None:
        """The event name of a meter; None where Stripe knows no such meter."""
        ...

    async def names_taken_since(self, since_us: int) -> frozenset[str]:
        """Event names whose meter has been there, active and unchanged, since then."""
        ...


class Outputs(Protocol):
    """The output topics."""

    def produce(self, topic: str, key: bytes | None, value: bytes) -> None:
        """Hands a record over; it is not delivered before `flush` returns.

        Raises:
            UndeliveredError: the record is refused at once.
            OutputsDeadError: the worker must end.
        """
        ...

    async def flush(self) -> None:
        """Waits until the brokers have everything.

        Raises:
            UndeliveredError: at least one record is not there.
            OutputsDeadError: the same, and the worker must end.
        """
        ...
