"""The age of the last audit grows by itself, and only a reading takes it back."""

import asyncio

import pytest

from streams.agents import audit_watch
from streams.agents.audit_watch import AuditWatch
from streams.ports import AuditNote, LedgerUnavailableError
from tests.unit.agents.outside import Clock


class Notes:
    def __init__(self, *notes: AuditNote) -> None:
        self.notes = notes
        self.away = False
        self.asked = 0
        self.asked_often = asyncio.Event()

    async def last_audits(self) -> tuple[AuditNote, ...]:
        self.asked += 1
        if self.asked == 3:
            self.asked_often.set()
        if self.away:
            message = "connection refused"
            raise LedgerUnavailableError(message)
        return self.notes


def figures(watch: AuditWatch) -> dict[str, float]:
    return {name: round(value, 1) for name, _, value in watch.samples()}


async def test_age_and_verdict_are_there_and_the_age_grows() -> None:
    clock, ledger = Clock(), Notes(AuditNote("shop", 90_000_000, 1, 2, 4))
    watch = AuditWatch(ledger, clock)
    assert figures(watch) == {}
    await watch.refresh()
    assert figures(watch) == {
        "usage_audit_age_seconds": 90.0,
        "usage_audit_lost": 1,
        "usage_audit_double": 2,
        "usage_audit_findings": 4,
    }
    clock.now_s += 60
    ledger.away = True
    await watch.refresh()
    assert figures(watch)["usage_audit_age_seconds"] == 150.0
    assert [label for _, label, _ in watch.samples()] == ["shop"] * 4


async def test_it_reads_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_watch, "PAUSE_S", 0.0)
    ledger = Notes()
    reading = asyncio.create_task(AuditWatch(ledger, Clock()).keep_fresh())
    async with asyncio.timeout(10):
        await ledger.asked_often.wait()
    reading.cancel()
