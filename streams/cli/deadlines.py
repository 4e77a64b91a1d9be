"""`tailrace deadlines`: what will miss its invoice, before it does, and what has missed one."""

from typing import Annotated, Any, NamedTuple

import typer

from streams.cli import terminal
from streams.cli.database import connected, ledger_rows
from streams.cli.document import instant_text
from streams.cli.errors import FINDING
from streams.cli.options import Dir, Json
from streams.cli.stack import resolve
from streams.core.instant import DAY_US, MINUTE_US, SECOND_US, wire_text
from streams.core.outlook import Outlook, outlook

app = typer.Typer(rich_markup_mode=None, add_completion=False)

LATE: frozenset[Outlook] = frozenset({"will miss", "missed"})
DECIDED_SINCE_US = 35 * DAY_US


class Amount(NamedTuple):
    """Unsettled units of one customer, meter and state with one deadline."""

    deadline_us: int
    customer: str
    event_name: str
    state: str
    amounts: int
    units: str
    moves_at_us: int | None
    waits: bool
    paused: bool


class Decided(NamedTuple):
    """Units that missed their invoice and are settled otherwise."""

    deadline_us: int
    customer: str
    event_name: str
    state: str
    amounts: int
    units: str


Judged = tuple[Amount, Outlook]


@app.command()
def deadlines(
    directory: Dir = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is on time, and not only a line about it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Unsettled amounts by the deadline of their invoice; exit 1 when one will miss it or has.

    A deadline is the end of the customer's billing period with its grace, less 15 minutes. It is
    known for customers that were mapped with an anchor; `tailrace customers list` shows which, and
    the windows that two billing periods share.
    """
    settings = resolve(directory).need("ledger_dsn")
    with connected(settings.ledger_dsn, "the ledger") as ledger:
        now_us = int(ledger_rows(ledger, "now_us")[0][0])
        halted = bool(ledger_rows(ledger, "halted")[0][0])
        amounts = [Amount(*line) for line in ledger_rows(ledger, "deadlines")]
        since = {"since_us": now_us - DECIDED_SINCE_US}
        decided = [Decided(*line) for line in ledger_rows(ledger, "missed", since)]
    judged = [(amount, _judge(amount, now_us, halted)) for amount in amounts]
    shown = [line for line in judged if everything or line[1] != "on time"]
    late = any(verdict in LATE for _, verdict in judged)
    if as_json:
        terminal.emit_json(
            {
                "at": wire_text(now_us),
                "halted": halted,
                "on_time": sum(
                    amount.amounts for amount, verdict in judged if verdict == "on time"
                ),
                "unsettled": [_document(line, now_us) for line in shown],
                "decided": [_decided_document(line) for line in decided],
            }
        )
    else:
        _show(judged, shown, decided, now_us)
    if late:
        raise typer.Exit(FINDING)


def _judge(amount: Amount, now_us: int, halted: bool) -> Outlook:
    return outlook(
        amount.state,
        None if amount.waits else amount.moves_at_us,
        amount.deadline_us,
        now_us,
        held=halted or amount.paused,
    )


def _show(judged: list[Judged], shown: list[Judged], decided: list[Decided], now_us: int) -> None:
    heads = ("outlook", "deadline", "left", "customer", "meter", "state", "amounts", "units")
    listed: list[tuple[object, ...]] = [
        (
            verdict,
            wire_text(amount.deadline_us),
            _left(amount.deadline_us - now_us),
            amount.customer,
            amount.event_name,
            f"{amount.state}, paused" if amount.paused else amount.state,
            amount.amounts,
            amount.units,
        )
        for amount, verdict in shown
    ]
    listed += [
        (line.state, wire_text(line.deadline_us), "", *line[1:3], "settled", *line[4:])
        for line in decided
    ]
    if listed:
        terminal.show_table(heads, listed)
    on_time = [amount for amount, verdict in judged if verdict == "on time"]
    counts = sum(amount.amounts for amount in on_time)
    next_text = f", the next at {wire_text(on_time[0].deadline_us)}" if on_time else ""
    terminal.data(f"on time: {counts} amounts{next_text}")
    states = {(verdict, amount.state) for amount, verdict in judged}
    if ("missed", "entry") in states:
        terminal.say("next: `tailrace carry list`")
    if any(verdict in LATE and state == "dead" for verdict, state in states):
        terminal.say("next: `tailrace dead list`")
    if any(verdict in LATE and state == "review" for verdict, state in states):
        terminal.say("next: `tailrace review list`")


def _left(left_us: int) -> str:
    """`3 d 4 h`, `25 min`, `-2 h 10 min`: the two largest units."""
    sign = "-" if left_us < 0 else ""
    minutes = abs(left_us) // MINUTE_US
    parts = ((minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "min"))
    named = [f"{number} {unit}" for number, unit in parts if number]
    return sign + (" ".join(named[:2]) or "0 min")


def _document(line: Judged, now_us: int) -> dict[str, Any]:
    amount, verdict = line
    return {
        "outlook": verdict,
        "deadline": wire_text(amount.deadline_us),
        "left_s": (amount.deadline_us - now_us) // SECOND_US,
        "customer": amount.customer,
        "event_name": amount.event_name,
        "state": amount.state,
        "paused": amount.paused,
        "amounts": amount.amounts,
        "units": amount.units,
        "moves_at": instant_text(amount.moves_at_us),
    }


def _decided_document(line: Decided) -> dict[str, Any]:
    return {
        "deadline": wire_text(line.deadline_us),
        "customer": line.customer,
        "event_name": line.event_name,
        "state": line.state,
        "amounts": line.amounts,
        "units": line.units,
    }


APPS = {"deadlines": app}
