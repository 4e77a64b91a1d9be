"""One statement in its forms: each says the same, and none can be steered by what others wrote."""

import csv
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from jsonschema import Draft202012Validator

from streams.cli.errors import UsageProblemError
from streams.cli.mappings import Mapped
from streams.cli.statement_document import document_of
from streams.cli.statement_file import put_lines, put_parquet
from streams.cli.statement_page import html_lines
from streams.cli.statement_read import Found, Registry, Wanted
from streams.cli.statement_text import csv_lines, remarks, text_lines
from streams.core.catalogue import Catalogue, MeterVersion
from streams.core.instant import DAY_US, HOUR_US, LAST_US, MINUTE_US
from streams.core.statement import NOTHING, Event, Statement, Told
from streams.core.statement_line import Span
from tests.support.live import ROOT

AT = 10 * HOUR_US
SPAN = Span("api", AT, AT + MINUTE_US)
METER = MeterVersion(
    metric="api", version=1, event_name="api", window_us=MINUTE_US, publish="window", scale=0,
    skew_max_us=DAY_US, close_delay_us=0, carry="review", aggregation="sum", rules=1,
    effective_from_us=0,
)  # fmt: skip
ENTRY: dict[str, Any] = {
    "entry_id": 7, "kind": "correction", "metric": "api", "start_us": AT,
    "end_us": AT + MINUTE_US, "delta": -1, "state": "settled", "event_id": "fix",
    "target_event_id": "one", "actor": "ann", "reason": "@twice", "reference": "ticket",
    "created_us": AT, "customer": "cus_1", "identifier": "id-1", "value": "2", "settled_us": AT,
}  # fmt: skip


def document(down_to: str, told: Told, key: str = "one", why_not: str = "") -> dict[str, Any]:
    statement = Statement(Catalogue((METER,), LAST_US), {SPAN: told}, [])
    placed = [statement.place(Event("one", key, "api", "3", AT, AT, 5))]
    found = Found(
        Wanted("acme", None, 0, 30 * DAY_US),
        Registry(None if why_not else "shop", why_not),
        [Mapped("acme", "cus_1", 0, None, None, None, "ann")],
        statement.lines(),
        placed if down_to == "event" else [],
        [dict(ENTRY)] if down_to == "event" else [],
    )
    made = document_of(found, "1970-01", down_to)
    rules = msgspec.json.decode((ROOT / "schemas" / "cli" / "statement.json").read_bytes())
    Draft202012Validator(rules).validate(made)
    return made


FOOTS = NOTHING._replace(events=1, total=3, digest=5, corrected=-1, settled=2)
LACKS = NOTHING


def rows(made: dict[str, Any]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("\n".join(csv_lines(made)))))


def test_every_form_names_amounts_payer_and_events() -> None:
    made = document("event", FOOTS)
    text = "\n".join(text_lines(made))
    page = "".join(html_lines(made))
    for shown in (text, page):
        for word in ("acme", "cus_1", "api", "one", "id-1", "ticket"):
            assert word in shown, word
    assert "It foots." in page
    assert [(row["what"], row["id"], row["units"]) for row in rows(made)] == [
        ("event", "one", "3"),
        ("correction entry", "fix", "-1"),
    ]
    assert list(remarks(made)) == []


def test_down_to_windows_and_metrics_a_row_is_one_of_them() -> None:
    (window,) = rows(document("window", FOOTS))
    (metric,) = rows(document("metric", FOOTS))
    assert window == metric
    assert (window["recorded"], window["corrected"], window["billed"]) == ("3", "-1", "2")
    assert (window["proven"], window["foots"]) == ("yes", "yes")


def test_what_does_not_foot_is_shown_down_to_its_window_however_coarse_it_was_asked() -> None:
    made = document("metric", LACKS)
    assert not made["foots"]
    assert len(made["windows"]) == 1
    first, second = remarks(made)
    assert "3 units recorded are nowhere, 1 events recorded are nowhere" in first
    assert "`tailrace windows show acme api 1970-01-01T10:00:00.000000Z`" in second
    assert "It does NOT foot" in "".join(html_lines(made))
    assert "class=no" in "".join(html_lines(made))


def test_an_unread_registry_is_said() -> None:
    assert "because it is away" in next(remarks(document("window", FOOTS, why_not="it is away")))


def test_keys_and_reasons_steer_neither_a_page_nor_a_spreadsheet() -> None:
    made = document("event", FOOTS, key="=cmd|'/c'!A0")
    event, entry = rows(made)
    assert event["event_key"] == "'=cmd|'/c'!A0"
    assert entry["why"] == "ticket; @twice"
    assert entry["units"] == "-1"
    page = "".join(html_lines(document("event", FOOTS, key="<script>x</script>")))
    assert "<script" not in page


def test_parquet_has_every_line_with_exact_amounts_and_is_not_written_twice(tmp_path: Path) -> None:
    large = FOOTS._replace(total=10**30 + 3, settled=10**30 + 2)
    file = tmp_path / "statement.parquet"
    made = document("window", large)
    made["windows"][0]["recorded"] = str(10**30 + 3)
    assert [put_parquet(file, made) for _ in range(2)] == ["written", "unchanged"]
    (line,) = duckdb.execute(
        f"SELECT tenant_id, month, metric, recorded, billed, events, proven, foots,"
        f" recorded - billed - 1 FROM '{file}'"
    ).fetchall()
    told, billed = Decimal(10**30 + 3), Decimal(10**30 + 2)
    assert line == ("acme", "1970-01", "api", told, billed, 1, True, False, Decimal(0))
    stamped = f"SELECT typeof(recorded), epoch_us(window_start) FROM '{file}'"
    assert duckdb.execute(stamped).fetchall() == [("DECIMAL(38,0)", AT)]

    assert put_parquet(file, document("event", FOOTS)) == "replaced"
    found = duckdb.execute(
        f"SELECT kind, event_id, units, state, quantity, entry_id, actor FROM '{file}' ORDER BY 1"
    ).fetchall()
    assert found == [
        ("correction", "fix", Decimal(-1), "settled", None, 7, "ann"),
        ("recorded", "one", Decimal(3), "accepted", "3", None, None),
    ]
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_what_is_printed_is_a_file_as_well(tmp_path: Path) -> None:
    file, made = tmp_path / "statement.csv", document("window", FOOTS)
    assert [put_lines(file, csv_lines(made)) for _ in range(2)] == ["written", "unchanged"]
    assert file.read_text(encoding="utf-8").splitlines() == list(csv_lines(made))
    nowhere = tmp_path / "nowhere" / "file"
    with pytest.raises(UsageProblemError, match="--out"):
        put_lines(nowhere, [])
    with pytest.raises(UsageProblemError, match="--out"):
        put_parquet(nowhere, made)


def test_erased_words_are_said_to_be_so() -> None:
    made = document("window", FOOTS)
    made["erasures"] = [{"erased_at": "1970-01-02T00:00:00.000000Z", "receipt": 7, "reason": "x"}]
    assert "erased on 1970-01-02T00:00:00.000000Z (receipt 7)" in "".join(html_lines(made))
    assert "(receipt 7): x" in next(remarks(made))
