"""Exported files: whole, the same again, and never fewer rows than a topic once held."""

import csv
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet
import pytest

from streams.cli import export_files
from streams.cli.errors import ConfigurationError
from streams.cli.export_columns import DATA_SETS, Name, Row
from streams.cli.export_files import (
    FileEntry,
    Manifest,
    digest_of,
    put_in_place,
    read_manifest,
    write_day,
    write_manifest,
)
from streams.cli.export_read import Spool, unique, without_erased
from streams.core.instant import to_us, wire_text

DAY_US = 1_795_996_800_000_000
ACCEPTED = DATA_SETS[Name.ACCEPTED]


def record(name: str, offset: int, *, units: int = 3, kind: str = "usage") -> bytes:
    """A record of usage.accepted."""
    amount = {"quantity": str(units)} if kind == "usage" else {"delta": str(units)}
    at, end = wire_text(DAY_US), wire_text(DAY_US + 60_000_000)
    return json.dumps(
        {
            "v": 1, "source_partition": 0, "source_offset": offset, "catalogue": 1,
            "window_start": at, "window_end": end, "units": str(units),
            "event": {
                "v": 1, "type": kind, "source": "shop", "event_id": name, "tenant_id": "acme",
                "event_key": f"=key {name}", "metric": "api", "occurred_at": at, "received_at": at,
                "content": f"{offset + 1:032x}", "attributes": {"region": "eu"}, **amount,
            },
        }
    ).encode()  # fmt: skip


ROWS = unique(iter([record("b", 5), record("a", 3), record("c", 9, units=-1, kind="correction")]))


def export_day(folder: Path, form: str, rows: list[Any], before: FileEntry | None = None) -> str:
    entry, waiting = write_day(folder, ACCEPTED, "2026-11-30", form, rows)
    assert not waiting.name.endswith(f".{form}"), "a half-written file must match no pattern"
    return put_in_place(folder, entry, waiting, before=before)


def test_a_record_that_is_there_twice_is_one_row_of_its_first_place() -> None:
    rows = unique(iter([record("a", 7), record("b", 4), record("a", 3), record("a", 7)]))
    assert [(row["event_id"], row["source_offset"]) for row in rows] == [("a", 3), ("b", 4)]


