"""An endpoint in this process over a registry in memory, and a producer that calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from starlette.testclient import TestClient

from streams.ingest.app import Ingest, Readiness, build
from streams.ingest.figures import Figures
from streams.ingest.keys import KeysFile, add
from streams.ingest.limits import Rates
from streams.ingest.outcome import Asked, CallRefusedError, Contents, Outcome, Refused, Stored

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
EVENT: dict[str, Any] = {
    "tenant_id": "acme",
    "metric": "api_calls",
    "quantity": 3,
    "event_key": "k1",
}


@dataclass
class HandClock:
    """Time that a test moves."""

    now_s: float = 1000.0

    def now_us(self) -> int:
        return int(self.now_s * 1_000_000)

    def elapsed_s(self) -> float:
        return self.now_s


@dataclass
class Registry:
    """What the database is to ingestion, with one rule: the quantity is not negative."""

    known: dict[tuple[Any, Any], bytes] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    trace: str | None = None
    broken: Exception | None = None
    lacks: str | None = None
    looked: int = 0
    meanwhile: Callable[[], object] = bool
    """Happens while a call is recorded."""

    async def record(self, events: list[Asked], traceparent: str | None) -> list[Outcome]:
        if self.broken is not None:
            raise self.broken
        self.trace = traceparent
        self.meanwhile()
        self.asked += events
        return [self._one(event) for event in events]

    async def trouble(self) -> str | None:
        self.looked += 1
        return self.lacks

    def _one(self, event: Asked) -> Outcome:
        item = event.item
        if str(item["quantity"]).startswith("-"):
            return Refused(event.problem("quantity", "must not be negative", "usage only adds"))
        identity = (item["tenant_id"], item["event_key"])
        content = repr([item["metric"], item["quantity"]]).encode()
        first = self.known.setdefault(identity, content)
        event_id = sha256(repr(identity).encode()).hexdigest()
        named = (
            f"{event_id[:8]}-{event_id[8:12]}-{event_id[12:16]}-{event_id[16:20]}-{event_id[20:32]}"
        )
        if first is content:
            return Stored("recorded", named, NOON)
        if first == content:
            return Stored("duplicate", named, NOON)
        offered, stands = (sha256(each).hexdigest()[:32] for each in (content, first))
        contents = Contents(offered, stands, NOON, "api_calls", "3", NOON)
        return Stored("conflict", named, NOON, contents)


@dataclass
class Producer:
    """Who calls, with a key for acme and beta."""

    client: TestClient
    key: str
    registry: Registry
    clock: HandClock
    figures: Figures
    keys_file: Path

    def post(self, body: Any, /, **headers: str) -> Any:
        """The answer to a body: text and bytes as they are, everything else as JSON."""
        content = body if isinstance(body, bytes | str) else msgspec.json.encode(body)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **given}
        return self.client.post("/v1/usage", content=content, headers=sent)


def producer(
    folder: Path, *, events_per_s: int = 5_000, body_bytes_max: int = 1_048_576
) -> Producer:
    file = folder / "keys.toml"
    key = add(file, "shop", ["acme", "beta"])
    registry, clock = Registry(), HandClock()
    figures = Figures(clock)
    ingest = Ingest(
        KeysFile(file),
        Rates(events_per_s, clock),
        registry,
        Readiness(registry, clock),
        body_bytes_max,
        in_hand_max=2,
        figures=figures,
    )
    client = TestClient(build(ingest), base_url="http://ingest")
    return Producer(client, key, registry, clock, figures, file)


def unavailable() -> CallRefusedError:
    return CallRefusedError(503, "away", "again", {"Retry-After": "1"}, "away")
