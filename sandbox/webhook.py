"""The webhook receiver as a part: where the stand-in tells what it accepted and took back."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sandbox.ports import LOOPBACK
from sandbox.process import Command
from sandbox.stripe import ROOT, answers
from sandbox.stripe_sandbox.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET: Final = Settings().webhook_secret
"""What the stand-in signs with."""


def url_of(port: int) -> str:
    """Where a receiver on this port takes events."""
    return f"http://{LOOPBACK}:{port}/stripe/events"


@dataclass(frozen=True, slots=True)
class Webhook:
    """The one `tailrace webhook` of the sandbox."""

    port: int
    metrics_port: int
    settings: Mapping[str, str]
    """TAILRACE_* that it shares with the workers."""
    env: Mapping[str, str]

    @property
    def url(self) -> str:
        """Where events are delivered."""
        return url_of(self.port)

    def prepare(self) -> None:
        """Nothing: it keeps nothing of its own."""

    def command(self) -> Command:
        """The receiver in the foreground."""
        env = {
            **self.env,
            **self.settings,
            "TAILRACE_STRIPE_WEBHOOK_SECRET": SECRET,
            "TAILRACE_WEBHOOK_PORT": str(self.port),
            "TAILRACE_METRICS_PORT": str(self.metrics_port),
        }
        return Command((sys.executable, "-m", "streams.cli.main", "webhook"), env, ROOT)

    def ready(self) -> str | None:
        """The address once it listens, or None."""
        return self.url if answers(f"http://{LOOPBACK}:{self.metrics_port}/ready") else None
