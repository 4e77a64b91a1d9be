"""The Stripe stand-in as a part: a port and a state directory → an API base that answers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import requests

from sandbox.ports import LOOPBACK
from sandbox.process import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

API_KEY = "sk_test_sandbox"
"""Any sk_test_ or rk_test_ key will do; this is the one that is shown."""
ROOT = Path(__file__).parent.parent
"""Where `python -m sandbox` and `python -m streams...` are found from."""
METERS_FILE = Path(__file__).parent / "meters.toml"
"""The meters that the catalogue is given and that exist at the stand-in."""


@dataclass(frozen=True, slots=True)
class Stripe:
    """The stand-in of the sandbox."""

    state: Path
    port: int
    webhook_url: str
    """Where its events go."""
    env: Mapping[str, str]

    @property
    def url(self) -> str:
        """The API base that replaces Stripe's own."""
        return f"http://{LOOPBACK}:{self.port}"

    def prepare(self) -> None:
        """Makes the state directory; what was recorded there before stays recorded."""
        self.state.mkdir(parents=True, exist_ok=True)

    def command(self) -> Command:
        """The stand-in in the foreground."""
        module = ("-m", "sandbox.stripe_sandbox")
        options = ("--host", LOOPBACK, "--port", str(self.port), "--state-dir", str(self.state))
        given = ("--meters", str(METERS_FILE), "--webhook-url", self.webhook_url)
        return Command((sys.executable, *module, *options, *given), self.env, ROOT)

    def ready(self) -> str | None:
        """The address once it answers, or None."""
        return f"stand-in, {self.url}" if answers(f"{self.url}/healthz") else None


def answers(url: str) -> bool:
    """Whether a GET is answered with 200."""
    try:
        return requests.get(url, timeout=(1, 3)).status_code == 200
    except requests.RequestException:
        return False
