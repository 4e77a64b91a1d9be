"""The last attempt is remembered before it is sent; from a ledger that lacks it nothing is lent."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from streams.adapters.attempt_file import NAME, AttemptFile
from streams.agents.attempt_memory import AttemptMemory
from streams.core.lane import Claim, LastAttempt, Settlement, Standing
from streams.engine.errors import StateUnavailable
from streams.ports import LedgerUnavailableError
from tests.unit.agents.lanes import NOW_US, claim


class Ledger:
    """A ledger with attempts; `adopted_us`: until when a person took on what it lacks."""

    def __init__(self, *attempts: LastAttempt) -> None:
        self.attempts = list(attempts)
        self.adopted_us = -1
        self.away = False
        self.claims: list[Claim] = []

    async def attempt_stands(self, last: LastAttempt | None) -> Standing:
        if self.away:
            raise LedgerUnavailableError("away")
        return Standing(self._has(last), self.attempts[-1] if self.attempts else None)

    def _has(self, last: LastAttempt | None) -> bool:
        return last is None or last in self.attempts or last.started_us <= self.adopted_us

    async def cut_entries(self, limit: int) -> int:
        return limit

    async def claim(
        self, worker: str, limit: int, lease_s: int, last: LastAttempt | None = None
    ) -> Sequence[Claim]:
        del worker, limit, lease_s
        return self.claims if self._has(last) else []

    async def settle(self, settlement: Settlement) -> None:
        """Somebody else's test."""


FIRST, SECOND = LastAttempt(7, NOW_US), LastAttempt(8, NOW_US + 5)


@pytest.fixture
def file(tmp_path: Path) -> AttemptFile:
    return AttemptFile(tmp_path)


async def test_a_worker_without_memory_takes_over_the_ledgers_last_attempt(
    file: AttemptFile,
) -> None:
    memory = AttemptMemory(Ledger(FIRST), file)
    assert await memory.stands()
    assert file.read() == FIRST
    assert not await AttemptMemory(Ledger(), file).stands()


async def test_what_is_lent_is_remembered_before_it_can_be_sent(file: AttemptFile) -> None:
    ledger = Ledger()
    ledger.claims = [claim(8, now_us=NOW_US + 5), claim(7, now_us=NOW_US + 5)]
    memory = AttemptMemory(ledger, file)
    assert await memory.claim("w1", 2, 60) == ledger.claims
    assert file.read() == SECOND
    assert memory.note() == f"[8,{NOW_US + 5}]"


async def test_a_ledger_that_lacks_it_went_back_until_a_person_adopts_that(
    file: AttemptFile,
) -> None:
    file.write(SECOND)
    ledger = Ledger(FIRST, LastAttempt(8, NOW_US + 9))
    memory = AttemptMemory(ledger, file)
    assert not await memory.stands(), "the same number, given again"
    assert "lacks attempt 8 of " in (memory.went_back or "")

    ledger.adopted_us = NOW_US + 20

    assert await memory.stands()
    assert memory.went_back is None
    assert file.read() == LastAttempt(8, NOW_US + 9)


async def test_a_ledger_put_back_between_question_and_claim_lends_nothing(
    file: AttemptFile,
) -> None:
    ledger = Ledger(FIRST, SECOND)
    memory = AttemptMemory(ledger, file)
    assert await memory.stands()
    ledger.attempts.remove(SECOND)
    ledger.claims = [claim(8, now_us=NOW_US + 90)]

    assert await memory.claim("w1", 2, 60) == []

    assert file.read() == SECOND, "still there to be asked for"
    assert not await memory.stands()


async def test_a_ledger_that_is_away_says_nothing(file: AttemptFile) -> None:
    file.write(FIRST)
    ledger = Ledger(FIRST)
    ledger.away = True
    memory = AttemptMemory(ledger, file)
    assert not await memory.stands()
    assert memory.went_back is None


async def test_an_answer_that_was_overtaken_by_a_claim_takes_nothing_back(
    file: AttemptFile,
) -> None:
    """Two loops ask and lend beside each other."""
    ledger = Ledger(FIRST)
    memory = AttemptMemory(ledger, file)
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


async def test_a_full_disk_is_the_states_fault_and_nothing_is_lent(file: AttemptFile) -> None:
    ledger = Ledger()
    ledger.claims = [claim(8, now_us=NOW_US + 5)]
    memory = AttemptMemory(ledger, file)
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        patch.object(file, "write", side_effect=full),
        pytest.raises(StateUnavailable, match=r"No space left.*: check free space"),
    ):
        await memory.claim("w1", 2, 60)
    assert memory.note() == ""


async def test_the_newest_note_of_others_counts(file: AttemptFile) -> None:
    memory = AttemptMemory(Ledger(FIRST), file)
    memory.learn(["", "x", f"[7,{FIRST.started_us}]", f"[8,{SECOND.started_us}]", "[1,1]"])
    assert file.read() == SECOND
    assert not await memory.stands()


def test_a_file_that_cannot_be_read_is_nothing(file: AttemptFile, tmp_path: Path) -> None:
    assert file.read() is None
    (tmp_path / NAME).write_bytes(b"")
    assert file.read() is None
    file.write(FIRST)
    assert file.read() == FIRST
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
