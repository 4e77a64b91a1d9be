"""The last attempt is remembered before it is sent; from a ledger that lacks it nothing is lent."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import cast
from unittest.mock import patch

import pytest

from streams.adapters.attempt_file import NAME, AttemptFile
from streams.agents.attempt_memory import APART_S, AttemptMemory
from streams.core.lane import Claim, LastAttempt, Settlement, Standing
from streams.engine.errors import StateUnavailable
from streams.engine.group_offsets import Notes
from streams.ports import LedgerUnavailableError
from tests.unit.agents.lanes import NOW_US, claim


class Ledger:
    """A ledger with attempts; `adopted_us`: until when a person took on what it lacks."""

    def __init__(self, *attempts: LastAttempt) -> None:
        self.attempts = list(attempts)
        self.adopted_us = -1
        self.away = False
        self.claims: list[Claim] = []
        self.on_claim: Callable[[], object] = lambda: None

    async def attempt_stands(self, last: LastAttempt | None) -> Standing:
        if self.away:
            raise LedgerUnavailableError("away")
        return Standing(self._has(last), self.attempts[-1] if self.attempts else None)

    def _has(self, last: LastAttempt | None) -> bool:
        return last is None or last in self.attempts or last.started_us <= self.adopted_us

    async def cut_entries(self, limit: int) -> int:
        if self.away:
            raise LedgerUnavailableError("away")
        return limit

    async def claim(
        self,
        worker: str,
        limit: int,
        lease_s: int,
        last: LastAttempt | None = None,
        in_touch: Callable[[], bool] | None = None,
    ) -> Sequence[Claim]:
        del worker, limit, lease_s
        if self.away:
            raise LedgerUnavailableError("away")
        self.on_claim()
        return self.claims if self._has(last) and in_touch and in_touch() else []

    async def settle(self, settlement: Settlement) -> None:
        del settlement
        if self.away:
            raise LedgerUnavailableError("away")


FIRST, SECOND = LastAttempt(7, NOW_US), LastAttempt(8, NOW_US + 5)
Remember = Callable[..., AttemptMemory]
PAUSE_S = 0.5
LONG_S = APART_S + 2 * PAUSE_S + 0.1


class Time:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def elapsed_s(self) -> float:
        return self.now_s


class Others:
    """Notes of other workers in the group's offsets."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.there: set[str] = set()
        self.notes: Notes | None = None
        self.ordered = 0

    def renew_notes(self) -> None:
        self.ordered += 1

    def read(self) -> None:
        self.notes = Notes(frozenset(self.there), self.time.now_s)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def others(time: Time) -> Others:
    return Others(time)


@pytest.fixture
def remember(time: Time, others: Others) -> Remember:
    """A worker's memory; it has read what others noted, unless told otherwise."""

    def make(ledger: Ledger, file: AttemptFile, *, knows: bool = True) -> AttemptMemory:
        memory = AttemptMemory(ledger, file, time.elapsed_s, PAUSE_S)
        if knows:
            others.read()
            assert memory.catch_up(others)
        return memory

    return make


@pytest.fixture
def file(tmp_path: Path) -> AttemptFile:
    return AttemptFile(tmp_path)


async def test_a_worker_without_memory_takes_over_the_ledgers_last_attempt(
    file: AttemptFile, remember: Remember
) -> None:
    memory = remember(Ledger(FIRST), file)
    assert await memory.stands()
    assert file.read() == FIRST
    assert not await remember(Ledger(), file).stands()


async def test_what_is_lent_is_remembered_before_it_can_be_sent(
    file: AttemptFile, remember: Remember
) -> None:
    ledger = Ledger()
    ledger.claims = [claim(8, now_us=NOW_US + 5), claim(7, now_us=NOW_US + 5)]
    memory = remember(ledger, file)
    assert await memory.claim("w1", 2, 60) == ledger.claims
    assert file.read() == SECOND
    assert memory.note() == f"[8,{NOW_US + 5}]"


async def test_a_ledger_that_lacks_it_went_back_until_a_person_adopts_that(
    file: AttemptFile, remember: Remember
) -> None:
    file.write(SECOND)
    ledger = Ledger(FIRST, LastAttempt(8, NOW_US + 9))
    memory = remember(ledger, file)
    assert not await memory.stands(), "the same number, given again"
    assert "lacks attempt 8 of " in (memory.went_back or "")

    ledger.adopted_us = NOW_US + 20

    assert await memory.stands()
    assert memory.went_back is None
    assert file.read() == LastAttempt(8, NOW_US + 9)


async def test_a_ledger_put_back_between_question_and_claim_lends_nothing(
    file: AttemptFile, remember: Remember
) -> None:
    ledger = Ledger(FIRST, SECOND)
    memory = remember(ledger, file)
    assert await memory.stands()
    ledger.attempts.remove(SECOND)
    ledger.claims = [claim(8, now_us=NOW_US + 90)]

    assert await memory.claim("w1", 2, 60) == []

    assert file.read() == SECOND, "still there to be asked for"
    assert not await memory.stands()


async def test_a_ledger_that_is_away_says_nothing(file: AttemptFile, remember: Remember) -> None:
    file.write(FIRST)
    ledger = Ledger(FIRST)
    ledger.away = True
    memory = remember(ledger, file)
    assert not await memory.stands()
    assert memory.went_back is None


