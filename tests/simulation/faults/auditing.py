"""Audits while everything goes on: no fault, but what must raise no false alarm under any.

The judgment is the product's; the readings are taken from the modelled databases in its order:
registry, canaries, cells once the canaries are through, registry again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from streams.core import audit
from streams.core.audit import Row, Tally, broken_seals, cell_readings, registry_readings, sealable
from streams.core.instant import MINUTE_US
from tests.simulation.service import SOURCE
from tests.simulation.world import HOUR_S, World

PATIENCE_S: Final = HOUR_S / 2
POLL_S: Final = 30.0


@dataclass
class Audits:
    """What audits of one world found."""

    world: World
    findings: list[str] = field(default_factory=list)
    judged: int = 0
    sealed: dict[int, Tally] = field(default_factory=dict)

    async def audit(self) -> None:
        """One audit; gives up where canaries do not get through."""
        service, tables = self.world.service, self.world.database.tables
        floor_us = service.open_since_us()
        first = registry_readings(self._registry())
        rows = service.emit_canaries(self.world.canary_tenants)
        for _ in range(int(PATIENCE_S / POLL_S)):
            await asyncio.sleep(POLL_S)
            tables = self.world.database.tables
            arrived = {(token, partition) for _, token, partition in tables.tokens}
            awaited = {(row.event_id, row.use.partition) for row in rows}
            everywhere = len(rows) == self.world.broker.partitions
            if everywhere and not self.world.database.away and awaited <= arrived:
                break
        else:
            return
        cells = [
            Row(minute_us, name, Tally(cell.count, cell.digest))
            for (source, minute_us, name, _, _), cell in tables.cells.items()
            if source == SOURCE
        ]
        await asyncio.sleep(self.world.delay_s())
        second = registry_readings(self._registry())
        judgments = audit.judge(first, cell_readings(cells), second)
        self.judged += len(judgments)
        if judgments:
            self.world.timeline.strike("audited")
        self.findings += [
            f"{one.verdict}: minute {one.minute_us}, {one.group}: {one.first.count} then"
            f" {one.second.count} in the registry, {one.cells.count} verdicts"
            for one in judgments
            if one.verdict in {"lost", "phantom", "mixed"}
        ]
        self.findings += [f"seal: {minute_us}" for minute_us in broken_seals(self.sealed, second)]
        self.sealed |= sealable(judgments, floor_us)
        self.world.timeline.note("audited", len(judgments), len(self.findings), len(self.sealed))

    def _registry(self) -> Sequence[Row]:
        return [
            Row(
                row.received_us - row.received_us % MINUTE_US,
                row.kind,
                Tally(1, int(row.content, 16)),
            )
            for row in self.world.service.committed
        ]


def audited(world: World, busy_s: float) -> float:
    """Audits every hour or so, while usage is written and whatever else strikes."""
    audits = Audits(world)
    world.audits = audits

    async def keep_auditing() -> None:
        while not world.healed:
            await audits.audit()
            await asyncio.sleep(world.rng.random() * HOUR_S)

    world.timeline.create_task(keep_auditing())
    return busy_s
