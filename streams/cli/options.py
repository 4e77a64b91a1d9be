"""Options that commands share, with one meaning each."""

import re
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from streams.cli.errors import UsageProblemError
from streams.core.instant import duration_us, to_us

_MONTH: Final = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")


class Where(StrEnum):
    """Where a decided amount goes when its own invoice is closed."""

    OWN = "own"
    CARRY = "carry"


Dir = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="D",
        help="The sandbox meant: else TAILRACE_DIR, else .tailrace/, else settings alone.",
        show_default=False,
    ),
]

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]

Live = Annotated[
    bool, typer.Option("--live", help="A live key of Stripe's is meant: what is sent is billed.")
]

Yes = Annotated[bool, typer.Option("--yes", help="Do what the plan says without asking.")]

Reason = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Why; kept for ever.", show_default=False)
]

Into = Annotated[
    Where | None,
    typer.Option(
        help="Once the own invoice is closed: own (its window, where the meter's carry decides) or "
        "carry (the open period).",
        show_default=False,
    ),
]


def new_app(help_text: str) -> typer.Typer:
    """A command group as all of ours are: plain help, no completion of its own."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


def kept_reason(reason: str | None, command: str) -> str:
    """The reason of what is kept for ever, plan or not.

    Raises:
        UsageProblemError: it is missing.
    """
    if reason is None or not reason.strip():
        raise UsageProblemError(
            "--reason: say why; the ledger keeps it", fix=f'`{command} --reason "…" --yes`'
        )
    return reason


def instant_option(option: str, text: str | None) -> int | None:
    """Microseconds of an instant that need not be given.

    Raises:
        UsageProblemError: the text is none.
    """
    return None if text is None else read_instant(option, text)


def read_instant(option: str, text: str, example: str = "2026-12-01T00:00:00Z") -> int:
    """Microseconds of an instant with its time zone, such as `2026-12-01T00:00:00Z`.

    Raises:
        UsageProblemError: the text is none.
    """
    try:
        return to_us(datetime.fromisoformat(text))
    except ValueError as error:
        raise UsageProblemError(
            f"{option}: {text!r} is no instant with a time zone",
            fix=f"`{option} {example}`",
        ) from error


def duration_option(option: str, text: str | None, example: str = "1h") -> int | None:
    """Microseconds of a duration, such as `90s`, `24h`, `7d`.

    Raises:
        UsageProblemError: the text is none.
    """
    if text is None:
        return None
    try:
        return duration_us(text)
    except ValueError as error:
        raise UsageProblemError(f"{option}: {error}", fix=f"`{option} {example}`") from error


def month_range(option: str, text: str) -> tuple[int, int | None]:
    """Microseconds at which a month such as `2026-11` begins and ends, in UTC; the last has no end.

    Raises:
        UsageProblemError: the text is none.
    """
    parts = _MONTH.fullmatch(text)
    if parts is None or parts[1] == "0000":
        raise UsageProblemError(f"{option}: {text!r} is no month", fix=f"`{option} 2026-11`")
    year, number = int(parts[1]), int(parts[2])
    first = to_us(datetime(year, number, 1, tzinfo=UTC))
    after = (year + number // 12, number % 12 + 1)
    if after[0] > 9999:
        return first, None
    return first, to_us(datetime(*after, 1, tzinfo=UTC))
