"""`tailrace export`: files for analysts, one a day, whole or absent, the same when repeated."""

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer

from streams import topics
from streams.adapters.clock import SystemClock
from streams.cli import terminal
from streams.cli.database import connected, ledger_rows, rows, snapshot
from streams.cli.errors import FINDING, ConfigurationError, TryAgainError, UsageProblemError
from streams.cli.export_columns import DATA_SETS, Name, Row
from streams.cli.export_files import (
    FileEntry,
    Manifest,
    arrow,
    put_in_place,
    read_manifest,
    write_day,
    write_manifest,
)
from streams.cli.export_read import (
    Counted,
    Days,
    accepted_days,
    ledger_days,
    read_counted,
    without_erased,
)
from streams.cli.options import Dir, Json
from streams.cli.progress import Pace
from streams.cli.stack import resolve
from streams.cli.topic_read import reading
from streams.core.instant import DAY_US, FIRST_US, LAST_US, to_us
from streams.settings import Settings

app = typer.Typer(rich_markup_mode=None, add_completion=False)
LOCK: Final = ".lock"


class Format(StrEnum):
    """What the files are."""

    CSV = "csv"
    PARQUET = "parquet"


class Done(NamedTuple):
    """One file, and what became of it."""

    entry: FileEntry
    status: str


@app.command()
def export(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    out: Annotated[Path, typer.Option(help="The folder.", metavar="DIR", show_default=False)],
    directory: Dir = None,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="YYYY-MM-DD", help="First day.", show_default="all"),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option("--to", metavar="YYYY-MM-DD", help="Last day.", show_default="all"),
    ] = None,
    only: Annotated[
        list[Name] | None, typer.Option(help="Data sets; may be repeated.", show_default="all")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="What the files are.")] = Format.CSV,
    as_json: Json = False,
) -> None:
    """Accepted events, levels, entries, meter events and settlements, a file a day.

    A day is that of the window's beginning, in UTC: DIR/levels/day=2026-11-29/levels.parquet. Files
    are put in place whole; what is the same already is left alone, so it may be repeated at any
    time, and after any interruption. DIR/manifest.json lists every file with rows, sums and
    SHA-256. Accepted events are read from Kafka, each once, and are compared with what the ledger
    counted by number and digest; exit 1 where some are not there any more. Those of a tenant that
    was erased come without attributes. Parquet needs `tailrace[parquet]`.
    """
    wanted = [name for name in Name if not only or name in only]
    days = _days(first, last)
    needed = ("ledger_dsn", "kafka_bootstrap") if Name.ACCEPTED in wanted else ("ledger_dsn",)
    settings = resolve(directory).need(*needed)
    if form is Format.PARQUET:
        arrow()
    with _folder(out):
        done, counted = _write(settings, out, wanted, days, form)
        document = _document(out, form, done, counted if Name.ACCEPTED in wanted else {})
    _show(document, as_json=as_json)
    if document["incomplete"]:
        raise typer.Exit(FINDING)


def _days(first: str | None, last: str | None) -> Days:
    days = Days(
        FIRST_US if first is None else _day("--from", first),
        LAST_US if last is None else _day("--to", last) + DAY_US,
    )
    if days.from_us >= days.to_us:
        raise UsageProblemError(
            "--to: lies before --from", fix="`--from 2026-11-01 --to 2026-11-30`"
        )
    return days


def _day(option: str, text: str) -> int:
    try:
        return to_us(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC))
    except ValueError as error:
        raise UsageProblemError(
            f"{option}: {text!r} is no day", fix=f"`{option} 2026-11-29`"
        ) from error


