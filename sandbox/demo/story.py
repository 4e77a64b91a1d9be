"""`tailrace demo`: starts the real stack, tells the story, proves it, stops.

Exit 0 only if nothing was lost and nothing counted twice.
"""

import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from confluent_kafka import Producer

from sandbox.demo.proof import accepted_events, lost_and_double, pending, read_balance
from sandbox.demo.screen import Screen
from sandbox.demo.stack import DemoError, DemoStack, sandbox, wait_for
from sandbox.demo.tenants import (
    CUSTOMERS,
    Expected,
    create_orders,
    record,
    special_uses,
    uses,
)
from sandbox.faults import explained
from streams.cli.errors import FINDING
from streams.cli.fence import fenced
from streams.settings import Settings

FIRST, SECOND = 240, 240
SEED = 20_261_129
LEASE_S = Settings().publish_lease_s
"""For so long a worker that dies with lanes in hand keeps them from others."""

app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)


def tell(stack: DemoStack, screen: Screen) -> None:
    """The story, on a stack that is up."""
    expected = Expected()
    now = datetime.fromtimestamp(time.time(), UTC)  # noqa: TID251 - the story happens now
    _map_customers(stack, screen)
    screen.chapter("Three tenants place orders; each order records its usage in its transaction")
    _first_phase(stack, screen, expected, now)
    screen.chapter("Stripe goes down, and the worker is killed in the middle")
    _second_phase(stack, screen, expected, now)
    screen.chapter("The proof")
    _prove(stack, screen, expected)


def _map_customers(stack: DemoStack, screen: Screen) -> None:
    for tenant, customer in CUSTOMERS.items():
        done = stack.tailrace("customers", "map", tenant, customer)
        if done.returncode:
            raise DemoError(f"tailrace customers map {tenant} {customer}: {done.stderr.strip()}")
    screen.line(f"mapped {', '.join(f'{t} → {c}' for t, c in CUSTOMERS.items())}")


def _first_phase(stack: DemoStack, screen: Screen, expected: Expected, now: datetime) -> None:
    facts = stack.facts()
    with psycopg.connect(facts["postgres_dsn"], autocommit=True) as owner:
        create_orders(owner)
    with psycopg.connect(facts["writer_dsn"], autocommit=True) as service:
        for use in (*uses(SEED, "first", FIRST, now), *special_uses(now)):
            record(service, use)
            expected.note(use)
    screen.line(
        f"{expected.recorded} rows recorded: {expected.duplicates} recorded twice, "
        f"{expected.rolled_back} rolled back, 1 identity with other content, 1 of them 30 h late"
    )
    producer = Producer({"bootstrap.servers": facts["kafka_bootstrap"]})
    producer.produce("usage.events", b'{"v": 1, "quantity": "three"', b"acme")
    producer.flush(10)
    screen.line("1 malformed record put straight onto the topic by some other tool")
    wait_for(
        "the first usage at Stripe",
        40,
        lambda: accepted_events(stack) >= expected.billed and pending(stack) == 0,
    )
    screen.line(f"{expected.billed} events billed at Stripe, pending 0")


def _second_phase(stack: DemoStack, screen: Screen, expected: Expected, now: datetime) -> None:
    stack.stand_in.arm(kind="outage")
    screen.line("Stripe is down: connections break, or 503")
    written = uses(SEED + 1, "second", SECOND, now)
    with psycopg.connect(stack.facts()["writer_dsn"], autocommit=True) as service:
        for number, use in enumerate(written):
            record(service, use)
            expected.note(use)
            if number == len(written) // 2:
                pid = stack.kill_worker()
                screen.line(f"worker {pid} killed with SIGKILL after {number} more orders")
    screen.line(f"{len(written)} more orders; the services noticed nothing")
    wait_for("usage that waits for Stripe", 30, lambda: pending(stack) > 0)
    wait_for("a new worker", 30, lambda: accepted_events(stack) >= expected.billed)
    waiting = pending(stack)
    screen.check(f"{waiting} units seen pending while Stripe is down", holds=waiting > 0)
    screen.line(f"worker restarted as {stack.worker_pid()}, its state read again from disk")
    stack.stand_in.clear_faults()
    screen.line(f"Stripe is back; what the killed worker had in hand is free after {LEASE_S} s")
    wait_for("everything at Stripe", LEASE_S + 40, lambda: pending(stack) == 0)
    screen.line("pending 0")


