"""Tables of the ledger, one row class each; instants are microseconds since 1970."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

SeriesKey = tuple[str, str, int, int, int, str]
"""tenant, metric, window start, catalogue version, shard, log."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """When invoices close: of all customers alike."""

    anchor_us: int
    length_us: int
    grace_us: int
    margin_us: int

    def end_us(self, at_us: int) -> int:
        """The end of the period that holds an instant."""
        return at_us - (at_us - self.anchor_us) % self.length_us + self.length_us

    def deadline_us(self, at_us: int) -> int:
        """Nothing dated then is sent from here on."""
        return self.end_us(at_us) + self.grace_us - self.margin_us


@dataclass(slots=True)
class Level:
    key: SeriesKey
    end_us: int
    partition: int
    birth: int
    count: int
    total: int
    digest: int
    due_us: int | None
    held: bool = False
    cut_total: int = 0
    """Sum of its entries, as the last one says."""
    revision: int = 0


@dataclass(slots=True)
class Cell:
    birth: int
    count: int
    digest: int


@dataclass(slots=True)
class Entry:
    entry_id: int
    kind: str
    tenant_id: str
    metric: str
    version: int
    start_us: int
    end_us: int
    delta: int
    event_id: str | None = None
    content: str | None = None
    occurred_us: int | None = None
    series: SeriesKey | None = None
    revision: int | None = None

    @property
    def name(self) -> str:
        """What does not depend on its number: decisions about it are known by it."""
        own = self.event_id or (self.series, self.revision)
        return f"{self.kind}:{own}:{self.tenant_id}:{self.metric}"


@dataclass(slots=True)
class Uncovered:
    """An entry that no live meter event covers."""

    entry_id: int
    tenant_id: str
    start_us: int
    end_us: int
    occurred_us: int | None
    delta: int
    lane_id: int | None
    due_us: int
    deadline_us: int | None = None


@dataclass(slots=True)
class Lane:
    lane_id: int
    customer: str
    event_name: str
    claimed_until_us: int | None = None
    attempt_id: int | None = None
    paused: bool = False
    next_due_us: int | None = None


@dataclass(slots=True)
class MeterEventRow:
    meter_event_id: int
    lane_id: int
    customer: str
    event_name: str
    start_us: int
    end_us: int
    per_entry: bool
    units: int
    first_entry_id: int
    generation: int
    value: str | None
    timestamp_s: int | None
    identifier: str | None
    payload_hash: str | None
    state: str
    attempts_used: int
    next_attempt_us: int | None
    entry_ids: list[int]
    """The entries it covers, or covered until it was superseded."""
    live: bool = True
    dead_kind: str | None = None
    key_generation: int = 1
    first_attempt_us: int | None = None
    possibly_executed: bool = False
    rejected_us: int | None = None
    deadline_us: int | None = None
    attempts: list[int] = field(default_factory=list)

    @property
    def open(self) -> bool:
        return self.state in {"pending", "ambiguous"}


@dataclass(slots=True)
class Attempt:
    attempt_id: int
    meter_event_id: int
    key_generation: int
    worker: str
    started_us: int
    lease_until_us: int
    finished_us: int | None = None
    outcome: str | None = None
    http_status: int | None = None


@dataclass(slots=True)
class Parked:
    parked_id: int
    kind: str
    reason: str
    row: dict[str, Any]
    """The fact as it was told; empty for a dead meter event."""
    meter_event_id: int | None = None
    entry_id: int | None = None
    """An entry that missed its invoice."""
    state: str = "open"
    published: bool = False


@dataclass(slots=True)
class Doubt:
    """A cell of which Stripe's sum and ours may differ for a known reason."""

    customer: str
    event_name: str
    start_us: int
    reason: str
    noted_us: int
    open: bool = True


@dataclass(slots=True)
class Reading:
    """What Stripe said of a cell."""

    reading_id: int
    customer: str
    event_name: str
    start_us: int
    value: Decimal
    at_us: int


@dataclass(slots=True)
class Adoption:
    """A restored ledger that was taken on."""

    adoption_id: int
    from_us: int
    until_us: int
    quiet_from_us: int


@dataclass(slots=True)
class Rejection:
    """A request that a report names."""

    event_id: str
    identifier: str
    key_generation: int | None
    meter_event_id: int | None


@dataclass(slots=True)
class Carry:
    """What became of an entry that missed its invoice."""

    entry_id: int
    out_entry_id: int
    in_entry_id: int | None
    """None: billed outside the meters."""
    at_us: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A correction that somebody asks for."""

    tenant_id: str
    metric: str
    at_us: int
    units: int
    key: str

    @property
    def identity(self) -> str:
        return f"correction:{self.tenant_id}:{self.key}"


@dataclass(slots=True)
class Proposal:
    """One that another login has to agree with."""

    number: int
    wanted: Wanted
    proposed_by: str
    state: str = "open"


@dataclass(frozen=True, slots=True)
class Span:
    """Which partitions a log is."""

    root_id: str
    first_partition: int
    partitions: int
    boundaries: tuple[int, ...] = ()


@dataclass(slots=True)
class Tables:
    """Everything that a backup holds."""

    logs: dict[str, str] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    levels: dict[SeriesKey, Level] = field(default_factory=dict)
    cells: dict[tuple[str, int, str, str, int], Cell] = field(default_factory=dict)
    tokens: dict[tuple[str, str, int], int] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    """`entry_id` is the place in the list, from 1."""
    identities: dict[tuple[str, str], int] = field(default_factory=dict)
    """(kind, event id) → entry."""
    findings: dict[tuple[str, str], str] = field(default_factory=dict)
    customers: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """tenant → (effective from, customer), oldest first."""
    cycle: Cycle | None = None
    carries: list[Carry] = field(default_factory=list)
    uncovered: dict[int, Uncovered] = field(default_factory=dict)
    lanes: dict[int, Lane] = field(default_factory=dict)
    lane_ids: dict[tuple[str, str], int] = field(default_factory=dict)
    meter_events: list[MeterEventRow] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    parked_identities: set[object] = field(default_factory=set)
    halts: dict[str, str] = field(default_factory=dict)
    went_back: dict[tuple[str, int, int, int], bool] = field(default_factory=dict)
    """(log, partition, acknowledged, stored) → whether it was adopted."""
    pauses: dict[tuple[str, str], None] = field(default_factory=dict)
    """(scope, subject) of those that are not resumed."""
    proposals: list[Proposal] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    """Entries of corrections that one person let through."""
    agreed: dict[int, str] = field(default_factory=dict)
    """Parked item → the login that approved it first, of two."""
    doubts: list[Doubt] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    adoptions: list[Adoption] = field(default_factory=list)
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    rejections: list[Rejection] = field(default_factory=list)
    sweep_claimed_us: int | None = None
    swept_until_us: int | None = None
