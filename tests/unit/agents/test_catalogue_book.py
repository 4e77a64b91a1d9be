"""The catalogue as a worker has it: never guessed, never older than asked for."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from streams.agents.catalogue_book import (
    CatalogueBook,
    CatalogueContradictionError,
    HorizonTooShortError,
)
from streams.core.instant import HOUR_US
from tests.support.events import CATALOGUE, METERS, meter
from tests.unit.agents.outside import Clock, Ledger


class Books:
    def __init__(self) -> None:
        self.ledger, self.clock = Ledger(), Clock()
        self.book = CatalogueBook(self.ledger, self.clock)


@pytest.fixture
def books() -> Books:
    return Books()


@pytest.fixture
async def kept_fresh(books: Books) -> AsyncIterator[CatalogueBook]:
    """Somebody reads on beside the test, with long pauses."""
    task = asyncio.get_running_loop().create_task(books.book.keep_fresh(3_600))
    assert await books.book.younger_than(0, 5) is not None
    yield books.book
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_before_the_first_reading_there_is_none(books: Books) -> None:
    assert books.book.catalogue is None
    assert books.book.age_s() == float("inf")
    assert not books.book.is_younger_than(0)


async def test_a_reading_is_as_old_as_its_question(books: Books) -> None:
    books.clock.now_s = 500.0
    assert await books.book.refresh()
    books.clock.now_s = 530.0
    assert books.book.age_s() == pytest.approx(30, abs=0.1)
    assert books.book.is_younger_than(499)
    assert not books.book.is_younger_than(501)


async def test_the_ledger_says_how_long_a_reading_is_good_for(books: Books) -> None:
    await books.book.refresh()
    assert books.book.catalogue == CATALOGUE
    assert CATALOGUE.complete_until_us == books.ledger.now_us + HOUR_US


async def test_a_ledger_that_is_away_leaves_the_last_reading(books: Books) -> None:
    await books.book.refresh()
    books.ledger.away = True
    assert not await books.book.refresh()
    assert books.book.catalogue == CATALOGUE


async def test_new_lines_are_taken_over(books: Books) -> None:
    await books.book.refresh()
    books.ledger.versions.append(meter("more"))
    assert await books.book.refresh()
    assert books.book.catalogue is not None
    assert "more" in books.book.catalogue.by_metric


@pytest.mark.parametrize(
    "after",
    [METERS[1:], [*METERS[1:], METERS[0]._replace(scale=3)], []],
    ids=["lost", "changed", "empty"],
)
async def test_a_book_that_lost_or_changed_a_line_stops_the_worker(
    books: Books, after: list[object]
) -> None:
    await books.book.refresh()
    books.ledger.versions = list(after)  # type: ignore[arg-type]  # lines of the same table
    with pytest.raises(CatalogueContradictionError):
        await books.book.refresh()
    assert books.book.catalogue == CATALOGUE, "what was judged by stays"


async def test_who_waits_is_read_for_at_once(books: Books, kept_fresh: CatalogueBook) -> None:
    books.ledger.versions.append(meter("added"))
    moment_s = books.clock.elapsed_s()
    async with asyncio.timeout(5):
        catalogue = await kept_fresh.younger_than(moment_s, 60)
    assert catalogue is not None
    assert "added" in catalogue.by_metric
    assert kept_fresh.is_younger_than(moment_s)


async def test_all_who_wait_share_a_reading(books: Books, kept_fresh: CatalogueBook) -> None:
    moment_s = books.clock.elapsed_s()
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*(kept_fresh.younger_than(moment_s, 60) for _ in range(9)))
    assert {id(answer) for answer in answers} == {id(kept_fresh.catalogue)}


async def test_who_waits_past_the_deadline_is_told_so(
    books: Books, kept_fresh: CatalogueBook
) -> None:
    books.ledger.away = True
    assert await kept_fresh.younger_than(books.clock.elapsed_s(), 0.02) is None
    assert kept_fresh.catalogue == CATALOGUE


async def test_a_reading_that_is_young_enough_is_not_waited_for(books: Books) -> None:
    """Nobody reads on here, so waiting would never end."""
    moment_s = books.clock.elapsed_s()
    await books.book.refresh()
    async with asyncio.timeout(5):
        assert await books.book.younger_than(moment_s, 60) == CATALOGUE


@pytest.mark.parametrize(
    ("horizon_us", "refused"), [(48 * HOUR_US, False), (48 * HOUR_US - 1, True)]
)
async def test_a_skew_beyond_half_the_horizon_is_refused_by_name(
    horizon_us: int, refused: bool
) -> None:
    ledger, clock = Ledger(), Clock()
    ledger.versions = [meter("api_calls", skew_max_us=24 * HOUR_US)]
    book = CatalogueBook(ledger, clock, horizon_us)
    if not refused:
        assert await book.refresh()
        return
    with pytest.raises(HorizonTooShortError, match="meter api_calls: skew_max is 24 h"):
        await book.refresh()
    assert book.catalogue is None


@pytest.mark.parametrize("turns", range(6))
async def test_who_is_stopped_the_moment_a_reading_is_wanted_stops(
    books: Books, turns: int
) -> None:
    """A loop that forgets its cancellation keeps its worker from ever ending."""
    reading = asyncio.get_running_loop().create_task(books.book.keep_fresh(3_600))
    await books.book.younger_than(0, 5)
    for _ in range(10):
        await asyncio.sleep(0)  # until it rests
    books.clock.now_s += 1
    wanting = asyncio.get_running_loop().create_task(
        books.book.younger_than(books.clock.now_s - 0.5, 5)
    )
    for _ in range(turns):
        await asyncio.sleep(0)
    reading.cancel()
    done, _ = await asyncio.wait({reading}, timeout=5)
    for task in (reading, wanting):
        task.cancel()
    await asyncio.gather(reading, wanting, return_exceptions=True)
    assert done == {reading}
