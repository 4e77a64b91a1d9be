"""A statement's document → a file of it, put in place whole; the same one is left alone."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from streams.cli import terminal
from streams.cli.errors import UsageProblemError
from streams.cli.export_columns import Kind, Row
from streams.cli.export_files import SHEETS, Sheet, digest_of, settle
from streams.cli.statement_document import AMOUNTS
from streams.core.instant import to_us

Document = Mapping[str, Any]
Columns = tuple[tuple[str, Kind], ...]

_WHOSE: Final[Columns] = (("tenant_id", Kind.TEXT), ("month", Kind.TEXT), ("metric", Kind.TEXT))
_WINDOW: Final[Columns] = (("window_start", Kind.INSTANT), ("window_end", Kind.INSTANT))
LINES: Final[Columns] = (
    *_WHOSE, *_WINDOW, ("events", Kind.INT), *((name, Kind.BIG) for name in AMOUNTS),
    ("missing", Kind.INT), ("proven", Kind.FLAG), ("foots", Kind.FLAG),
)  # fmt: skip
"""A line a window, or a meter."""
DETAILS: Final[Columns] = (
    *_WHOSE, *_WINDOW, ("kind", Kind.TEXT), ("event_id", Kind.TEXT), ("event_key", Kind.TEXT),
    ("quantity", Kind.TEXT), ("units", Kind.BIG), ("state", Kind.TEXT),
    ("occurred_at", Kind.INSTANT), ("received_at", Kind.INSTANT), ("created_at", Kind.INSTANT),
    ("item", Kind.INT), ("entry_id", Kind.INT), ("customer", Kind.TEXT), ("identifier", Kind.TEXT),
    ("actor", Kind.TEXT), ("reference", Kind.TEXT), ("reason", Kind.TEXT),
)  # fmt: skip
"""A line an event, of kind `recorded`, and one an entry, of its own kind."""


def put_lines(path: Path, lines: Iterable[str]) -> str:
    """Text, CSV or a page: what would have been printed, as a file.

    Returns:
        `written`, `replaced` or `unchanged`.

    Raises:
        UsageProblemError: it cannot be written there.
    """
    text = "".join(f"{terminal.plain(line)}\n" for line in lines)
    waiting = _beside(path)
    try:
        waiting.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error
    return _put(waiting, path)


def put_parquet(path: Path, document: Document) -> str:
    """The same, with units as decimals of 38 digits and instants as instants.

    Returns:
        `written`, `replaced` or `unchanged`.

    Raises:
        ConfigurationError: pyarrow is not installed.
        UsageProblemError: it cannot be written there.
    """
    waiting = _beside(path)
    columns = DETAILS if document["down_to"] == "event" else LINES
    try:
        sheet: Sheet = SHEETS["parquet"](waiting, columns)
        try:
            sheet.add([_told(row, columns) for row in _rows(document)])
        finally:
            sheet.close()
    except OSError as error:
        raise _unwritable(path, error) from error
    return _put(waiting, path)


def _rows(document: Document) -> Iterator[Row]:
    whose = {"tenant_id": document["tenant_id"], "month": document["month"]}
    if document["down_to"] != "event":
        for line in document["metrics" if document["down_to"] == "metric" else "windows"]:
            yield {**whose, **line}
        return
    for line in document["windows"]:
        window = {name: line[name] for name in ("metric", "window_start", "window_end")}
        for event in line["usage"]:
            yield {**whose, **window, **event, "kind": "recorded", "state": event["where"]}
        for entry in line["entries"]:
            # Of a window's sum nobody acted; its actor would be the login of a worker.
            own = {} if entry["kind"] not in {"usage", "event"} else {"actor": None}
            yield {**whose, **window, **entry, **own, "units": entry["delta"]}


def _told(row: Row, columns: Columns) -> Row:
    return {name: _value(row.get(name), kind) for name, kind in columns}


def _value(value: Any, kind: Kind) -> Any:
    if kind is Kind.INSTANT and value is not None:
        return to_us(datetime.fromisoformat(value))
    return value


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _put(waiting: Path, path: Path) -> str:
    try:
        there = path.exists()
        if there and digest_of(path) == digest_of(waiting):
            waiting.unlink()
            return "unchanged"
        settle(waiting, path)
    except OSError as error:
        raise _unwritable(path, error) from error
    return "replaced" if there else "written"


def _unwritable(path: Path, error: OSError) -> UsageProblemError:
    return UsageProblemError(
        f"--out: {path}: {error.strerror}", fix="name a file in a folder that can be written"
    )
