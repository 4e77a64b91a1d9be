"""`tailrace doctor`: every check of an installation, each trouble with a fix to paste."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from streams.cli import terminal
from streams.cli.checkup.check import Check, Result, made
from streams.cli.checkup.patient import Patient
from streams.cli.errors import FINDING, UNAVAILABLE, UsageProblemError
from streams.cli.options import Dir, Json
from streams.cli.stack import resolve

app = typer.Typer(rich_markup_mode=None, add_completion=False)

AREAS: Final = ("machine", "service", "broker", "connect", "ledger", "sink")
"""Modules of `streams.cli.checkup`, in the order of the journey."""

REACHED: Final = ("source_dsn", "kafka_bootstrap", "connect_url", "ledger_dsn")
"""Of a stack at least one address is known."""

Only = Annotated[
    list[str] | None, typer.Argument(metavar="[CHECK...]", help="Only these.", show_default=False)
]


@app.command()
def doctor(only: Only = None, directory: Dir = None, as_json: Json = False) -> None:
    """Looks at machine, databases, Kafka, Connect and Stripe; changes nothing.

    Each trouble says what, why, and a fix to paste. What cannot be looked at is named too. Exit 1
    on any trouble, 69 where a service does not answer.
    """
    stack = resolve(directory)
    checks = _chosen(only or [])
    patient = Patient(stack)
    if not (only or any(getattr(stack.settings, name) for name in REACHED)):
        stack.need(*REACHED)
    look_up = "tailrace sandbox status" if stack.is_sandbox else "tailrace config show"
    results: list[Result] = []
    progress = terminal.Progress()
    try:
        for check in checks:
            progress.show(f"{len(results)}/{len(checks)} {check.name}")
            results.append(made(check, patient, look_up))
    finally:
        progress.clear()
        patient.close()
    if as_json:
        terminal.emit_json(document(results))
    else:
        for line in lines(results):
            terminal.data(line)
    raise typer.Exit(exit_code(results))


def _chosen(only: list[str]) -> list[Check[Patient]]:
    every = [
        check for area in AREAS for check in import_module(f"streams.cli.checkup.{area}").CHECKS
    ]
    unknown = sorted(set(only) - {check.name for check in every})
    if unknown:
        raise UsageProblemError(
            f"CHECK: there is none of the name {', '.join(unknown)}",
            fix=f"one or more of {', '.join(check.name for check in every)}",
        )
    return [check for check in every if not only or check.name in only]


def exit_code(results: Iterable[Result]) -> int:
    """69 while something is away, else 1 for any trouble, else 0."""
    results = list(results)
    if any(result.away for result in results):
        return UNAVAILABLE
    return FINDING if any(result.state == "trouble" for result in results) else 0


def lines(results: list[Result]) -> Iterator[str]:
    """What people read: a line a check, troubles with their fixes below it."""
    width = max((len(result.name) for result in results), default=0)
    for result in results:
        name = result.name.ljust(width)
        if result.state != "trouble":
            yield f"{result.state.ljust(8)}  {name}  {result.said}"
        for trouble in result.troubles:
            yield f"TROUBLE   {name}  {trouble.what}"
            yield f"            why: {trouble.why}"
            yield f"            fix ({trouble.fix.where}): {trouble.fix.paste}"
    counts = {state: sum(r.state == state for r in results) for state in ("ok", "trouble")}
    left = len(results) - sum(counts.values())
    yield f"{counts['ok']} ok · {counts['trouble']} in trouble · {left} not made"


def document(results: list[Result]) -> dict[str, Any]:
    """The same for programs."""
    return {
        "ok": all(result.state == "ok" for result in results),
        "checks": [
            {
                "name": result.name,
                "state": result.state,
                "said": result.said,
                "troubles": [
                    {
                        "what": trouble.what,
                        "why": trouble.why,
                        "fix": {"where": trouble.fix.where, "paste": trouble.fix.paste},
                    }
                    for trouble in result.troubles
                ],
            }
            for result in results
        ],
    }


APPS = {"doctor": app}
