"""`tailrace topics grow`: more partitions in place, and the ledger told how they came to be.

Partitions first, then where the old ones ended, the ledger last: a worker reads nothing of a topic
that has other partitions than the ledger knows of. So whatever ends this command on its way, typing
it again goes on.
"""

import shlex
from collections.abc import Sequence
from typing import Annotated, Final

import psycopg
import typer

from streams import topic_growth, topics
from streams.cli import terminal
from streams.cli.database import Connection, connected, login_of, row, rows
from streams.cli.growth_plan import Growth, read_growth, refuse_producers
from streams.cli.options import Dir, Json, Reason, Yes, kept_reason
from streams.cli.stack import resolve
from streams.core.growth import grown_log_id
from streams.kafka_access import client_security
from streams.settings import Settings

_AGAIN: Final = (
    "the ledger was not told yet: type the same again, before any connector or worker is started"
)


def grow(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    partitions: Annotated[
        int,
        typer.Option(metavar="N", min=2, help="How many they are to have.", show_default=False),
    ],
    present: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="M",
            min=1,
            show_default=False,
            help="How many they had, where the ledger has lost that.",
        ),
    ] = None,
    reason: Reason = None,
    producers_stopped: Annotated[
        bool,
        typer.Option(
            "--producers-stopped",
            help="You stopped every connector, though Connect cannot be asked.",
        ),
    ] = False,
    directory: Dir = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Gives every topic more partitions, in place: a whole multiple of those that there are.

    Partitions that are there go on with their records and what they remember. Each new one takes
    over keys of one of them, and remembers what was counted there, up to the offset at which this
    was typed. Every service's connector has to be stopped meanwhile.

    Makes known what was altered past it, too, and tells a ledger again that was restored from
    before. Typed again it goes on where it was interrupted; done twice it changes nothing.
    """  # fmt: skip
    command = f"tailrace topics grow --partitions {partitions}"
    command += "" if present is None else f" --from {present}"
    why = kept_reason(reason, command)
    command += f" --reason {shlex.quote(why)}" + " --producers-stopped" * producers_stopped
    stack = resolve(directory)
    settings = stack.need("kafka_bootstrap", "ledger_dsn")
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        growth = read_growth(settings, ledger, partitions, present)
        if not growth.fewer and not growth.is_untold:
            _show(growth, [], None, as_json=as_json)
            return
        refuse_producers(stack, vouched=producers_stopped)
        for line in _plan(growth):
            terminal.say(line)
        terminal.confirm("This cannot be taken back.", yes=yes, command=command)
        done, boundaries = _carry_out(settings, ledger, growth, why)
    _show(growth, done, boundaries, as_json=as_json)


def _plan(growth: Growth) -> list[str]:
    lines = []
    if growth.fewer:
        counts = sorted({growth.counts[name] for name in growth.fewer})
        lines.append(
            f"plan: {', '.join(growth.fewer)}: from {' or '.join(map(str, counts))} to "
            f"{growth.target} partitions"
        )
    if growth.is_untold:
        new = growth.wanted - growth.present
        if growth.there >= growth.wanted:
            lines.append(
                f"plan: {topics.EVENTS} has {growth.there} partitions already; made known is that "
                f"it grew from {growth.present} to {growth.wanted}. If it did so in several steps, "
                "make each known by itself, the smallest count first"
            )
        if growth.noted != growth.present:
            lines.append(
                f"that {topics.EVENTS} had {growth.present} partitions is not noted in the ledger: "
                "make sure of it"
            )
        lines.append(
            f"partitions 0 to {growth.present - 1} go on as they are; each of the {new} new ones "
            "takes over keys of one of them, and remembers what was counted there"
        )
    lines.append(
        "no connector of any service may run before its database was told, in no Kafka Connect, "
        "and no worker reads before TAILRACE_PARTITIONS says the new count"
    )
    return lines


def _carry_out(
    settings: Settings, ledger: Connection, growth: Growth, why: str
) -> tuple[list[str], list[int] | None]:
    """What was done of it, and where the old partitions ended; None where that was known.

    Raises:
        TopicsError, psycopg.Error: it is done in part, and typing it again goes on.
    """
    bootstrap, security = settings.kafka_bootstrap, client_security(settings)
    if growth.noted is None:
        # First: workers that met the new count alone would note it as the one that it began with.
        rows(ledger, "note_partitions", {"root": growth.root, "present": growth.present})
    grown = topic_growth.grow(bootstrap, growth.target, security=security)
    if not growth.is_untold:
        return grown, None
    try:
        boundaries = topic_growth.boundaries(
            bootstrap, growth.present, growth.wanted, security=security
        )
        order = {
            "root": growth.root,
            "grown": grown_log_id(growth.root, growth.present, growth.wanted),
            "present": growth.present,
            "wanted": growth.wanted,
            "boundaries": boundaries,
            "reason": why,
            "actor": login_of(ledger),
        }
        fresh = row(ledger, "grow_log", order)["fresh"]
    except (topics.TopicsError, psycopg.Error):
        terminal.say(_AGAIN)
        raise
    noted = f"the ledger: {topics.EVENTS} from {growth.present} to {growth.wanted} partitions"
    return [*grown, noted if fresh else f"{noted}, as it knew already"], boundaries


def _next(growth: Growth) -> list[str]:
    if growth.wanted < growth.there:
        return [f"what came after: `tailrace topics grow --partitions {growth.there}`"]
    return [
        f"in each service's database: `tailrace source grow --partitions {growth.target}`",
        f"TAILRACE_PARTITIONS={growth.target} for every worker and command; restart them all",
        "`tailrace connector apply` for each service",
        "`tailrace doctor`, then `tailrace audit`, until it says lost 0",
    ]


def _show(
    growth: Growth, done: Sequence[str], boundaries: Sequence[int] | None, *, as_json: bool
) -> None:
    if as_json:
        terminal.emit_json(
            {
                "partitions": growth.target,
                "from": growth.present,
                "done": list(done),
                "boundaries": boundaries,
                "next": _next(growth) if done else [],
            }
        )
        return
    for line in done:
        terminal.data(f"grown: {line}")
    if done:
        terminal.say("\n".join(("next:", *(f"  {step}" for step in _next(growth)))))
        return
    unnoted = (
        "; the ledger has noted no count of it: if it had fewer once, say so with --from"
        if growth.noted is None
        else ""
    )
    terminal.data(f"nothing to grow: every topic has {growth.target} partitions{unnoted}")
