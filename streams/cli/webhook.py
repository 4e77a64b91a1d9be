"""`tailrace webhook`: where Stripe tells of meter events that it accepted and took back."""

import asyncio

import typer

from streams.cli import terminal
from streams.cli.options import Dir, Live
from streams.cli.stack import resolve
from streams.logs import configure_logging
from streams.webhook import REQUIRED_BY_WEBHOOK, serve

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def webhook(directory: Dir = None, live: Live = False) -> None:
    """Take Stripe's error reports, until SIGTERM or Ctrl-C.

    Add an event destination at Stripe (thin events) for the two types
    v1.billing.meter.error_report_triggered and v1.billing.meter.no_meter_found, with the public
    address of /stripe/events, and give its signing secret as TAILRACE_STRIPE_WEBHOOK_SECRET. It
    listens on TAILRACE_WEBHOOK_HOST and _PORT in clear text: put what ends TLS before it.
    """
    settings = resolve(directory, live=live).need(*REQUIRED_BY_WEBHOOK)
    configure_logging(settings.log_level)
    asyncio.run(serve(settings, lambda address: terminal.data(f"webhook ready: {address}")))


APPS = {"webhook": app}
