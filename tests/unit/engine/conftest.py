from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rocksdict import Cache

from streams.engine.log import LogId
from streams.engine.table import PartitionTable, open_table

LOG = LogId("usage", "life-1", 3)
WIDTH_MS = 1_000


class Tables:
    """Opens tables in a directory of the test and closes what is left open."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: list[PartitionTable] = []
        self._cache = Cache(8 << 20)

    def open(self, name: str = "usage-3", log: LogId = LOG) -> PartitionTable:
        table = open_table(
            self.root / name, log, partitions=12, width_ms=WIDTH_MS, cache=self._cache
        )
        self._open.append(table)
        return table

    def close(self) -> None:
        for table in self._open:
            table.close()


MEMORY = Path("/dev/shm")  # noqa: S108  # a private directory is made in it


@pytest.fixture
def tables() -> Iterator[Tables]:
    # Each new database waits for the disk several times; in memory hundreds of them are quick.
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        opened = Tables(Path(directory))
        yield opened
        opened.close()


@pytest.fixture
def table(tables: Tables) -> PartitionTable:
    return tables.open()
