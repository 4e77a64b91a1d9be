"""RocksDB as the engine uses it: column families, one atomic write, faults by name."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

import structlog
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    IngestExternalFileOptions,
    MemtableFactory,
    Options,
    Rdict,
    SliceTransform,
    SstFileWriter,
    WriteBatch,
    WriteOptions,
)

from streams.engine.errors import StateDamaged, StateLocked, StateUnavailable
from streams.engine.settlement import ID_BYTES, Pair

META: Final = "default"
"""Family of the one meta value."""
LEVELS: Final = "levels"
"""Family of the levels."""
UNSENT: Final = "unsent"
"""Family of the facts the ledger has not acknowledged."""
PINNED: Final = "pinned"
"""Family of the ids that no generation may drop."""
_BUCKETS: Final = 50_000
_MEMTABLE_BLOOM: Final = 0.02
"""Of a memtable's bytes: some nine bits an id."""
_LOADED: Final = "loaded"
_BLOCK_BYTES: Final = 16 << 10
_FILTER_BITS: Final = 13
"""Of a file's filter for an id: 0.3 bytes on disk more than ten, a quarter less for a look-up among
20 million ids."""
_OPEN_ATTEMPTS: Final = 100
_OPEN_PAUSE_S: Final = 0.05
log = structlog.get_logger("engine")
_DAMAGE: Final = ("Corruption", "Invalid argument", "IO error: No such file")


def seen_family(slot: int) -> str:
    """Family of one generation's ids."""
    return f"seen-{slot}"


