"""A console over a stack in small: as it is served, but in this process."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from streams.adapters.clock import SystemClock
from streams.cli.stack import find_stack
from streams.console.app import build
from streams.console.operators import Operators
from streams.console.visit import Console
from tests.integration.cli.conftest import World, world

SECRET = "an-operator-secret-of-tests"
PAGES = (
    "/", "/curves", "/trace", "/trace?tenant=acme&key=late", "/dead", "/dead?tenant=acme",
    "/review", "/review?tenant=acme", "/windows", "/windows?tenant=acme&metric=exports",
    "/statement?tenant=acme", "/reconcile", "/log", "/log?actor=ann&action=approve", "/sign-in",
)  # fmt: skip

__all__ = ["world"]


@dataclass
class Browser:
    """Somebody who opens pages, and sends the forms that are on them."""

    client: TestClient
    seen: str = ""
    status: int = 0
    token: str = field(default="", repr=False)

    def open(self, address: str) -> str:
        """A page's text, as a person reads its source."""
        answer = self.client.get(address)
        self.seen, self.status = unescape(answer.text), answer.status_code
        found = re.search(r'name="token" value="(\w+)"', self.seen)
        self.token = found[1] if found else self.token
        return self.seen

    def send(self, address: str, **fields: str) -> str:
        """Sends a form of the page that was opened last."""
        answer = self.client.post(address, data={"token": self.token, **fields})
        self.seen, self.status = unescape(answer.text), answer.status_code
        return self.seen

    def sign_in(self, actor: str = "ann", secret: str = SECRET) -> Browser:
        self.client.post("/sign-in", data={"actor": actor, "secret": secret})
        self.open("/review")
        return self

    def confirm(self, address: str, **fields: str) -> str:
        """Reads the plan, then does it."""
        plan = self.send(address, **fields)
        digest = re.search(r'name="plan" value="(\w+)"', plan)
        assert digest is not None, plan
        return self.send(address, **fields, plan=digest[1])


Opened = Callable[..., Browser]


def browser_of(directory: Path, *, secret: str | None = None) -> Browser:
    console = Console(
        lambda: find_stack(directory, {}, directory), Operators(secret, SystemClock())
    )
    return Browser(TestClient(build(console), base_url="http://127.0.0.1:8190"))


@pytest.fixture
def opened(world: World) -> Opened:
    """Opens a browser at a console of the world's stack."""

    def browser(secret: str | None = None) -> Browser:
        return browser_of(world.cli.directory, secret=secret)

    return browser