def _prove(stack: DemoStack, screen: Screen, expected: Expected) -> None:
    balance = read_balance(stack)
    screen.check(
        f"recorded {balance.registry_events} = billed {balance.accepted} + review "
        f"{balance.parked_review} + dead 0 (and {balance.parked_dead} malformed record that no "
        "transaction wrote)",
        holds=balance.registry_events == expected.recorded
        and balance.accepted == expected.billed
        and balance.parked_review == expected.review
        and balance.parked_dead == 1
        and balance.registry_events == balance.accepted + balance.parked_review,
    )
    screen.check(
        f"registry = ledger = Stripe to the unit, for {len(expected.units)} customers × meters, "
        f"{sum(expected.units.values())} units",
        holds=dict(expected.units) == balance.ledger == balance.settled == balance.stripe,
    )
    screen.check(
        "nothing pending, held, dead or in doubt",
        holds=not (balance.pending or balance.held or balance.dead or balance.ambiguous),
    )
    audit = stack.tailrace("audit")
    verdict = (audit.stdout.strip().splitlines() or ["said nothing"])[-1]
    screen.check(f"tailrace audit: {verdict}", holds=audit.returncode == 0)
    if audit.returncode:
        screen.plain(audit.stdout + audit.stderr)
    lost, double = lost_and_double(expected, balance)
    screen.check(
        f"lost {lost} · double {double}",
        holds=lost == 0 and double == 0 and balance.stripe_twice == 0,
    )


def next_commands(directory: Path) -> str:
    """What to type next; each works as it stands, on the demo's own data."""
    typed = sys.argv[0] if Path(sys.argv[0]).name == "tailrace" else ".venv/bin/tailrace"
    tool = "tailrace" if shutil.which("tailrace") else typed
    where = f"--dir {directory}"
    lines = (
        (f"{tool} sandbox up {where}", "the same stack again, with its data; it stays"),
        (f"{tool} trace acme order-conflict {where}", "one event's whole journey"),
        (f"{tool} audit {where}", "the proof, whenever you want it"),
    )
    width = max(len(command) for command, _ in lines)
    shown = "\n".join(f"  {command.ljust(width)}   {meaning}" for command, meaning in lines)
    return f"\nThree commands to try next\n{shown}"


@app.command()
def demo(
    directory: Annotated[
        Path, typer.Option("--dir", help="Where the demo's stack lives; emptied at the start.")
    ] = Path(".tailrace/demo"),
    keep: Annotated[bool, typer.Option(help="Leave the stack running after the proof.")] = False,
) -> None:
    """The whole story on a real stack: faults included, proved at the end, nothing left behind."""
    began_s = time.monotonic()
    screen = Screen(lambda: time.monotonic() - began_s)
    screen.plain("tailrace demo: Postgres → Debezium → Kafka → Faust → ledger → Stripe (stand-in)")
    if directory.exists() and (code := sandbox("down", "--wipe", directory=directory)):
        raise typer.Exit(code)
    code = sandbox("up", directory=directory)
    if code:
        raise typer.Exit(code)
    stack = DemoStack(directory)
    try:
        tell(stack, screen)
    except DemoError as error:
        screen.check(str(error), holds=False)
    finally:
        if not keep:
            screen.chapter("Stopping")
            code = sandbox("down", directory=directory)
            screen.check("stopped in order, nothing left behind", holds=code == 0)
    screen.plain(next_commands(directory))
    if screen.failures:
        screen.plain(
            f"\nFAILED: {len(screen.failures)} of the demo's checks; logs: {directory}/logs"
        )
        raise typer.Exit(FINDING)
    screen.plain(f"\nlost 0 · double 0, proved in {screen.elapsed_s():.0f} s")


def run(arguments: Sequence[str]) -> int:
    """One command line → its exit code. Blocks for as long as the story takes."""
    return fenced(app, "tailrace demo", arguments, explained)
