"""Stripe's meters are compared at once, when others are named, and every hour; by one for all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.adapters.stripe import StripeUnreadableError
from streams.agents import meter_watch
from streams.agents.catalogue_book import CatalogueBook
from streams.agents.meter_watch import AGAIN_S, EVERY_S, MeterWatch
from streams.core.live_meter import LiveMeter, MeterFinding
from streams.core.observation import NotSent
from streams.ports import LedgerUnavailableError
from tests.unit.agents.outside import Clock, Ledger
from tests.unit.core.test_live_meter import GOOD


class Kept:
    """The ledger's side of it, and how many pauses it was told."""

    def __init__(self) -> None:
        self.away = False
        self.claimed_by_another = False
        self.pauses: list[float] = []
        self.noted: list[list[tuple[str, str]]] = []

    async def claim_meters(self, pause_s: float) -> int | None:
        if self.away:
            message = "connection refused"
            raise LedgerUnavailableError(message)
        self.pauses.append(pause_s)
        return None if self.claimed_by_another and pause_s else len(self.pauses)

    async def note_meters(self, look: int, found: Sequence[MeterFinding]) -> bool:
        assert look == len(self.pauses)
        self.noted.append([(one.kind, one.event_name) for one in found])
        return True


class Stripe:
    def __init__(self, names: Sequence[str]) -> None:
        self.there = [replace(GOOD, id=f"mtr_{name}", event_name=name) for name in names]
        self.away = False
        self.asked = 0

    async def meters(self) -> Sequence[LiveMeter]:
        self.asked += 1
        if self.away:
            raise StripeUnreadableError("meters", NotSent("ClientConnectorError"))
        return self.there

    def spoil(self, name: str) -> None:
        self.there = [replace(m, formula="last") if m.event_name == name else m for m in self.there]


class Bench:
    """A worker that has read its catalogue; its clock is moved by the test."""

    def __init__(self) -> None:
        self.clock, self.kept, self.catalogue = Clock(), Kept(), Ledger()
        self.names = sorted({version.event_name for version in self.catalogue.versions})
        self.stripe = Stripe(self.names)
        self.book = CatalogueBook(self.catalogue, self.clock)
        self.watch = MeterWatch(self.book, self.kept, self.stripe, self.clock, livemode=False)

    async def after(self, seconds: float) -> bool:
        self.clock.now_s += seconds
        return await self.watch.look()


@pytest.fixture
async def bench() -> Bench:
    made = Bench()
    assert not await made.watch.look(), "nobody knows yet which meters are meant"
    await made.book.refresh()
    return made


async def test_it_looks_at_once_and_then_every_hour(bench: Bench) -> None:
    assert await bench.watch.look()
    assert bench.kept.noted == [[]]
    bench.stripe.spoil(bench.names[0])
    assert not await bench.after(EVERY_S - 1)
    assert await bench.after(1)
    assert bench.kept.noted == [[], [("formula", bench.names[0])]]
    assert bench.stripe.asked == 2
    assert bench.kept.pauses == [0.0, EVERY_S / 2]


async def test_a_meter_that_is_new_in_the_catalogue_is_looked_at_at_once(bench: Bench) -> None:
    assert await bench.watch.look()
    new = bench.catalogue.versions[0]._replace(metric="seats", event_name="seats")
    bench.catalogue.versions.append(new)
    await bench.book.refresh()
    assert await bench.after(1)
    assert bench.kept.noted[-1] == [("missing", "seats")]
    assert bench.kept.pauses == [0.0, 0.0], "nobody has compared it yet"
    assert not await bench.after(1)


async def test_where_another_worker_has_looked_nothing_is_asked(bench: Bench) -> None:
    assert await bench.watch.look()
    bench.kept.claimed_by_another = True
    assert not await bench.after(EVERY_S)
    assert bench.stripe.asked == 1
    assert not await bench.after(AGAIN_S), "and it is not its turn again before an hour is over"
    assert len(bench.kept.pauses) == 2


@pytest.mark.parametrize("away", ["stripe", "kept"])
async def test_who_is_away_changes_nothing_and_is_asked_again_soon(bench: Bench, away: str) -> None:
    bench.stripe.spoil(bench.names[0])
    assert await bench.watch.look()
    getattr(bench, away).away = True
    for _ in range(3):
        assert not await bench.after(EVERY_S)
        asked = bench.stripe.asked
        assert not await bench.after(AGAIN_S - 1)
        assert bench.stripe.asked == asked
    assert len(bench.kept.noted) == 1, "what was found stands"
    getattr(bench, away).away = False
    assert await bench.after(1)
    assert bench.kept.noted[-1] == [("formula", bench.names[0])]
    assert bench.kept.pauses[-1] == 0.0, "its own turn that failed does not keep it away"


async def test_a_look_that_another_one_overtook_is_not_noted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overtaken(_look: int, _found: object) -> bool:
        return False

    monkeypatch.setattr(bench.kept, "note_meters", overtaken)
    assert not await bench.watch.look()


async def test_it_goes_on_looking(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_watch, "TICK_S", 0.0)
    often, ticks = asyncio.Event(), 0

    async def look() -> bool:
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            often.set()
        return True

    monkeypatch.setattr(bench.watch, "look", look)
    looking = asyncio.create_task(bench.watch.keep_looking())
    async with asyncio.timeout(10):
        await often.wait()
    looking.cancel()
