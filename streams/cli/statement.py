"""`tailrace statement`: a tenant's month, from what was recorded to what Stripe was told."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from streams.cli import statement_page, statement_text, terminal
from streams.cli.errors import FINDING, UsageProblemError
from streams.cli.export_files import arrow
from streams.cli.options import Dir, Json, month_range
from streams.cli.stack import resolve
from streams.cli.statement_document import document_of
from streams.cli.statement_file import put_lines, put_parquet
from streams.cli.statement_read import Wanted, read_statement
from streams.core.instant import LAST_US

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class DownTo(StrEnum):
    """How fine a statement is."""

    METRIC = "metric"
    WINDOW = "window"
    EVENT = "event"


class Format(StrEnum):
    """What a statement is written as."""

    TEXT = "text"
    CSV = "csv"
    PARQUET = "parquet"
    HTML = "html"


_WRITERS: Final[dict[Format, Callable[[Any], Iterator[str]]]] = {
    Format.TEXT: statement_text.text_lines,
    Format.CSV: statement_text.csv_lines,
    Format.HTML: statement_page.html_lines,
}


@app.command()
def statement(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    tenant: Annotated[str, typer.Option(help="Whose.", show_default=False)],
    month: Annotated[
        str,
        typer.Option(
            metavar="YYYY-MM", help="Windows that begin in it, in UTC.", show_default=False
        ),
    ],
    directory: Dir = None,
    metric: Annotated[
        str | None, typer.Option(help="Only this meter's.", show_default=False)
    ] = None,
    down_to: Annotated[
        DownTo, typer.Option("--down-to", help="How fine: event lists every id.")
    ] = DownTo.WINDOW,
    form: Annotated[Format, typer.Option("--format", help="What it is written as.")] = Format.TEXT,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where; else it is printed.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """What a tenant's service recorded in a month, and where every unit of it is.

    recorded + corrected + moved = billed + pending + held + review + rejected + dead + doubtful,
    in units of the meter, for each metric and window. `recorded` is what the service's own registry
    holds (TAILRACE_SOURCE_DSN); the events listed are proven to be those that the ledger counted,
    by their digest. Without the registry, `recorded` is the ledger's word, and windows that add up
    list no ids. `moved` is what was approved or carried into another window, or out of one.

    With --out the file is put in place whole, and left alone where it says the same already.
    Parquet has units as exact decimals; it needs --out, and `tailrace[parquet]`.

    Exit 1 where it does not foot: it says by how much, in which window, and what to type.
    """
    _check_form(form, out, as_json=as_json)
    from_us, to_us = month_range("--month", month)
    settings = resolve(directory).need("ledger_dsn")
    wanted = Wanted(tenant, metric, from_us, LAST_US if to_us is None else to_us)
    progress = terminal.Progress()
    found = read_statement(settings, wanted, events=down_to is DownTo.EVENT, show=progress.show)
    progress.clear()
    document = document_of(found, month, down_to.value)
    if as_json:
        terminal.emit_json(document)
    elif out is not None:
        terminal.data(f"{_put(out, form, document)} {out}")
    else:
        for line in _WRITERS[form](document):
            terminal.data(line)
    for remark in statement_text.remarks(document):
        terminal.say(remark)
    if not document["foots"]:
        raise typer.Exit(FINDING)


def _check_form(form: Format, out: Path | None, *, as_json: bool) -> None:
    if as_json and (form is not Format.TEXT or out is not None):
        also = "--out" if form is Format.TEXT else f"--format {form.value}"
        raise UsageProblemError(f"--json and {also}: one of them", fix=f"`{also}`, or `--json`")
    if form is Format.PARQUET:
        arrow()
        if out is None:
            raise UsageProblemError(
                "--format parquet: is no text to print", fix="`--out statement.parquet`"
            )


def _put(out: Path, form: Format, document: dict[str, Any]) -> str:
    if form is Format.PARQUET:
        return put_parquet(out, document)
    return put_lines(out, _WRITERS[form](document))


APPS = {"statement": app}