@contextmanager
def _folder(out: Path) -> Iterator[None]:
    """The folder, for one export at a time."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / LOCK).open("w")
    except OSError as error:
        raise UsageProblemError(
            f"--out: {out}: {error.strerror}", fix="name a folder that can be written: `--out DIR`"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise TryAgainError(
                f"{out}: another export writes there", fix="repeat it when that one is done"
            ) from error
        yield


def _write(
    settings: Settings, out: Path, wanted: list[Name], days: Days, form: Format
) -> tuple[list[Done], dict[str, Counted]]:
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        # Without the adoptions behind the dot: the ledger is the same.
        ledger_id = str(ledger_rows(ledger, "ledger_id")[0][0]).partition(".")[0]
        counted = read_counted(ledger, days)
        # In the order of their receipts, so the last of a tenant counts.
        erasures = rows(ledger, "erasures", {"tenant": None})
        erased = {line["tenant_id"]: line["erased_us"] for line in erasures}
        before = _before(out, ledger_id)
        files = _Files(out, form, before)
        if Name.ACCEPTED in wanted:
            pace = Pace(terminal.Progress(), SystemClock(), "accepted records")
            with reading(settings, topics.ACCEPTED, "export") as topic:
                accepted = accepted_days(topic, days, pace.show)
                files.write(Name.ACCEPTED, without_erased(accepted, erased))
            pace.clear()
        with snapshot(ledger):
            for name in wanted:
                if name is not Name.ACCEPTED:
                    files.write(name, ledger_days(ledger, name, days))
    entries = sorted(files.entries.values(), key=lambda entry: entry.path)
    write_manifest(out, Manifest(1, ledger_id, entries))
    return files.done, counted


def _before(out: Path, ledger_id: str) -> dict[str, FileEntry]:
    manifest = read_manifest(out)
    if manifest is None:
        return {}
    if manifest.ledger_id != ledger_id:
        raise ConfigurationError(
            f"{out}: holds the export of another ledger, {manifest.ledger_id}",
            fix="export into an empty folder: `--out DIR`",
        )
    return {entry.path: entry for entry in manifest.files}


class _Files:
    """Writes day after day; the manifest's entries, and what became of each file."""

    def __init__(self, out: Path, form: Format, before: dict[str, FileEntry]) -> None:
        self._out, self._form = out, form.value
        self.entries = dict(before)
        self.done: list[Done] = []

    def write(self, name: Name, days: Iterable[tuple[str, Iterator[Row]]]) -> None:
        for day, lines in days:
            entry, waiting = write_day(self._out, DATA_SETS[name], day, self._form, lines)
            # Only a topic lets go of rows; the ledger's can be fewer after a restore, and are true.
            before = self.entries.get(entry.path) if name is Name.ACCEPTED else None
            status = put_in_place(self._out, entry, waiting, before=before)
            kept = before if status == "kept" and before is not None else entry
            self.entries[entry.path] = kept
            self.done.append(Done(kept, status))


def _document(
    out: Path, form: Format, done: list[Done], counted: dict[str, Counted]
) -> dict[str, Any]:
    return {
        "out": str(out),
        "format": form.value,
        "files": [{**msgspec.to_builtins(each.entry), "status": each.status} for each in done],
        "incomplete": _incomplete(done, counted),
    }


def _incomplete(done: list[Done], counted: dict[str, Counted]) -> list[dict[str, Any]]:
    """Days of which the ledger counted more, or other, usage than the accepted events.

    More events than counted are none: the ledger is told a moment later.
    """
    accepted = {each.entry.day: each.entry for each in done if each.entry.data_set == "accepted"}
    found = []
    for day, told in counted.items():
        entry = accepted.get(day)
        events = 0 if entry is None else entry.usage
        same = entry is not None and entry.digest == f"{told.digest:032x}"
        if events < told.events or (events == told.events and not same):
            found.append({"day": day, "events": events, "counted": told.events})
    return found


def _show(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        terminal.emit_json(document)
    else:
        heads = ("data set", "day", "rows", "units", "status")
        terminal.show_table(
            heads,
            [
                (file["data_set"], file["day"], file["rows"], file["units"], file["status"])
                for file in document["files"]
            ],
        )
    for lack in document["incomplete"]:
        terminal.say(
            f"accepted {lack['day']}: {lack['events']} events of {lack['counted']} that the ledger "
            f"counted; {topics.ACCEPTED} does not hold the others"
        )
    new = sum(file["status"] in {"written", "replaced"} for file in document["files"])
    left = len(document["files"]) - new
    terminal.say(f"{new} files written, {left} unchanged in {document['out']}")


APPS = {"export": app}
