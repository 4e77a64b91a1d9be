"""`tailrace pause` and `tailrace resume`: publishing stands still for all, a meter or a tenant."""

import shlex
from typing import Annotated, Any, NamedTuple

import typer

from streams.cli import terminal
from streams.cli.database import Connection, connected, ledger_rows, login_of
from streams.cli.errors import UsageProblemError
from streams.cli.options import Dir, Json, Reason, Yes, kept_reason
from streams.cli.stack import resolve
from streams.core.instant import HOUR_US, SECOND_US, wire_text
from streams.core.risk import waiting_text
from streams.core.settlement import PublishPolicy

# Not `new_app`: a group that is a command too takes its help from its callback.
pause_app = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
resume_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

All = Annotated[bool, typer.Option("--all", help="Everything this ledger publishes.")]
Meter = Annotated[str | None, typer.Option(metavar="M", help="One meter, by its name.")]
Tenant = Annotated[str | None, typer.Option(metavar="T", help="One tenant, by its customers.")]
Lane = Annotated[int | None, typer.Option(metavar="N", help="A lane that publishing stopped.")]


class Scope(NamedTuple):
    """What is paused."""

    scope: str
    subject: str

    def __str__(self) -> str:
        return "everything" if self.scope == "all" else f"{self.scope} {self.subject}"

    @property
    def option(self) -> str:
        """As it is typed."""
        return "--all" if self.scope == "all" else f"--{self.scope} {shlex.quote(self.subject)}"


class Answer(NamedTuple):
    """What the ledger says of a pause or of its end."""

    changed: bool
    receipt: int | None
    by_whom: str | None
    since_us: int | None
    because: str | None

    @property
    def told(self) -> str:
        """By whom, since when, why, receipt."""
        since = "-" if self.since_us is None else wire_text(self.since_us)
        return f"by {self.by_whom} at {since}: {self.because} (receipt {self.receipt})"


@pause_app.callback()
def pause(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    context: typer.Context,
    everything: All = False,
    meter: Meter = None,
    tenant: Tenant = None,
    reason: Reason = None,
    directory: Dir = None,
    yes: Yes = False,
) -> None:
    """Pauses publishing: no request is claimed any more; what is in flight finishes.

    Amounts wait and stay visible as pending. A request in doubt can be repeated for 23 hours only,
    and a billing deadline does not wait: the plan names both. A tenant is paused through its
    customers, a meter through its event names; whoever shares them waits too.
    """
    if context.invoked_subcommand is not None:
        return
    wanted = _scope("pause", everything, meter, tenant)
    why = kept_reason(reason, f"tailrace pause {wanted.option}")
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        if not _is_paused(ledger, wanted):
            for line in _plan(ledger, wanted):
                terminal.say(line)
            command = f"tailrace pause {wanted.option} --reason {shlex.quote(why)}"
            terminal.confirm(f"Publishing of {wanted} would stop.", yes=yes, command=command)
        answer = Answer(*ledger_rows(ledger, "pause", _order(ledger, wanted, why))[0])
    terminal.data(f"{'paused' if answer.changed else 'unchanged'}: {wanted} {answer.told}")


@pause_app.command("list")
def list_pauses(directory: Dir = None, as_json: Json = False) -> None:
    """Pauses in force with what waits for their end, and lanes that publishing stopped."""
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        document = read_pauses(ledger)
        stopped = [
            {"lane": lane, "customer": customer, "event_name": name, "reason": why}
            for lane, customer, name, why in ledger_rows(ledger, "lanes_stopped")
        ]
    if as_json:
        terminal.emit_json({"pauses": document, "lanes_stopped": stopped})
        return
    heads = ("paused", "since", "by", "lanes", "units waiting", "receipt", "reason")
    listed = [
        (
            _named(p), p["since"], p["by"], p["lanes"],
            waiting_text(p["units_waiting"], p["units_unmapped"]), p["receipt"], p["reason"],
        )
        for p in document
    ]  # fmt: skip
    terminal.show_table(heads, listed)
    for lane in stopped:
        terminal.data(
            f"lane {lane['lane']} ({lane['customer']}, {lane['event_name']}): {lane['reason']}; "
            f'`tailrace resume --lane {lane["lane"]} --reason "…" --yes`'
        )


