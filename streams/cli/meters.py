"""`tailrace meters check|apply`: meters.toml → lines appended to the ledger's catalogue.

The ledger gets a meter first, the service's database after it. Workers need not be waited for: a
worker reads the catalogue again before it calls a metric unknown, and a change is announced longer
ahead than any reading is old.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import psycopg
import typer

from streams.cli import terminal
from streams.cli.cycles import read_payers
from streams.cli.database import Connection, connected, ledger_rows, login_of, row
from streams.cli.edges import show_edges
from streams.cli.errors import FINDING, ConfigurationError
from streams.cli.meters_notes import notes
from streams.cli.options import Dir, Json, Reason, Yes, kept_reason, new_app
from streams.cli.stack import Stack, resolve
from streams.core.billing import unpunctual
from streams.core.catalogue import EARLY_MAX_US, Catalogue, MeterVersion
from streams.core.instant import MINUTE_US, SECOND_US, wire_text
from streams.core.meters_file import MeterProblem, Meters, parse, plan

app = new_app("The meter catalogue: append-only, dated, applied from meters.toml.")

File = Annotated[Path, typer.Argument(metavar="[FILE]", help="The meters file.")]
DEFAULT_FILE = Path("meters.toml")


@app.command()
def check(
    file: File = DEFAULT_FILE,
    directory: Dir = None,
    edges: Annotated[
        bool,
        typer.Option(
            "--edges",
            help="Instead: every edge of time (boundaries, month ends, leap days, clock steps, "
            "billing periods) under these meters, with its verdict and window.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Names every problem in the file, and what applying it would change; exit 1 on problems.

    The ledger is asked too: the versions are added and taken back. Meters whose usage could miss
    the invoice of a mapped customer are problems: no worker starts by them.
    """
    meters = read_meters(file)
    if edges and not meters.problems:
        right = show_edges(as_first(meters), as_json=as_json)
    else:
        right = _show_check(meters, resolve(directory), as_json=as_json)
    if not right:
        raise typer.Exit(FINDING)


def _show_check(meters: Meters, stack: Stack, *, as_json: bool) -> bool:
    """Prints problems and plan; whether there are no problems."""
    problems, additions = list(meters.problems), list[MeterVersion]()
    in_force: Sequence[MeterVersion] = ()
    if not problems and stack.settings.ledger_dsn:
        with connected(stack.settings.ledger_dsn, "the ledger") as ledger:
            additions, problems = _plan(ledger, meters)
            problems += _rehearsed(ledger, additions)
            in_force = _in_force(ledger)
    elif not problems:
        terminal.say("not compared with a ledger: TAILRACE_LEDGER_DSN is not set")
    if as_json:
        terminal.emit_json(_document(additions, problems))
    else:
        for problem in problems:
            terminal.data(str(problem))
        for line in _lines(additions):
            terminal.data(f"would add {line}")
        if not problems:
            terminal.data(f"ok: {len(meters.wanted)} meters")
    if not problems:
        _tell(stack, meters, in_force)
    return not problems


def _tell(stack: Stack, meters: Meters, in_force: Sequence[MeterVersion]) -> None:
    for note in notes(stack, meters, in_force):
        terminal.say(f"note: {note}")


@app.command()
def apply(
    file: File = DEFAULT_FILE,
    directory: Dir = None,
    reason: Reason = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Appends what the file adds.

    New meters go in at once; a changed one needs --yes and --reason.
    """
    meters = read_meters(file)
    stack = resolve(directory)
    settings = stack.need("ledger_dsn")
    if meters.problems:
        raise refused(file, meters.problems)
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        additions, problems = _plan(ledger, meters)
        if problems:
            raise refused(file, problems)
        for line in _lines(additions):
            terminal.say(f"plan: add {line}")
        changed = [line for line in additions if line.version > 1]
        if changed:
            command = f"tailrace meters apply {shlex.quote(str(file))}"
            why = kept_reason(reason, command)
            question = f"{len(changed)} meters that are in force would change."
            full = f"{command} --reason {shlex.quote(why)}"
            terminal.confirm(question, yes=yes, command=full)
        if additions:
            _append(ledger, additions, reason)
        in_force = _in_force(ledger)
    pushed = _push(stack, in_force)
    _tell(stack, meters, in_force)
    if as_json:
        terminal.emit_json({**_document(additions, []), "pushed": pushed})
        return
    done = [f"added {line}" for line in _lines(additions)]
    done += [f"told the service's database of {name}" for name in pushed]
    for line in done or [f"unchanged: all {len(meters.wanted)} meters of {file} are in force"]:
        terminal.data(line)


def as_first(meters: Meters) -> list[MeterVersion]:
    """The meters of a file as if it were the first to be applied."""
    return [
        wanted._replace(effective_from_us=effective_us or wanted.effective_from_us)
        for wanted, effective_us in meters.wanted
    ]


def read_meters(file: Path) -> Meters:
    """What a file asks for, problems included.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{file}: cannot be read: {error}", fix="`tailrace meters check FILE`"
        ) from error
    return parse(text)


