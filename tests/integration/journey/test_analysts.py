"""What finance and analysts do on a stack that bills: footed, exported, read again, explained."""

import shlex
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import psycopg
import pytest
from jsonschema import Draft202012Validator

from tests.support.book_reading import ledger_number
from tests.support.books import (
    Books,
    Use,
    await_settled,
    map_customers,
    scattered,
    write,
)
from tests.support.live import ROOT, LiveStack
from tests.support.walk import steps

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def asked(stack: LiveStack, *command: str, code: int = 0) -> dict[str, Any]:
    """A command's document, which keeps its schema."""
    ran = stack.tailrace(*command, "--json")
    assert ran.returncode == code, f"{command}\n{ran.stdout}{ran.stderr}"
    document = msgspec.json.decode(ran.stdout, type=dict[str, Any])
    rules = (ROOT / "schemas" / "cli" / f"{command[0]}.json").read_bytes()
    Draft202012Validator(msgspec.json.decode(rules)).validate(document)
    return document


def months(books: Books) -> set[str]:
    return {f"{use.occurred_at:%Y-%m}" for use in books.uses.values()}


def change(stack: LiveStack, statement: str) -> None:
    """What nobody may do, past all triggers."""
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as owner:
        owner.execute("SET session_replication_role = replica")
        owner.execute(statement.encode())


def test_a_month_foots_is_exported_and_replays_without_a_difference(
    stack: LiveStack, tmp_path: Path
) -> None:
    books = Books()
    write(stack, scattered("analyst", 300, tenants=4, seed=23), books)
    await_settled(stack, books)

    recorded = 0
    for tenant in sorted(books.tenants):
        for month in months(books):
            found = asked(stack, "statement", "--tenant", tenant, "--month", month)
            assert found["recorded_by"] == "sandbox"
            recorded += sum(int(line["recorded"]) for line in found["metrics"])
    assert recorded == sum(use.units for use in books.uses.values())

    out = tmp_path / "files"
    exported = asked(stack, "export", "--out", str(out), "--format", "parquet")
    assert exported["incomplete"] == []
    again = asked(stack, "export", "--out", str(out), "--format", "parquet")
    assert {file["status"] for file in again["files"]} == {"unchanged"}
    (totals,) = duckdb.execute(
        f"SELECT count(*), sum(units) FROM '{out}/accepted/*/*.parquet' WHERE type = 'usage'"
    ).fetchall()
    assert totals == (
        ledger_number(stack, "SELECT sum(events) FROM ledger.balance"),
        ledger_number(stack, "SELECT sum(total) FROM ledger.balance"),
    )

    replayed = asked(stack, "replay")
    assert (replayed["differing"], replayed["differences"]) == (0, [])
    assert replayed["records"] >= len(books.uses)
    assert all(part["whole"] for part in replayed["partitions"])
    what_is_tampered_with_is_found(stack, out)
    a_part_is_compared_as_far_as_it_goes(stack, tmp_path, replayed)


def what_is_tampered_with_is_found(stack: LiveStack, out: Path) -> None:
    """One unit more in one window of the ledger: every one of the three says so."""
    which = "WHERE tenant_id = 'analyst-0' AND metric = 'api_calls'"
    first = f"AND window_start = (SELECT min(window_start) FROM ledger.level {which})"
    change(stack, f"UPDATE ledger.level SET total = total + 1, digest = digest + 1 {which} {first}")
    try:
        (difference,) = asked(stack, "replay", code=1)["differences"]
        assert difference["kind"] == "level"
        assert difference["subject"].startswith("analyst-0 api_calls v1 ")
        lacking = asked(stack, "export", "--out", str(out), "--only", "accepted", code=1)
        assert len(lacking["incomplete"]) == 1
        month = difference["subject"].split()[3][:7]
        wrong = asked(stack, "statement", "--tenant", "analyst-0", "--month", month, code=1)
        assert [line["proven"] for line in wrong["windows"] if not line["foots"]] == [False]
    finally:
        change(
            stack, f"UPDATE ledger.level SET total = total - 1, digest = digest - 1 {which} {first}"
        )