async def test_an_answer_that_was_overtaken_by_a_claim_takes_nothing_back(
    file: AttemptFile, remember: Remember
) -> None:
    """Two loops ask and lend beside each other."""
    ledger = Ledger(FIRST)
    memory = remember(ledger, file)
    assert await memory.stands()
    ledger.claims = [claim(8, now_us=NOW_US + 5)]
    answer = ledger.attempt_stands

    async def overtaken(last: LastAttempt | None) -> Standing:
        answered = await answer(last)
        await memory.claim("w1", 2, 60)
        return answered

    with patch.object(ledger, "attempt_stands", overtaken):
        assert await memory.stands()
    assert file.read() == SECOND
    assert not await memory.stands(), "a ledger that has lost just that one is found out"


async def test_a_full_disk_is_the_states_fault_and_nothing_is_lent(
    file: AttemptFile, remember: Remember
) -> None:
    ledger = Ledger()
    ledger.claims = [claim(8, now_us=NOW_US + 5)]
    memory = remember(ledger, file)
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        patch.object(file, "write", side_effect=full),
        pytest.raises(StateUnavailable, match=r"No space left.*: check free space"),
    ):
        await memory.claim("w1", 2, 60)
    assert memory.note() == ""


async def test_the_newest_note_of_others_counts(
    file: AttemptFile, remember: Remember, others: Others
) -> None:
    others.there = {"", "x", f"[7,{FIRST.started_us}]", f"[8,{SECOND.started_us}]", "[1,1]"}
    memory = remember(Ledger(FIRST), file)
    assert file.read() == SECOND
    assert not await memory.stands()


async def test_whoever_was_away_reads_what_others_noted_meanwhile(
    file: AttemptFile, remember: Remember, others: Others, time: Time
) -> None:
    """Suspended while another worker sent and went, and the ledger was restored."""
    memory = remember(Ledger(FIRST), file)
    assert await memory.stands()
    time.now_s += 1
    others.there = {f"[8,{SECOND.started_us}]"}
    time.now_s += LONG_S

    assert not memory.catch_up(others)
    assert not memory.catch_up(others)
    assert others.ordered == 2
    others.read()
    assert memory.catch_up(others)

    assert not await memory.stands(), "the ledger lacks what another one noted"


async def test_whoever_hears_the_ledger_all_the_time_reads_no_notes(
    file: AttemptFile, remember: Remember, others: Others, time: Time
) -> None:
    memory = remember(Ledger(FIRST), file)
    for _ in range(5):
        time.now_s += LONG_S - 0.2
        assert memory.catch_up(others)
        assert await memory.stands()
    assert others.ordered == 0


@pytest.mark.parametrize("silence", ["asked", "cut", "lent", "settled"])
async def test_after_a_silence_of_the_ledger_the_notes_are_read_anew(
    silence: str, file: AttemptFile, remember: Remember, others: Others, time: Time
) -> None:
    """Another one may answer next, however soon."""
    ledger = Ledger(FIRST)
    memory = remember(ledger, file)
    assert await memory.stands()
    ledger.away = True
    time.now_s += 0.1
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "asked": memory.stands,
        "cut": lambda: memory.cut_entries(1),
        "lent": lambda: memory.claim("w1", 1, 60),
        "settled": lambda: memory.settle(cast("Settlement", None)),
    }
    with contextlib.suppress(LedgerUnavailableError):
        await calls[silence]()
    ledger.away = False
    assert not memory.catch_up(others)
    time.now_s += 0.1
    others.read()
    assert memory.catch_up(others)
    assert await memory.stands()


async def test_a_silence_beside_a_question_is_not_ended_by_its_answer(
    file: AttemptFile, remember: Remember, others: Others, time: Time
) -> None:
    """The answer may be older than the silence."""
    ledger = Ledger(FIRST)
    memory = remember(ledger, file)
    answer = ledger.attempt_stands

    async def beside(last: LastAttempt | None) -> Standing:
        answered = await answer(last)
        ledger.away = True
        time.now_s += 0.1
        with contextlib.suppress(LedgerUnavailableError):
            await memory.cut_entries(1)
        return answered

    with patch.object(ledger, "attempt_stands", beside):
        assert await memory.stands()
    assert not memory.catch_up(others)


async def test_a_worker_begins_with_the_notes_of_others(
    file: AttemptFile, remember: Remember, others: Others
) -> None:
    memory = remember(Ledger(FIRST), file, knows=False)
    assert memory.apart
    assert not memory.catch_up(others)
    others.read()
    assert memory.catch_up(others)


async def test_nothing_is_lent_to_whoever_paused_between_question_and_claim(
    file: AttemptFile, remember: Remember, time: Time
) -> None:
    ledger = Ledger(FIRST)
    ledger.claims = [claim(8, now_us=NOW_US + 5)]
    memory = remember(ledger, file)
    assert await memory.stands()

    def pause() -> None:
        time.now_s += LONG_S

    ledger.on_claim = pause
    assert await memory.claim("w1", 1, 60) == []
    assert file.read() == FIRST


def test_a_newer_note_of_a_former_owner_stays_with_its_partition(
    file: AttemptFile, remember: Remember
) -> None:
    empty = remember(Ledger(), file)
    file.write(FIRST)
    memory = remember(Ledger(FIRST), file)
    own, newer = f"[7,{FIRST.started_us}]", f"[8,{SECOND.started_us}]"
    assert memory.note(newer) == empty.note(newer) == newer
    assert {memory.note(older) for older in ("", "x", "[6,1]", own)} == {own}


def test_a_file_that_cannot_be_read_is_nothing(file: AttemptFile, tmp_path: Path) -> None:
    assert file.read() is None
    (tmp_path / NAME).write_bytes(b"")
    assert file.read() is None
    file.write(FIRST)
    assert file.read() == FIRST
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
