"""`tailrace stripe-sandbox`: the Stripe stand-in on a loopback port, until stopped."""

import asyncio
import re
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from sandbox.stripe import API_KEY
from sandbox.stripe_sandbox.journal import DamagedJournalError, InUseError
from sandbox.stripe_sandbox.service import MetersFileError, Service, ServiceSettings
from sandbox.stripe_sandbox.settings import Settings
from streams.cli.errors import ConfigurationError, TryAgainError, UsageProblemError
from streams.cli.fence import fenced
from streams.cli.main import EXIT_CODES

_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def seconds(text: str) -> int:
    """`24h` → 86400.

    Raises:
        typer.BadParameter: It is not a whole number with one of the units s, m, h, d.
    """
    matched = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if matched is None:
        message = f"{text!r} is not a duration; write 90s, 5m, 24h or 35d"
        raise typer.BadParameter(message)
    return int(matched[1]) * _UNITS_S[matched[2]]


def web_address(text: str) -> str:
    """Where calls go, as it stands; empty for nowhere.

    Raises:
        UsageProblemError: It is no http address with a host and a usable port.
    """
    try:
        parts = urlsplit(text)
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if text and not whole:
        raise UsageProblemError(
            f"--webhook-url: {text!r} is no address that can be called: http:// or https://, a "
            "host, and a port from 1 to 65535 where it is not the usual one",
            fix="give it as http://127.0.0.1:8478/stripe/events",
        )
    return text


def clock_us() -> int:
    """The machine's time, microseconds since 1970 UTC. A shifted clock shifts the stand-in."""
    return time.time_ns() // 1_000


async def serve(settings: ServiceSettings) -> None:
    """Runs until SIGINT or SIGTERM."""
    service = Service(settings, clock_us)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await service.start()
    typer.echo(f"stripe stand-in ready: {service.url} (state in {settings.state_dir})")
    typer.echo(f"  TAILRACE_STRIPE_API_BASE={service.url}")
    typer.echo(f"  TAILRACE_STRIPE_API_KEY={API_KEY}")
    typer.echo(f"  TAILRACE_STRIPE_WEBHOOK_SECRET={settings.rules.webhook_secret}")
    await stopped.wait()
    await service.stop()


@app.command(epilog=EXIT_CODES)
def stripe_sandbox(  # noqa: PLR0913, PLR0917 - every option of the command is an argument
    state_dir: Annotated[
        Path | None,
        typer.Option(help="Directory of its memory; without it, it forgets all at the end."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 chooses one.")
    ] = 0,
    rate_limit: Annotated[
        int, typer.Option(min=1, help="Calls per second; Stripe's sandbox: 25.")
    ] = 1000,
    identifier_window: Annotated[str, typer.Option(help="How long identifiers are held.")] = "24h",
    meters: Annotated[Path | None, typer.Option(help="meters.toml; its meters exist.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the faults' chance.")] = 0,
    auto_create_meters: Annotated[
        bool, typer.Option(help="Create a sum meter for a name nobody listens to.")
    ] = False,
    webhook_url: Annotated[
        str, typer.Option(help="Where its events go, such as http://127.0.0.1:8478/stripe/events.")
    ] = "",
    webhook_secret: Annotated[
        str, typer.Option(help="What calls of the webhook are signed with.")
    ] = Settings().webhook_secret,
) -> None:
    """A stateful stand-in for Stripe's meters, on loopback, until Ctrl-C.

    It prints its address and a key, and remembers what was sent: identifiers, idempotency keys,
    summaries, error reports with signed webhooks, invoices. Under /_sandbox/ it takes orders:
    faults, settings, subscriptions; and tells what it really recorded (oracle).
    """
    rules = Settings(
        identifier_window_s=seconds(identifier_window),
        rate_limit=rate_limit,
        auto_create_meters=auto_create_meters,
        webhook_url=web_address(webhook_url),
        webhook_secret=webhook_secret,
    )
    with tempfile.TemporaryDirectory(prefix="stripe-sandbox-") as forgotten:
        directory = state_dir or Path(forgotten)
        settings = ServiceSettings(directory, host, port, meters, seed, rules)
        try:
            asyncio.run(serve(settings))
        except InUseError as error:
            raise TryAgainError(
                f"stripe stand-in: {error}", fix="stop that one, or give another --state-dir"
            ) from error
        except (OSError, DamagedJournalError, MetersFileError) as error:
            raise ConfigurationError(
                f"stripe stand-in: {error}", fix="correct what is named, then start it again"
            ) from error


def run(arguments: Sequence[str]) -> int:
    """One command line → its exit code. Blocks for as long as the stand-in runs."""
    return fenced(app, "tailrace stripe-sandbox", arguments)
