"""Approve and reject: items → a plan, then receipts.

The plan is the act itself in a transaction that is rolled back, so it cannot promise what the act
would refuse. The act goes item by item, each in its own transaction: whatever ends a command in the
middle, what was decided is decided, and the same command again does the rest.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import typer

from streams.cli import terminal
from streams.cli.boundary import explain
from streams.cli.database import Connection, connected, decision_rows
from streams.cli.document import instant_text
from streams.cli.errors import FINDING, FINE, UsageProblemError

Row = dict[str, Any]
REFUSALS = (
    psycopg.errors.InvalidParameterValue,
    psycopg.errors.ObjectNotInPrerequisiteState,
)
"""How the ledger says that it will not."""
AGREE, AGREED = "agree to", "agreed to"
"""What approving a large amount is while another login must approve it as well."""


@dataclass(frozen=True, slots=True)
class Act:
    """What is to become of items.

    `done` is the state they get; `query` names the statement, `values` are its parameters beside
    item and reason; `effect` says in words what it came to.
    """

    verb: str
    done: str
    query: str
    values: dict[str, Any]
    effect: Callable[[Connection, Row, Row], str]
    command: str


def need_reason(reason: str | None, *, yes: bool) -> str:
    """The reason; a plan alone needs none.

    Raises:
        UsageProblemError: it is missing where something would change.
    """
    if reason is not None and reason.strip():
        return reason
    if yes:
        raise UsageProblemError(
            "--reason: a decision needs one; it is kept for ever",
            fix='add `--reason "what you know that the rule does not"`',
        )
    return "(a plan)"


@dataclass(frozen=True, slots=True)
class Plan:
    """What an act would come to, found by rehearsing it."""

    ahead: tuple[Row, ...]
    """The items that it would change."""
    would: tuple[str, ...]
    unchanged: tuple[str, ...]
    """What was decided so before."""
    refused: tuple[str, ...]
    code: int
    """With which a command ends that is refused."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one item; `done` is false if another person or item was faster."""

    done: bool
    text: str


def decide(dsn: str, items: Sequence[int], act: Act, reason: str | None, *, yes: bool) -> None:
    """Shows the plan; with `yes` does it. What was decided so before is said and left.

    Raises:
        UsageProblemError: an item does not exist, or the reason is missing.
        typer.Exit: an item is refused; then nothing was changed.
        psycopg.Error: the ledger went away.
    """
    why = need_reason(reason, yes=yes)
    with connected(dsn, "the ledger") as ledger:
        plan = plan_of(ledger, items, act, why)
        for text in plan.unchanged:
            terminal.data(f"unchanged: {text}")
        for text in plan.refused:
            terminal.say(text)
        if plan.refused:
            terminal.say("nothing was changed")
            raise typer.Exit(plan.code)
        if not yes:
            for text in plan.would:
                terminal.data(f"would {text}")
            if plan.would:
                terminal.say(f"nothing was changed; `{act.command}` does it")
            return
        receipts = [_tell(receipt) for receipt in carry_out(ledger, plan, act, why)]
        if not all(receipt.done for receipt in receipts):
            raise typer.Exit(FINDING)


def _tell(receipt: Receipt) -> Receipt:
    if receipt.done:
        terminal.data(receipt.text)
    else:
        terminal.say(receipt.text)
    return receipt


def plan_of(ledger: Connection, items: Sequence[int], act: Act, why: str) -> Plan:
    """Rehearses an act; changes nothing.

    Raises:
        UsageProblemError: an item does not exist.
        psycopg.Error: the ledger went away.
    """
    known = _known(ledger, items)
    unchanged = tuple(decided_text(item) for item in known if item["state"] == act.done)
    ahead = tuple(item for item in known if item["state"] != act.done)
    would, refused, codes = _rehearse(ledger, ahead, act, why)
    # A finding speaks of the item as it is; anything else of how it was asked.
    code = FINDING if FINDING in codes else max(codes, default=FINE)
    return Plan(ahead, tuple(would), unchanged, tuple(refused), code)


def carry_out(ledger: Connection, plan: Plan, act: Act, why: str) -> Iterator[Receipt]:
    """Does what was planned, one transaction an item; each receipt as soon as it is done.

    Raises:
        psycopg.Error: the ledger went away; what has its receipt is done.
    """
    for item in plan.ahead:
        yield _done(ledger, item, act, why)


def again(words: Iterable[object], reason: str | None) -> str:
    """The command that does what a plan showed, to be pasted into a shell."""
    why = shlex.quote(reason) if reason else "…"
    return " ".join(map(str, [*words, "--reason", why, "--yes"]))


def decided_text(item: Row) -> str:
    """Who decided an item, when and why."""
    at = instant_text(item["decided_us"])
    return f"{item['parked_id']} was {item['state']} by {item['decided_by']} at {at}: {item['why']}"


def refused_text(item: int, error: psycopg.Error) -> str:
    """A refusal of the ledger's, with what to do."""
    shown = explain(error)
    what = shown.what.removeprefix("parked_id: ").removeprefix(f"{item} ")
    return f"refused {item}: {what}" + (f". {shown.fix}" if shown.fix else "")


def _known(ledger: Connection, items: Sequence[int]) -> list[Row]:
    known = decision_rows(ledger, "parked_states", {"items": list(items)})
    missing = sorted(set(items) - {item["parked_id"] for item in known})
    if missing:
        raise UsageProblemError(
            f"ITEM: {', '.join(map(str, missing))} not in this ledger; nothing was changed",
            fix="see the numbers with `tailrace review list` and `tailrace dead list`",
        )
    return known


def _rehearse(
    ledger: Connection, items: Sequence[Row], act: Act, why: str
) -> tuple[list[str], list[str], set[int]]:
    planned, refused, codes = list[str](), list[str](), set[int]()
    for item in items:
        try:
            with ledger.transaction(force_rollback=True):
                result = decision_rows(ledger, act.query, _values(item, act, why))[0]
                verb = AGREE if _agrees(result) else act.verb
                planned.append(f"{verb} {act.effect(ledger, item, result)}")
        except REFUSALS as error:
            codes.add(explain(error).exit_code)
            decided = f" ({decided_text(item)})" if item["decided_by"] else ""
            refused.append(refused_text(item["parked_id"], error) + decided)
    return planned, refused, codes


def _agrees(result: Row) -> bool:
    """Whether the ledger only noted the first of two approvals: there is no entry."""
    return "entry_id" in result and result["entry_id"] is None


def _done(ledger: Connection, item: Row, act: Act, why: str) -> Receipt:
    try:
        result = decision_rows(ledger, act.query, _values(item, act, why))[0]
    except REFUSALS as error:
        [now] = _known(ledger, [item["parked_id"]])
        decided = f" ({decided_text(now)})" if now["decided_by"] else ""
        return Receipt(False, refused_text(item["parked_id"], error) + decided)
    text = act.effect(ledger, item, result)
    return Receipt(True, f"{AGREED if _agrees(result) else act.done} {text}")


def _values(item: Row, act: Act, why: str) -> dict[str, Any]:
    return {"item": item["parked_id"], "reason": why, **act.values}