def a_part_is_compared_as_far_as_it_goes(
    stack: LiveStack, tmp_path: Path, whole: dict[str, Any]
) -> None:
    fullest = max(whole["partitions"], key=lambda part: part["records"])
    number, first, last = (fullest[name] for name in ("partition", "first", "last"))
    middle = (first + last) // 2
    behind = asked(stack, "replay", "--offsets", f"{number}:{middle}-{last}")
    before = asked(stack, "replay", "--offsets", f"{number}:-{middle - 1}")
    assert behind["records"] + before["records"] == fullest["records"]
    assert (behind["differing"], before["differing"], behind["partly"] > 0) == (0, 0, True)
    kept = ("--state", str(tmp_path / "state"))
    once, twice = (
        asked(stack, "replay", "--offsets", f"{number}:{middle}-{last}", *kept) for _ in range(2)
    )
    assert (once["records"], once["figures"]) == (behind["records"], behind["figures"])
    assert (twice["records"], twice["figures"]) == (behind["records"], behind["figures"])
    another = stack.tailrace("replay", *kept)
    assert (another.returncode, "is of another replay" in another.stderr) == (2, True)


def test_other_rules_say_what_they_would_have_come_to(stack: LiveStack, tmp_path: Path) -> None:
    books, at = Books(), datetime.now(UTC) - timedelta(hours=3)  # noqa: TID251 - a service lives now
    write(stack, [Use("what-if", "api_calls", f"if-{n}", 5, at) for n in range(4)], books)
    await_settled(stack, books)
    rules = tmp_path / "other.toml"
    rules.write_text('[meters.api_calls]\nwindow = "hour"\nskew_max = "1h"\n', encoding="utf-8")
    found = asked(stack, "replay", "--tenant", "what-if", "--meters", str(rules))
    assert found["differing"] == 0
    figures = {f["verdict"]: f for f in found["figures"] if f["metric"] == "api_calls"}
    assert (figures["accepted"]["units"], figures["accepted"]["other_units"]) == ("20", "0")
    assert (figures["review late"]["units"], figures["review late"]["other_units"]) == ("0", "20")
    refused = stack.tailrace("replay", "--meters", str(tmp_path / "none.toml"))
    assert refused.returncode == 78


def test_the_walk_from_an_invoice_line_to_its_events(stack: LiveStack, tmp_path: Path) -> None:
    books, at = Books(), datetime.now(UTC) - timedelta(hours=3)  # noqa: TID251 - a service lives now
    uses = [
        Use("acme", metric, f"walk-{metric}-{n}", 5, at)
        for metric in ("api_calls", "exports")
        for n in range(3)
    ]
    write(stack, uses, books)
    map_customers(stack, books)
    await_settled(stack, books)
    folder = tmp_path / "files"
    for step in steps():
        text = step.text.replace("2026-11", f"{at:%Y-%m}")
        if step.kind == "shell":
            for command in step.commands:
                typed = command.replace("2026-11", f"{at:%Y-%m}").replace(
                    "--out usage", f"--out {folder}"
                )
                ran = stack.tailrace(*shlex.split(typed)[1:])
                assert ran.returncode == 0, f"{typed}\n{ran.stdout}{ran.stderr}"
                assert ran.stdout, typed
        else:
            rows = answered(stack, step.kind, text.replace("'usage/", f"'{folder}/"))
            assert bool(list(rows)) is not step.gives_no_row, text


def answered(stack: LiveStack, kind: str, text: str) -> Iterable[object]:
    if kind == "duckdb":
        return duckdb.execute(text).fetchall()
    assert kind == "sql"
    with psycopg.connect(stack.facts["ledger_owner_dsn"]) as ledger:
        ledger.execute("SET ROLE ledger_reader")
        return ledger.execute(text.encode()).fetchall()