@resume_app.command(no_args_is_help=True)
def resume(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    everything: All = False,
    meter: Meter = None,
    tenant: Tenant = None,
    lane: Lane = None,
    reason: Reason = None,
    directory: Dir = None,
    yes: Yes = False,
) -> None:
    """Ends exactly the pause that is named; others stay in force."""
    if lane is not None and not (everything or meter or tenant):
        why = kept_reason(reason, f"tailrace resume --lane {lane}")
        _resume_lane(resolve(directory).need("ledger_dsn").ledger_dsn, lane, why, yes=yes)
        return
    wanted = _scope("resume", everything, meter, tenant, lane=lane)
    why = kept_reason(reason, f"tailrace resume {wanted.option}")
    with connected(resolve(directory).need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        others = [p for p in read_pauses(ledger) if _named(p) != str(wanted)]
        if _is_paused(ledger, wanted):
            terminal.say(f"plan: publishing of {wanted} goes on at once")
            command = f"tailrace resume {wanted.option} --reason {shlex.quote(why)}"
            terminal.confirm("Requests would be sent again.", yes=yes, command=command)
        answers = ledger_rows(ledger, "resume", _order(ledger, wanted, why))
    if not answers:
        terminal.data(f"unchanged: {wanted} was never paused")
    else:
        answer = Answer(*answers[0])
        verb = "resumed" if answer.changed else "unchanged: resumed already,"
        terminal.data(f"{verb} {wanted} {answer.told}")
    for other in others:
        terminal.say(f"still paused: {_named(other)} ({other['reason']})")


def read_pauses(ledger: Connection) -> list[dict[str, Any]]:
    """Pauses in force, the oldest first, as `pause list` and `status` show them."""
    return [
        {
            "scope": scope,
            "subject": subject or None,
            "reason": reason,
            "by": by,
            "since": wire_text(since_us),
            "receipt": receipt,
            "lanes": lanes,
            "units_waiting": units,
            "units_unmapped": unmapped,
        }
        for scope, subject, reason, by, since_us, receipt, lanes, units, unmapped in ledger_rows(
            ledger, "pauses"
        )
    ]


def _named(pause: dict[str, Any]) -> str:
    return str(Scope(pause["scope"], pause["subject"] or ""))


def _is_paused(ledger: Connection, wanted: Scope) -> bool:
    return any(_named(p) == str(wanted) for p in read_pauses(ledger))


def _order(ledger: Connection, wanted: Scope, reason: str) -> dict[str, str]:
    return {
        "scope": wanted.scope,
        "subject": wanted.subject,
        "reason": reason,
        "actor": login_of(ledger),
    }


def _resume_lane(dsn: str, lane: int, reason: str, *, yes: bool) -> None:
    with connected(dsn, "the ledger") as ledger:
        stopped = {number: why for number, _, _, why in ledger_rows(ledger, "lanes_stopped")}
        if lane in stopped:
            terminal.say(f"plan: lane {lane} goes on; it was stopped because {stopped[lane]}")
            command = f"tailrace resume --lane {lane} --reason {shlex.quote(reason)}"
            terminal.confirm("What comes next in it would be sent.", yes=yes, command=command)
        changed = ledger_rows(ledger, "resume_lane", {"lane": lane, "reason": reason})[0][0]
    terminal.data(f"{'resumed' if changed else 'unchanged: not stopped,'} lane {lane}")


def _plan(ledger: Connection, wanted: Scope) -> list[str]:
    """What the pause holds back, and what does not wait for its end."""
    lanes, flying, units, doubts, first_us, deadline_us, others, now_us = ledger_rows(
        ledger, "pause_plan", {"scope": wanted.scope, "subject": wanted.subject}
    )[0]
    lines = [
        f"plan: pause {wanted}: {lanes} lanes with {units} units to send wait; "
        f"{flying} requests in flight finish"
    ]
    if wanted.scope == "tenant" and not _is_known(ledger, wanted.subject):
        lines.append(
            f"  nothing was ever recorded or mapped for {wanted.subject}: is it spelled so in "
            "`tailrace customers list`?"
        )
    if doubts:
        fence_us = first_us + PublishPolicy().ambiguous_us_max
        left_h = max(0.0, (fence_us - now_us) / HOUR_US)
        lines.append(
            f"  {doubts} requests are in doubt: the first can be repeated for {left_h:.1f} h, "
            "then only Stripe's sums can settle it"
        )
    if deadline_us is not None:
        left_s = (deadline_us - now_us) // SECOND_US
        lines.append(
            f"  the nearest billing deadline is {wire_text(deadline_us)} (in {left_s} s): what is "
            "not sent by then misses its invoice"
        )
    if others:
        lines.append(f"  tenants of the same customers wait too: {', '.join(others)}")
    return lines


def _is_known(ledger: Connection, tenant: str) -> bool:
    return bool(ledger_rows(ledger, "tenant_known", {"tenant": tenant})[0][0])


def _scope(
    command: str, everything: bool, meter: str | None, tenant: str | None, lane: int | None = None
) -> Scope:
    chosen = [
        *([Scope("all", "")] if everything else []),
        *([Scope("meter", meter)] if meter else []),
        *([Scope("tenant", tenant)] if tenant else []),
    ]
    if len(chosen) != 1 or lane is not None:
        raise UsageProblemError(
            f"{command}: one of --all, --meter and --tenant says what is meant",
            fix=f'`tailrace {command} --meter api_calls --reason "…" --yes`',
        )
    return chosen[0]


APPS = {"pause": pause_app, "resume": resume_app}
