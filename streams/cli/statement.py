"""`tailrace statement`: a tenant's month, from what was recorded to what Stripe was told."""

from enum import StrEnum
from typing import Annotated, Final

import typer

from streams.cli import statement_page, statement_text, terminal
from streams.cli.errors import FINDING, UsageProblemError
from streams.cli.options import Dir, Json, month_range
from streams.cli.stack import resolve
from streams.cli.statement_document import document_of
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
    HTML = "html"


_WRITERS: Final = {
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
    as_json: Json = False,
) -> None:
    """What a tenant's service recorded in a month, and where every unit of it is.

    recorded + corrected + moved = billed + pending + held + review + rejected + dead + doubtful,
    in units of the meter, for each metric and window. `recorded` is what the service's own registry
    holds (TAILRACE_SOURCE_DSN); the events listed are proven to be those that the ledger counted,
    by their digest. Without the registry, `recorded` is the ledger's word, and windows that add up
    list no ids. `moved` is what was approved or carried into another window, or out of one.

    Exit 1 where it does not foot: it says by how much, in which window, and what to type.
    """
    if as_json and form is not Format.TEXT:
        raise UsageProblemError(
            f"--json and --format {form.value}: one of them", fix=f"`--format {form.value}`"
        )
    from_us, to_us = month_range("--month", month)
    settings = resolve(directory).need("ledger_dsn")
    wanted = Wanted(tenant, metric, from_us, LAST_US if to_us is None else to_us)
    progress = terminal.Progress()
    found = read_statement(settings, wanted, events=down_to is DownTo.EVENT, show=progress.show)
    progress.clear()
    document = document_of(found, month, down_to.value)
    if as_json:
        terminal.emit_json(document)
    else:
        for line in _WRITERS[form](document):
            terminal.data(line)
    for remark in statement_text.remarks(document):
        terminal.say(remark)
    if not document["foots"]:
        raise typer.Exit(FINDING)


APPS = {"statement": app}