def test_days_are_spooled_apart_and_come_back_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.cli.export_read.SPOOL_BYTES", 10)
    spool = Spool(tmp_path)
    for number in range(7):
        spool.add("2026-11-30" if number % 2 else "2026-11-29", b"%d" % number * number)
    assert spool.days() == ["2026-11-29", "2026-11-30"]
    assert list(spool.values("2026-11-30")) == [b"1", b"333", b"55555"]
    assert list(spool.values("2026-11-29")) == [b"", b"22", b"4444", b"666666"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_is_written_once_and_then_left_alone(tmp_path: Path, form: str) -> None:
    assert export_day(tmp_path, form, ROWS) == "written"
    path = tmp_path / "accepted" / "day=2026-11-30" / f"accepted.{form}"
    first = digest_of(path)
    assert export_day(tmp_path, form, ROWS) == "unchanged"
    assert export_day(tmp_path, form, [*ROWS, {**ROWS[0], "event_id": "d"}]) == "replaced"
    assert digest_of(path) != first
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_file_with_more_rows_than_the_topic_still_holds_is_kept(tmp_path: Path) -> None:
    entry, waiting = write_day(tmp_path, ACCEPTED, "2026-11-30", "csv", ROWS)
    put_in_place(tmp_path, entry, waiting, before=None)
    assert export_day(tmp_path, "csv", ROWS[:1], before=entry) == "kept"
    assert digest_of(tmp_path / entry.path) == entry.sha256


def test_an_export_that_breaks_off_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    export_day(tmp_path, "csv", ROWS)
    path = tmp_path / "accepted" / "day=2026-11-30" / "accepted.csv"
    before = path.read_bytes()

    def broken() -> Iterator[Any]:
        yield ROWS[0]
        raise OSError("the topic is away")

    with pytest.raises(OSError, match="is away"):
        write_day(tmp_path, ACCEPTED, "2026-11-30", "csv", broken())
    assert path.read_bytes() == before
    assert export_day(tmp_path, "csv", ROWS) == "unchanged"


def test_the_manifest_sums_usage_and_not_corrections(tmp_path: Path) -> None:
    entry, waiting = write_day(tmp_path, ACCEPTED, "2026-11-30", "csv", ROWS)
    assert (entry.rows, entry.usage, entry.units) == (3, 2, "6")
    assert entry.digest == f"{4 + 6:032x}"
    assert (entry.bytes, entry.sha256) == (waiting.stat().st_size, digest_of(waiting))
    write_manifest(tmp_path, Manifest(1, "ledger", [entry]))
    assert read_manifest(tmp_path) == Manifest(1, "ledger", [entry])
    (tmp_path / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_manifest(tmp_path)


def test_both_forms_say_the_same_and_keep_every_character(tmp_path: Path) -> None:
    for form in ("csv", "parquet"):
        export_day(tmp_path, form, ROWS)
    folder = tmp_path / "accepted" / "day=2026-11-30"
    table = pyarrow.parquet.ParquetFile(folder / "accepted.parquet").read()
    assert table.column_names == [name for name, _ in ACCEPTED.columns]
    told = table.to_pylist()
    with (folder / "accepted.csv").open(encoding="utf-8", newline="") as file:
        texts = list(csv.DictReader(file))
    assert [row["event_key"] for row in texts] == ["=key a", "=key b", "=key c"]
    assert [(row["event_id"], int(row["units"]), row["attributes"]) for row in texts] == [
        (row["event_id"], row["units"], row["attributes"]) for row in told
    ]
    assert [to_us(row["window_start"]) for row in told] == [DAY_US] * 3
    pattern = f"{tmp_path}/accepted/*/*.parquet"
    (summed,) = duckdb.execute(
        "SELECT sum(units), min(day)::text FROM read_parquet(?, hive_partitioning = true)"
        " WHERE type = 'usage'",
        [pattern],
    ).fetchall()
    assert summed == (6, "2026-11-30")


def test_what_no_machine_number_holds_is_exact_in_parquet(tmp_path: Path) -> None:
    level = {
        "tenant_id": "acme", "metric": "api", "catalogue_version": 1, "window_start": DAY_US,
        "window_end": DAY_US + 60, "shard": 0, "log_id": "l", "partition": 3, "count": 1,
        "total": str(10**30), "digest": f"{7:032x}", "held": False,
    }  # fmt: skip
    entry, waiting = write_day(tmp_path, DATA_SETS[Name.LEVELS], "2026-11-30", "parquet", [level])
    put_in_place(tmp_path, entry, waiting, before=None)
    (row,) = pyarrow.parquet.read_table(tmp_path / entry.path).to_pylist()
    assert (int(row["total"]), row["held"], entry.units) == (10**30, False, str(10**30))


def test_without_pyarrow_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> object:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return import_module(name)

    monkeypatch.setattr(export_files, "import_module", absent)
    with pytest.raises(ConfigurationError) as refused:
        export_files.arrow()
    assert refused.value.fix == "install `tailrace[parquet]`, or `--format csv`"


def test_what_was_erased_comes_without_attributes_and_what_came_later_with_them() -> None:
    def row(tenant: str, received_us: int) -> Row:
        return {"tenant_id": tenant, "received_at": received_us, "attributes": '{"user":"ann"}'}

    rows = [row("acme", 7), row("acme", 8), row("another", 7)]
    ((day, left),) = without_erased(iter([("2026-11-29", iter(rows))]), {"acme": 7})
    assert day == "2026-11-29"
    assert list(left) == [{**rows[0], "attributes": "{}"}, *rows[1:]]
