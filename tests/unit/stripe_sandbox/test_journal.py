from pathlib import Path

import msgspec
import pytest

from sandbox.stripe_sandbox.fact import Cancelled, Fact, Meter, Recorded, StoredAnswer
from sandbox.stripe_sandbox.journal import DamagedJournalError, Journal

FACTS: list[Fact] = [
    Meter("mtr_1", "api_calls", "API calls", 1),
    Recorded("id-1", "cus_1", "api_calls", "5", 1, 2, None),
    StoredAnswer("k", "f", 200, msgspec.Raw(b'{"object":"x"}'), 3),
    Cancelled("id-1", 4),
]


def written(directory: Path) -> Path:
    with Journal(directory) as journal:
        journal.append(FACTS[:1])
        journal.append(FACTS[1:])
        return journal.path


def test_facts_come_back_in_order(tmp_path: Path) -> None:
    written(tmp_path)
    with Journal(tmp_path) as journal:
        assert list(journal.replay()) == FACTS


def test_a_journal_cut_anywhere_keeps_whole_lines_only(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with Journal(tmp_path) as journal:
            facts = list(journal.replay())
            assert facts == (FACTS[:1] if length >= first else [])
            journal.append(FACTS[3:])
        with Journal(tmp_path) as journal:
            assert list(journal.replay()) == [*facts, FACTS[3]]


@pytest.mark.parametrize("line", [b"{}\n", b"[{}]\n", b"nonsense\n"])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes() + line)
    with Journal(tmp_path) as journal, pytest.raises(DamagedJournalError, match="line 3"):
        list(journal.replay())