def refused(file: Path, problems: Sequence[MeterProblem]) -> ConfigurationError:
    """What to say of a file with problems."""
    listed = "".join(f"\n  {problem}" for problem in problems)
    return ConfigurationError(
        f"{file}: nothing was changed:{listed}",
        fix=f"correct it, then `tailrace meters check {file}`",
    )


def _history(ledger: Connection) -> tuple[list[MeterVersion], int]:
    history = [MeterVersion(*line) for line in ledger_rows(ledger, "meters")]
    return history, int(ledger_rows(ledger, "now_us")[0][0])


def _plan(ledger: Connection, meters: Meters) -> tuple[list[MeterVersion], list[MeterProblem]]:
    history, now_us = _history(ledger)
    notice_us = int(ledger_rows(ledger, "notice_us")[0][0])
    # A minute for whoever reads the plan: the ledger checks the notice again when it is written.
    additions, problems = plan(history, meters, now_us + MINUTE_US, notice_us)
    late = unpunctual([wanted for wanted, _ in meters.wanted], read_payers(ledger))
    problems += [
        MeterProblem(f"meters.{one.metric}.skew_max", f"{one.rule}; no worker starts by it")
        for one in late
    ]
    return additions if not problems else [], problems


def _rehearsed(ledger: Connection, additions: Sequence[MeterVersion]) -> list[MeterProblem]:
    """What the ledger itself would refuse, such as a date before usage that is dead already."""
    problems = []
    for line in additions:
        try:
            with ledger.transaction(force_rollback=True):
                _append(ledger, [line], None)
        except psycopg.errors.InsufficientPrivilege:
            terminal.say("not rehearsed: this login may read the catalogue and not add to it")
            return []
        except (psycopg.errors.InvalidParameterValue, psycopg.errors.IntegrityError) as error:
            rule = error.diag.message_primary or str(error)
            problems.append(MeterProblem(f"meters.{line.metric}", rule))
    return problems


def _append(ledger: Connection, additions: Sequence[MeterVersion], reason: str | None) -> None:
    written = msgspec.json.encode([line._asdict() for line in additions]).decode()
    who = {"actor": login_of(ledger), "reason": reason}
    ledger_rows(ledger, "append_meters", {"rows": written, "early_max_us": EARLY_MAX_US, **who})


def _in_force(ledger: Connection) -> list[MeterVersion]:
    """Of each metric the version that judges usage of this moment, or the first one to come."""
    history, now_us = _history(ledger)
    catalogue = Catalogue(tuple(history), now_us)
    found = []
    for metric, versions in sorted(catalogue.by_metric.items()):
        current = catalogue.at(metric, now_us)
        found.append(current if isinstance(current, MeterVersion) else versions[-1])
    return found


def _push(stack: Stack, meters: Sequence[MeterVersion]) -> list[str]:
    """Names of the metrics that the service's database did not know as they are."""
    if not stack.settings.source_dsn:
        terminal.say("the service's database was not told: TAILRACE_SOURCE_DSN is not set")
        return []
    with connected(stack.settings.source_dsn, "the service's database") as source:
        return [
            meter.metric
            for meter in meters
            if row(source, "push_metric", {"name": meter.metric, "scale": meter.scale})["changed"]
        ]


def _lines(additions: Sequence[MeterVersion]) -> list[str]:
    return [
        f"{line.metric} v{line.version}: {line.event_name}, {line.window_us // MINUTE_US} min "
        f"windows, by {line.publish}, scale {line.scale}, from {_from(line)}"
        for line in additions
    ]


def _from(line: MeterVersion) -> str:
    return "the beginning" if line.effective_from_us == 0 else wire_text(line.effective_from_us)


def _document(
    additions: Sequence[MeterVersion], problems: Sequence[MeterProblem]
) -> dict[str, Any]:
    return {
        "additions": [
            {
                "metric": line.metric,
                "version": line.version,
                "event_name": line.event_name,
                "window_s": line.window_us // SECOND_US,
                "publish": line.publish,
                "scale": line.scale,
                "effective_from": wire_text(line.effective_from_us),
            }
            for line in additions
        ],
        "problems": [{"path": problem.path, "rule": problem.rule} for problem in problems],
    }


APPS = {"meters": app}
