"""`python -m sandbox.stripe_sandbox`: the Stripe stand-in on a loopback port, until stopped."""

import asyncio
import re
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from sandbox.stripe_sandbox.engine import Settings
from sandbox.stripe_sandbox.journal import DamagedJournalError
from sandbox.stripe_sandbox.service import MetersFileError, Service, ServiceSettings

_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


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
    await stopped.wait()
    await service.stop()


def main(  # noqa: PLR0913, PLR0917 - every option of the command is an argument
    state_dir: Annotated[Path, typer.Option(help="Directory of its memory.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses one.")] = 0,
    rate_limit: Annotated[int, typer.Option(help="Calls per second; Stripe's sandbox: 25.")] = 1000,
    identifier_window: Annotated[str, typer.Option(help="How long identifiers are held.")] = "24h",
    meters: Annotated[Path | None, typer.Option(help="meters.toml; its meters exist.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the faults' chance.")] = 0,
    auto_create_meters: Annotated[
        bool, typer.Option(help="Create a sum meter for a name nobody listens to.")
    ] = False,
) -> None:
    """A stateful stand-in for Stripe Billing's meters. Control API under /_sandbox/."""
    rules = Settings(
        identifier_window_s=seconds(identifier_window),
        rate_limit=rate_limit,
        auto_create_meters=auto_create_meters,
    )
    settings = ServiceSettings(state_dir, host, port, meters, seed, rules)
    try:
        asyncio.run(serve(settings))
    except (OSError, DamagedJournalError, MetersFileError) as error:
        typer.echo(f"stripe stand-in: {error}", err=True)
        raise typer.Exit(78) from None


if __name__ == "__main__":
    typer.run(main)
