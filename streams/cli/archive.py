"""`tailrace archive run|check`: accepted usage of proven days, kept outside Kafka for good.

The ledger notes number, digest and hash of every file, after it was read back. So years later a
line of an invoice can still be footed to its events, and an event be shown to have counted or not.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from streams import topics
from streams.adapters.clock import SystemClock
from streams.cli import terminal
from streams.cli.archive_store import ArchiveStore, open_store
from streams.cli.database import Connection, connected, row, rows
from streams.cli.document import timed
from streams.cli.errors import FINDING
from streams.cli.export_columns import DATA_SETS, DataSet, Name, Row
from streams.cli.export_files import FileEntry, write_day
from streams.cli.export_read import day_text, received_us, spooled_days
from streams.cli.options import Dir, Json, new_app
from streams.cli.progress import Pace
from streams.cli.stack import resolve
from streams.cli.topic_read import reading
from streams.core.instant import DAY_US, from_us
from streams.settings import Settings

app = new_app("Accepted usage of proven days, kept outside Kafka for good: run, check.")

Out = Annotated[
    str,
    typer.Option(
        metavar="DIR|URI", help="The archive: a folder, or such as s3://bucket/usage.",
        show_default=False,
    ),
]  # fmt: skip

ARCHIVED: Final = DataSet(
    "archive",
    # Attributes are for analysis, and may hold what nobody may keep for years.
    tuple(column for column in DATA_SETS[Name.ACCEPTED].columns if column[0] != "attributes"),
    "units",
    "content",
)


class Day(NamedTuple):
    """A day that is over, as its cells say."""

    day_us: int
    events: int
    corrections: int
    digest: int
    unsealed: int
    archived: bool


@app.command()
def run(out: Out, directory: Dir = None, as_json: Json = False) -> None:
    """Archives every day that is over, proven by audits, and not archived yet.

    A day is that of `received_at`, in UTC: its events are all there once each of its minutes is
    sealed. They are read from Kafka, each once, and must be what the ledger's cells say, by number
    and digest; then the file is written, read back, and noted in the ledger. Repeat it every day;
    exit 1 where a day's events are not in Kafka any more. Attributes are not archived. It needs
    `tailrace[parquet]`.
    """
    store = open_store(out)
    settings = resolve(directory).need("ledger_dsn", "kafka_bootstrap")
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        days = {day_text(day.day_us): day for day in _days(ledger) if not day.archived}
        ready = {name: day for name, day in days.items() if not day.unsealed}
        archived, lacking = _archive(settings, ledger, store, ready) if ready else ([], [])
    document = {
        "out": out,
        "archived": archived,
        "incomplete": lacking,
        "unproven": [
            {"day": name, "unsealed_minutes": day.unsealed}
            for name, day in days.items()
            if day.unsealed
        ],
    }
    _show_run(document, as_json=as_json)
    if lacking:
        raise typer.Exit(FINDING)


def _days(ledger: Connection) -> list[Day]:
    return [
        Day(**{**line, "digest": int(line["digest"])}) for line in rows(ledger, "archive_state")
    ]


def _archive(
    settings: Settings, ledger: Connection, store: ArchiveStore, ready: dict[str, Day]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Files of the days that are complete, and the days that are not."""
    since_us = min(day.day_us for day in ready.values())

    def wanted(value: bytes) -> int | None:
        at_us = received_us(value)
        return at_us if day_text(at_us - at_us % DAY_US) in ready else None

    archived, came = [], set[str]()
    lacking = []
    pace = Pace(terminal.Progress(), SystemClock(), "accepted records")
    with (
        reading(settings, topics.ACCEPTED, "archive") as topic,
        tempfile.TemporaryDirectory(prefix="tailrace-archive-") as folder,
    ):
        for name, events in spooled_days(topic, since_us, wanted, pace.show):
            came.add(name)
            entry, problem = _file(ledger, store, Path(folder), (name, ready[name]), events)
            if problem is None:
                archived.append(_archived(entry))
            else:
                lacking.append(problem)
    pace.clear()
    lacking += [_lack(name, ready[name], 0) for name in sorted(set(ready) - came)]
    return archived, lacking


def _file(
    ledger: Connection, store: ArchiveStore, folder: Path, of: tuple[str, Day],
    events: Iterator[Row],
) -> tuple[FileEntry, dict[str, Any] | None]:  # fmt: skip
    name, day = of
    entry, waiting = write_day(folder, ARCHIVED, name, "parquet", events)
    whole = (day.events, day.events + day.corrections, f"{day.digest:032x}")
    if (entry.usage, entry.rows, entry.digest) != whole:
        return entry, _lack(name, day, entry.usage)
    store.put(waiting, entry.path)
    if store.digest_of(entry.path) != entry.sha256:
        return entry, {**_lack(name, day, entry.usage), "why": "it reads back as something else"}
    note = {
        "day": from_us(day.day_us).date(), "path": entry.path, "rows": entry.rows,
        "usage": entry.usage, "digest": day.digest, "bytes": entry.bytes, "sha256": entry.sha256,
    }  # fmt: skip
    row(ledger, "note_archived", note)
    return entry, None


def _lack(name: str, day: Day, events: int) -> dict[str, Any]:
    why = f"{topics.ACCEPTED} does not hold what the cells say"
    return {"day": name, "events": events, "counted": day.events, "why": why}


def _archived(entry: FileEntry) -> dict[str, Any]:
    return {
        "day": entry.day, "path": entry.path, "rows": entry.rows, "events": entry.usage,
        "bytes": entry.bytes, "sha256": entry.sha256,
    }  # fmt: skip


def _show_run(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        terminal.emit_json(document)
    for file in () if as_json else document["archived"]:
        terminal.data(f"archived {file['day']}: {file['events']} events in {file['path']}")
    for lack in document["incomplete"]:
        terminal.say(
            f"not archived {lack['day']}: {lack['events']} events of {lack['counted']}: "
            f"{lack['why']}"
        )
    for day in document["unproven"]:
        terminal.say(
            f"not archived {day['day']}: {day['unsealed_minutes']} minutes are not proven yet: "
            "`tailrace audit` seals them"
        )
    terminal.say(f"{len(document['archived'])} days archived in {document['out']}")


@app.command()
def check(out: Out, directory: Dir = None, as_json: Json = False) -> None:
    """Reads every archived file and compares its hash with the ledger's; exit 1 if one differs."""
    store = open_store(out)
    settings = resolve(directory).need("ledger_dsn")
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        days = [timed(line) for line in rows(ledger, "archived_days")]
    for day in days:
        found = store.digest_of(day["path"])
        day["state"] = "missing" if found is None else (
            "ok" if found == day["sha256"] else "changed"
        )  # fmt: skip
    if as_json:
        terminal.emit_json({"out": out, "days": days})
    else:
        heads = ("day", "events", "rows", "bytes", "state", "path")
        terminal.show_table(heads, [[day[head] for head in heads] for day in days])
    wrong = sum(day["state"] != "ok" for day in days)
    terminal.say(f"{len(days)} days, {wrong} missing or changed in {out}")
    if wrong:
        raise typer.Exit(FINDING)


APPS: Final = {"archive": app}
