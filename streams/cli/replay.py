"""`tailrace replay`: the events topic read again, against what the ledger was told of it.

Nothing is published, committed or written but a state of its own, which `--state` keeps to go on
from.
"""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from streams.adapters.clock import SystemClock
from streams.cli import replay_show, terminal
from streams.cli.errors import FINDING
from streams.cli.meters import as_first, read_meters, refused
from streams.cli.options import Dir, Json, instant_option
from streams.cli.progress import Pace
from streams.cli.replay_parts import Wanted, parse_offsets, replay_all
from streams.cli.stack import resolve
from streams.core.catalogue import Catalogue
from streams.core.instant import LAST_US

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def replay(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    directory: Dir = None,
    offsets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="P[:FROM-TO]", help="Partition and offsets; may be repeated.",
            show_default="all",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="INSTANT", help="Records that the log took since then.",
                     show_default=False),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="INSTANT", help="And before this.", show_default=False),
    ] = None,
    tenant: Annotated[
        list[str] | None,
        typer.Option(help="Only these tenants' records; may be repeated.", show_default="all"),
    ] = None,
    meters: Annotated[
        Path | None,
        typer.Option(help="Other rules, beside the original ones: what if?", show_default=False),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Kept, so that the same command goes on where it was.",
                     show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Decides records of the events topic again and compares: 0 differences are expected.

    Runs the very rules of the workers, under the meter catalogue as it stood when they judged
    (found by its hash), and compares verdicts, levels and minutes with what the ledger was told.
    It never publishes, commits an offset or writes to the ledger. Of a part of the log, windows and
    minutes that begin in it are compared as far as they go. With --meters it says for each meter
    what other rules would have accepted, sent to review and refused. Exit 1 on a difference.
    """
    wanted = Wanted(
        offsets=parse_offsets(offsets or []),
        from_us=instant_option("--from", from_),
        to_us=instant_option("--to", to),
        tenants=tuple(sorted(set(tenant))) if tenant else None,
        other=None if meters is None else _rules(meters),
    )
    settings = resolve(directory).need("ledger_dsn", "kafka_bootstrap")
    clock = SystemClock()
    pace = Pace(terminal.Progress(), clock, "records")
    began_s = clock.elapsed_s()
    replayed = replay_all(settings, wanted, state, pace)
    pace.clear()
    document: dict[str, Any] = replay_show.document_of(replayed)
    if as_json:
        terminal.emit_json(document)
    else:
        for line in replay_show.lines(document):
            terminal.data(line)
    for remark in replay_show.remarks(document, clock.elapsed_s() - began_s):
        terminal.say(remark)
    if document["differing"]:
        raise typer.Exit(FINDING)


def _rules(path: Path) -> Catalogue:
    """Other rules, in force from the beginning unless the file dates them."""
    meters = read_meters(path)
    if meters.problems:
        raise refused(path, meters.problems)
    return Catalogue(tuple(as_first(meters)), LAST_US)


APPS: Final = {"replay": app}
