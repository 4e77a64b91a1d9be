"""What the ledger has, as files: complete, to the unit, and the same when written again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.integration.cli.conftest import World
from tests.support.waiting import until

pytestmark = pytest.mark.postgres

LEDGER = (
    "--only",
    "levels",
    "--only",
    "entries",
    "--only",
    "meter_events",
    "--only",
    "settlements",
)


def exported(world: World, out: Path, *options: str) -> dict[str, Any]:
    return world.cli.json("export", "export", "--out", str(out), *LEDGER, *options)


def summed(query: str, out: Path) -> list[tuple[Any, ...]]:
    return duckdb.execute(query.replace("DIR", str(out))).fetchall()


def test_files_say_what_the_ledger_says_and_are_not_written_twice(
    world: World, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert exported(world, out)["files"] == []
    world.cli("customers", "map", "acme", "cus_acme")
    for key in ("one", "two"):
        world.record("acme", key)
    world.record("acme", "three", metric="exports")
    world.settled(9)
    until(
        "no level waits",
        lambda: world.value(world.ledger, "SELECT count(due_at) FROM ledger.level") == 0,
        20,
    )

    first = exported(world, out)
    assert {file["status"] for file in first["files"]} == {"written"}
    assert {file["data_set"] for file in first["files"]} == {
        "levels", "entries", "meter_events", "settlements",
    }  # fmt: skip
    again = exported(world, out)
    assert [{**file, "status": "written"} for file in again["files"]] == first["files"]
    assert {file["status"] for file in again["files"]} == {"unchanged"}
    exported(world, out, "--format", "parquet")
    for form in ("csv", "parquet"):
        assert summed(f"SELECT sum(delta)::bigint FROM 'DIR/entries/*/*.{form}'", out) == [(9,)]
        settled = f"SELECT sum(units)::bigint, max(http_status) FROM 'DIR/settlements/*/*.{form}'"
        assert summed(settled, out) == [(9, 200)]
        assert summed(f"SELECT sum(total)::bigint FROM 'DIR/levels/*/*.{form}'", out) == [(6,)]
    joined = (
        "SELECT s.state, e.delta FROM 'DIR/entries/*/*.parquet' e"
        " JOIN 'DIR/settlements/*/*.parquet' s USING (meter_event_id) WHERE e.event_id IS NOT NULL"
    )
    assert summed(joined, out) == [("recorded", 3)]

    world.record("acme", "four", metric="exports")
    world.settled(12)
    more = {file["status"] for file in exported(world, out)["files"]}
    assert more >= {"replaced"}
    with world.ledger.connect() as admin:
        admin.execute("ALTER TABLE ledger.identity DISABLE TRIGGER append_only")
        admin.execute("UPDATE ledger.identity SET ledger_id = gen_random_uuid()")
    refused = world.cli("export", "--out", str(out), *LEDGER)
    assert (refused.code, "the export of another ledger" in refused.err) == (78, True)


def test_a_day_outside_is_not_exported_and_what_is_no_day_or_folder_is_said(
    world: World, tmp_path: Path
) -> None:
    world.record("acme", "one", metric="exports")
    until(
        "an entry",
        lambda: world.value(world.ledger, "SELECT count(*) FROM ledger.meter_log") == 1,
        20,
    )
    assert exported(world, tmp_path / "out", "--to", "2001-01-01")["files"] == []
    for wrong in (["--from", "2026-11-31"], ["--from", "2026-11-30", "--to", "2026-11-29"]):
        assert world.cli("export", "--out", str(tmp_path / "out"), *LEDGER, *wrong).code == 2
    (tmp_path / "file").touch()
    assert world.cli("export", "--out", str(tmp_path / "file"), *LEDGER).code == 2
