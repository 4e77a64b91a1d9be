"""A ledger that is away is named once an outage, with its address and its beginning."""

from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from sandbox.ports import free_ports
from streams.adapters.ledger_pool import TOLD_EVERY_S, Connection, LedgerPool
from streams.core.instant import wire_text
from streams.ports import LedgerUnavailableError


@dataclass
class Clock:
    elapsed: float = 0.0

    def now_us(self) -> int:
        return 7

    def elapsed_s(self) -> float:
        return self.elapsed


async def nothing(conn: Connection) -> None:
    del conn


async def test_an_unreachable_ledger_is_said_at_once_and_then_now_and_then() -> None:
    (port,) = free_ports(1)
    clock = Clock()
    pool = LedgerPool(f"postgresql://me:hush@127.0.0.1:{port}/x", timeout_s=0.05, clock=clock)
    await pool.open()
    try:
        with capture_logs() as lines:
            for elapsed in (0.0, 1.0, TOLD_EVERY_S):
                clock.elapsed = elapsed
                with pytest.raises(LedgerUnavailableError):
                    await pool.run(nothing)
    finally:
        await pool.close()
    told = [line for line in lines if line["event"] == "ledger_unreachable"]
    assert [(line["server"], line["since"]) for line in told] == [
        (f"127.0.0.1:{port}", wire_text(7))
    ] * 2
    assert "hush" not in str(lines)
