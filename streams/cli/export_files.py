"""Rows of one day → a file that is there whole or not at all, and what the manifest says of it."""

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, Protocol

import msgspec

from streams.cli.errors import ConfigurationError
from streams.cli.export_columns import DataSet, Kind, Row
from streams.core.identity import DIGEST_MODULUS
from streams.core.instant import wire_text

ROWS_AT_ONCE: Final = 50_000
MANIFEST: Final = "manifest.json"
READ_BYTES: Final = 1 << 20


class FileEntry(msgspec.Struct, frozen=True):
    """One file of the manifest."""

    path: str
    """Below the folder of the export."""
    data_set: str
    day: str
    rows: int
    usage: int
    """Rows that are usage: of accepted records without the corrections, else all."""
    units: str
    """Sum of the usage's amounts."""
    digest: str | None
    """Sum of the usage's contents modulo 2^128, in hex: of accepted as of levels and entries."""
    bytes: int
    sha256: str


class Manifest(msgspec.Struct):
    """What an export's folder holds."""

    v: int
    ledger_id: str
    files: list[FileEntry]


class Sheet(Protocol):
    """One file being written."""

    def add(self, rows: Sequence[Row]) -> None:
        """More rows."""

    def close(self) -> None:
        """No more come."""


class _CsvSheet:
    def __init__(self, path: Path, columns: Sequence[tuple[str, Kind]]) -> None:
        self._columns = columns
        self._file: IO[str] = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow([name for name, _ in columns])

    def add(self, rows: Sequence[Row]) -> None:
        self._writer.writerows(
            [_text(row[name], kind) for name, kind in self._columns] for row in rows
        )

    def close(self) -> None:
        self._file.close()


def _text(value: Any, kind: Kind) -> object:
    if value is None:
        return ""
    if kind is Kind.INSTANT:
        return wire_text(value)
    return str(value).lower() if kind is Kind.FLAG else value


class _ParquetSheet:
    def __init__(self, path: Path, columns: Sequence[tuple[str, Kind]]) -> None:
        self._arrow, parquet = arrow()
        self._columns = columns
        self._schema = self._arrow.schema([(name, self._type(kind)) for name, kind in columns])
        self._writer = parquet.ParquetWriter(str(path), self._schema, compression="zstd")

    def add(self, rows: Sequence[Row]) -> None:
        arrays = [
            self._arrow.array([_exact(row[name], kind) for row in rows], self._type(kind))
            for name, kind in self._columns
        ]
        batch = self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()

    def _type(self, kind: Kind) -> Any:
        pa = self._arrow
        types = {
            Kind.TEXT: pa.string(), Kind.INT: pa.int64(), Kind.BIG: pa.decimal128(38, 0),
            Kind.FLAG: pa.bool_(), Kind.INSTANT: pa.timestamp("us", tz="UTC"),
        }  # fmt: skip
        return types[kind]


def _exact(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    return int(value) if kind in {Kind.INT, Kind.BIG} else value


def arrow() -> tuple[Any, Any]:
    """The library that writes Parquet, and that part of it.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigurationError(
            "Parquet needs pyarrow, which is not installed",
            fix="install `tailrace[parquet]`, or `--format csv`",
        ) from error


SHEETS: Final[Mapping[str, Any]] = {"csv": _CsvSheet, "parquet": _ParquetSheet}


def write_day(
    folder: Path, data_set: DataSet, day: str, form: str, rows: Iterable[Row]
) -> tuple[FileEntry, Path]:
    """Writes a day under a temporary name; nothing is in its place yet.

    Returns:
        What the manifest will say, and where the file waits for `put_in_place`.

    Raises:
        OSError: the disk is full, or not ours.
    """
    path = folder / data_set.name / f"day={day}" / f"{data_set.name}.{form}"
    path.parent.mkdir(parents=True, exist_ok=True)
    waiting = path.with_name(f".{path.name}.part")
    sheet: Sheet = SHEETS[form](waiting, data_set.columns)
    count = used = units = digest = 0
    try:
        for batch in _batches(rows):
            sheet.add(batch)
            count += len(batch)
            usage = [row for row in batch if row.get("type", "usage") == "usage"]
            used += len(usage)
            units += sum(int(row[data_set.units]) for row in usage)
            if data_set.digest is not None:
                digest += sum(int(row[data_set.digest], 16) for row in usage)
    finally:
        sheet.close()
    entry = FileEntry(
        path=str(path.relative_to(folder)), data_set=data_set.name, day=day, rows=count, usage=used,
        units=str(units),
        digest=None if data_set.digest is None else f"{digest % DIGEST_MODULUS:032x}",
        bytes=waiting.stat().st_size, sha256=digest_of(waiting),
    )  # fmt: skip
    return entry, waiting


def put_in_place(folder: Path, entry: FileEntry, waiting: Path, *, before: FileEntry | None) -> str:
    """Gives the file its name: `written`, `replaced`, or `unchanged` where it was there already.

    One that held more rows is `kept`: its topic has let go of some since.
    """
    path = folder / entry.path
    there = path.exists()
    if there and digest_of(path) == entry.sha256:
        waiting.unlink()
        return "unchanged"
    if there and before is not None and before.rows > entry.rows:
        waiting.unlink()
        return "kept"
    settle(waiting, path)
    return "replaced" if there else "written"


def settle(waiting: Path, path: Path) -> None:
    """Gives a file that is whole its name, once the disk has it."""
    with waiting.open("rb") as written:
        os.fsync(written.fileno())
    waiting.replace(path)


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashed(file)


def hashed(read: IO[bytes]) -> str:
    """SHA-256 of what is left to read, in hex."""
    digest = sha256()
    while part := read.read(READ_BYTES):
        digest.update(part)
    return digest.hexdigest()


def read_manifest(folder: Path) -> Manifest | None:
    """What an earlier export left; None for none.

    Raises:
        ConfigurationError: the file is damaged.
    """
    path = folder / MANIFEST
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error}", fix="export into an empty folder: `--out DIR`"
        ) from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Puts it in place, whole."""
    waiting = folder / f".{MANIFEST}.part"
    waiting.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    settle(waiting, folder / MANIFEST)


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    left = iter(rows)
    while batch := list(islice(left, ROWS_AT_ONCE)):
        yield batch
