"""RocksDB as tables use it, in dictionaries: what was written durably is there after a SIGKILL.

A disk belongs to a machine and outlives the processes on it. Its directories are names; the
engine's modules that open and remove them are pointed here for the time of a run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from streams.core.lane import LastAttempt
from streams.engine import data_dir, recovery, table
from streams.engine.errors import StateLocked
from streams.engine.settlement import Pair
from streams.engine.store import META

Families = dict[str, dict[bytes, bytes]]


class Disk:
    """One machine's directories."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stores: dict[str, Families] = {}
        self.open: set[str] = set()
        self.quarantined = 0
        self.last_attempt: LastAttempt | None = None
        self.written: Callable[[], None] = lambda: None
        """Told of each write of it."""

    def table(self, topic: str, partition: int) -> "Place":
        """Where a table lies, as the data directory answers it."""
        return Place(self, f"{topic}-{partition}")

    def lose(self) -> None:
        """The machine is gone, and a new one takes its place."""
        self.stores.clear()
        self.open.clear()
        self.last_attempt = None

    def read(self) -> LastAttempt | None:
        """The file of the last attempt, as `AttemptFile` reads it."""
        return self.last_attempt

    def write(self, last: LastAttempt) -> None:
        """And writes it: a rename, which a SIGKILL does not undo."""
        self.last_attempt = last
        self.written()

    def let_go(self) -> None:
        """The process that had it open is gone, and its locks with it."""
        self.open.clear()


class Place:
    """A directory, as much of a path as the engine asks for."""

    def __init__(self, disk: Disk, name: str) -> None:
        self.disk, self.name = disk, name

    @property
    def parent(self) -> "Place":
        return self

    def mkdir(self, **_: object) -> None:
        """There are no directories to make."""

    def exists(self) -> bool:
        return self.name in self.disk.stores

    def __str__(self) -> str:
        return f"{self.disk.name}/{self.name}"


def remove(place: Place, **_: object) -> None:
    """Removes a directory and what is in it."""
    place.disk.stores.pop(place.name, None)


def set_aside(place: Place, _reason: str) -> Place:
    """Damaged state is never opened again."""
    remove(place)
    place.disk.quarantined += 1
    return place


class MemoryStore:
    """A `Store`; what was written without a log of its own is gone with the process."""

    def __init__(self, path: Place, families: Mapping[str, bool], _cache: object) -> None:
        self.path = path
        self._disk = path.disk
        if path.name in self._disk.open:
            raise StateLocked(f"{path}: open already")
        self._disk.open.add(path.name)
        self._kept = self._disk.stores.setdefault(path.name, {})
        for family in (*families, META):
            self._kept.setdefault(family, {})
        self._seen = self._kept
        self._is_open = True

    def get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        held = self._seen[family]
        return [held.get(key) for key in keys]

    def meta(self, key: bytes) -> bytes | None:
        return self._seen[META].get(key)

    def write(self, fill: Callable[["MemoryBatch"], None], *, durable: bool = True) -> None:
        batch = MemoryBatch()
        fill(batch)
        if not durable and self._seen is self._kept:
            self._seen = {name: dict(held) for name, held in self._kept.items()}
        batch.apply(self._seen)
        if durable and self._seen is not self._kept:
            batch.apply(self._kept)

    def load(self, family: str, pairs: Iterable[Pair]) -> None:
        self.write(lambda batch: batch.put(family, list(pairs)), durable=False)

    def walk(self, family: str, start: bytes = b"") -> Iterator[Pair]:
        held = self._seen[family]
        return iter([(key, held[key]) for key in sorted(held) if key >= start])

    def recreate(self, family: str) -> None:
        self._seen[family].clear()
        self._kept[family].clear()

    def flush(self) -> None:
        if self._seen is not self._kept:
            self._kept.clear()
            self._kept.update(self._seen)
            self._seen = self._kept

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.flush()
            self._disk.open.discard(self.path.name)


class MemoryBatch:
    """Puts and deletes that happen together."""

    def __init__(self) -> None:
        self._puts: list[tuple[str, bytes, bytes]] = []
        self._deletes: list[tuple[str, bytes]] = []

    def put(self, family: str, pairs: Sequence[Pair]) -> None:
        self._puts.extend((family, key, value) for key, value in pairs)

    def put_meta(self, key: bytes, value: bytes) -> None:
        self._puts.append((META, key, value))

    def delete(self, family: str, keys: Sequence[bytes]) -> None:
        self._deletes.extend((family, key) for key in keys)

    def apply(self, families: Families) -> None:
        for family, key in self._deletes:
            families[family].pop(key, None)
        for family, key, value in self._puts:
            families[family][key] = value


@contextmanager
def modelled() -> Iterator[None]:
    """The engine's tables lie on modelled disks."""
    removing = SimpleNamespace(rmtree=remove)
    with ExitStack() as stack:
        for module, name, stand_in in (
            (table, "Store", MemoryStore),
            (table, "shutil", removing),
            (recovery, "shutil", removing),
            (recovery, "quarantine", set_aside),
            (data_dir, "quarantine", set_aside),
        ):
            stack.enter_context(patch.object(module, name, cast("Any", stand_in)))
        yield