class Store:
    """One RocksDB directory. Not safe for threads; the table guards it."""

    def __init__(self, path: Path, families: Mapping[str, bool], cache: Cache) -> None:
        """Open or create.

        Args:
            path: directory of the database.
            families: name → whether its keys are looked up only (ids) or also walked in order.
            cache: block cache shared by the partitions of a process.

        Raises:
            StateDamaged: unreadable; set it aside and rebuild.
            StateLocked: still open in this process after five seconds.
            StateUnavailable: the disk is full or not accessible.
        """
        self.path = path
        self._cache = cache
        self._kinds = dict(families)
        self._db = self._open()
        self._is_open = True
        self._families: dict[str, Rdict] = {}
        for name in families:
            with _faults(path):
                self._families[name] = self._db.get_column_family(name)

    def _open(self) -> Rdict:
        pause = threading.Event()
        for attempt in range(_OPEN_ATTEMPTS):
            try:
                with _faults(self.path):
                    return Rdict(
                        str(self.path),
                        options=self._options(walked=True),
                        column_families={
                            name: self._options(walked=not looked_up)
                            for name, looked_up in self._kinds.items()
                        },
                    )
            except StateLocked:
                # The lock of a closed database goes with its last handle, which another thread
                # may hold for a moment.
                if attempt == _OPEN_ATTEMPTS - 1:
                    raise
                pause.wait(_OPEN_PAUSE_S)
        raise StateLocked(f"{self.path}: still locked")

    def _options(self, *, walked: bool) -> Options:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_paranoid_checks(True)
        # The hash memtable of the id families does not allow concurrent writes, and RocksDB wants
        # the same answer from every family.
        options.set_allow_concurrent_memtable_write(False)
        options.set_max_total_wal_size(64 << 20)
        options.set_write_buffer_size(16 << 20)
        options.set_keep_log_file_num(2)
        options.set_max_open_files(256)
        # What is short-lived is compressed cheaply, what stays is compressed well: an id takes 31
        # bytes instead of 37, and looking it up no longer.
        options.set_compression_type(DBCompressionType.lz4())
        options.set_bottommost_compression_type(DBCompressionType.zstd())
        blocks = BlockBasedOptions()
        blocks.set_block_size(_BLOCK_BYTES)
        blocks.set_block_cache(self._cache)
        # Nearly every id is new; a filter that is wrong of it costs a block: read and unpacked.
        blocks.set_bloom_filter(_FILTER_BITS, False)
        options.set_block_based_table_factory(blocks)
        if not walked:
            # The hash memtable wants a prefix. It is the whole id: a shorter one would stand beside
            # it in every filter, one byte and a quarter for each id that nothing asks for.
            options.set_prefix_extractor(SliceTransform.create_fixed_prefix(ID_BYTES))
            # Nearly every id that is looked up is new; without this each walks a chain of others.
            options.set_memtable_prefix_bloom_ratio(_MEMTABLE_BLOOM)
            options.set_memtable_whole_key_filtering(True)
            options.set_memtable_factory(
                MemtableFactory.hash_link_list(_BUCKETS)  # type: ignore[call-arg]  # stub lacks it
            )
        return options

    def get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values of the keys, None where there is none."""
        with _faults(self.path):
            # A list of keys answers with a list, which the stub does not say.
            return cast("list[bytes | None]", self._families[family].get(list(keys)))

    def meta(self, key: bytes) -> bytes | None:
        """One value of the meta family."""
        with _faults(self.path):
            return cast("bytes | None", self._db.get(key))

    def write(self, fill: Callable[["Batch"], None], *, durable: bool = True) -> None:
        """Write everything `fill` puts, or nothing.

        Args:
            fill: puts and deletes into the batch.
            durable: False leaves out the log of RocksDB; only for a state that is thrown away
                when the process ends before `flush`.
        """
        batch = Batch(self._db)
        fill(batch)
        options = WriteOptions()
        # An attribute, though the stub says a method.
        options.disable_wal = not durable  # type: ignore[method-assign,assignment]
        with _faults(self.path):
            self._db.write(batch.raw, options)

    def load(self, family: str, pairs: Iterable[Pair]) -> None:
        """Put pairs into a family as a file of its own: a fraction of the work of `write`.

        Not in one step with anything else, and not logged: only for a state that is thrown away
        when the process ends before `flush`.

        Args:
            family: where to; what it holds of a key already is replaced.
            pairs: in any order, each key once.
        """
        ordered = sorted(pairs)
        if not ordered:
            return
        path = self.path / _LOADED
        how = IngestExternalFileOptions()
        how.set_move_files(True)
        with _faults(self.path):
            writer = SstFileWriter(self._options(walked=not self._kinds[family]))
            # One that could not be removed may be the very file of those loaded before.
            path.unlink(missing_ok=True)
            writer.open(str(path))
            for key, value in ordered:
                writer[key] = value
            writer.finish()
            self._families[family].ingest_external_file([str(path)], how)

    def walk(self, family: str, start: bytes = b"") -> Iterator[Pair]:
        """Pairs of a family in key order, from `start`.

        An iterator over a damaged file just ends, so its status is asked before it may end.

        Raises:
            StateDamaged: the walk ended early.
        """
        with _faults(self.path):
            cursor = self._families[family].iter()
            try:
                cursor.seek(start)
                while cursor.valid():
                    yield cursor.key(), cursor.value()
                    cursor.next()
                cursor.status()
            finally:
                del cursor  # as in `flush`

    def recreate(self, family: str) -> None:
        """Empty a family at once, its files included."""
        with _faults(self.path):
            self._families.pop(family, None)
            self._db.drop_column_family(family)
            self._families[family] = self._db.create_column_family(
                family, self._options(walked=not self._kinds[family])
            )

    def flush(self) -> None:
        """Write every memtable to its file."""
        with _faults(self.path):
            # By name: a handle in a variable would live as long as whoever remembers the fault, and
            # the lock of the directory with it.
            for name in self._families:
                self._families[name].flush()
            self._db.flush()

    def close(self) -> None:
        """Close; every handle is dropped first, or the lock of the directory would stay.

        May be called twice. Does not raise: closing writes out what RocksDB's own log has already,
        and whether that can be read is judged by the next opening.
        """
        self._families.clear()
        if self._is_open:
            self._is_open = False
            try:
                with _faults(self.path):
                    self._db.close()
            except (StateDamaged, StateUnavailable) as fault:
                log.warning("state_not_written_out", path=str(self.path), error=str(fault))
            del self._db


class Batch:
    """Puts and deletes that are written together."""

    def __init__(self, db: Rdict) -> None:
        self.raw = WriteBatch(raw_mode=True)
        self._db = db

    def put(self, family: str, pairs: Sequence[Pair]) -> None:
        """Put pairs into a family."""
        handle = self._db.get_column_family_handle(family)
        put = self.raw.put
        for key, value in pairs:
            put(key, value, handle)

    def put_meta(self, key: bytes, value: bytes) -> None:
        """Put one value into the meta family."""
        self.raw.put(key, value)

    def delete(self, family: str, keys: Sequence[bytes]) -> None:
        """Delete keys from a family."""
        handle = self._db.get_column_family_handle(family)
        for key in keys:
            self.raw.delete(key, handle)


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    """Give RocksDB's faults names; it raises plain `Exception` with a text."""
    try:
        yield
    except (StateDamaged, StateLocked, StateUnavailable):
        raise
    except Exception as error:  # rocksdict raises nothing more specific
        text = str(error)
        if "lock" in text.lower() and ("hold by" in text or "unavailable" in text):
            raise StateLocked(f"{path}: {text}") from error
        if text.startswith(_DAMAGE):
            raise StateDamaged(f"{path}: {text}") from error
        raise StateUnavailable(
            f"{path}: {text}: check free space and permissions of the data directory"
        ) from error
