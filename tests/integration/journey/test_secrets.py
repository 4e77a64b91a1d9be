"""Secrets of a running stack, planted where they hurt: none stands in a log, a metric, an output.

The stack's own passwords are searched for as well as planted ones: they are what a worker really
uses. What goes wrong here goes wrong with a secret in hand: a refused key, a refused login.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from psycopg.conninfo import conninfo_to_dict

from tests.integration.console.conftest import PAGES
from tests.support.books import Books, await_settled, scattered, write
from tests.support.console import console, write_secret
from tests.support.live import LiveStack
from tests.support.scraped import exporter, page
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
KEY = "sk_test_pL4nt3dK3yOfStripe"
LOGIN = "pL4nt3d-P4ssw0rd"
SASL = "pL4nt3d S4sl"
HOOK = "whsec_pL4nt3dH00k"
OPERATOR = "pL4nt3d-0perat0r-Secr3t"
PLANTED = (KEY.removeprefix("sk_test_"), LOGIN, SASL, HOOK.removeprefix("whsec_"), OPERATOR)

COMMANDS = (
    "status", "config show", "config show --json", "config check", "connector status",
    "connector diff", "connector worker-config", "source guard", "customers list", "audit --json",
    "reconcile",
)  # fmt: skip
NOWHERE = f"postgresql://somebody:{LOGIN}@127.0.0.1:1/ledger"
BROKEN = (
    ("status", {"TAILRACE_LEDGER_DSN": NOWHERE}),
    ("status --debug", {"TAILRACE_LEDGER_DSN": NOWHERE}),
    ("status --debug", {"TAILRACE_LEDGER_DSN": f"postgresql//me:{LOGIN}@x"}),
    ("source guard --debug", {"TAILRACE_SOURCE_DSN": NOWHERE}),
    ("config check", {"TAILRACE_KAFKA_SASL_PASSWORD": SASL}),
    ("worker --debug", {"TAILRACE_STRIPE_API_KEY": KEY.replace("test", "live")}),
    ("reconcile --debug", {"TAILRACE_STRIPE_API_BASE": "http://127.0.0.1:1"}),
    ("topics check --debug", {"TAILRACE_KAFKA_BOOTSTRAP": f"me:{LOGIN}@127.0.0.1:1"}),
)


def passwords(stack: LiveStack) -> Iterator[str]:
    """Those that the stack uses."""
    for name, value in stack.facts.items():
        if name.endswith("_dsn"):
            yield str(conninfo_to_dict(value)["password"])


def told(stack: LiveStack, command: str, **settings: str) -> str:
    """All that a command says with these secrets in its settings."""
    given = {
        "TAILRACE_STRIPE_API_KEY": KEY,
        "TAILRACE_STRIPE_WEBHOOK_SECRET": HOOK,
        **settings,
    }
    done = stack.tailrace(*command.split(), **given)
    return done.stdout + done.stderr


def refuse(stack: LiveStack) -> str:
    """A login that PostgreSQL refuses, by a worker: what it says of it."""
    parts = conninfo_to_dict(stack.facts["ledger_dsn"])
    dsn = f"postgresql://{parts['user']}:{LOGIN}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    worker = stack.start_worker("refused", ledger_dsn=dsn, log_level="debug")
    until("the refusal to be told", lambda: bool(worker.said("ledger_unreachable")), 60)
    worker.kill()  # what it has said is what is wanted; it waits for its ledger else
    return worker.log.read_text(encoding="utf-8")


def pages(stack: LiveStack, folder: Path) -> Iterator[tuple[str, str]]:
    """Every page of a console that is well and of one whose login is refused, and what both log."""
    secret = write_secret(folder, OPERATOR)
    given = {"TAILRACE_STRIPE_API_KEY": KEY, "TAILRACE_STRIPE_WEBHOOK_SECRET": HOOK}
    broken = {"TAILRACE_LEDGER_DSN": NOWHERE, "TAILRACE_SOURCE_DSN": NOWHERE}
    for how, settings in (("well", given), ("broken", {**given, **broken})):
        log = folder / f"console-{how}.log"
        with (
            console(stack.directory, secret, log, **settings) as address,
            requests.Session() as operator,
        ):
            for typed in (LOGIN, OPERATOR):
                form = {"actor": "somebody", "secret": typed}
                answer = operator.post(f"{address}/sign-in", form, timeout=30)
                yield f"{how}: signing in with {typed}", answer.text
            assert operator.cookies, "nobody was signed in, so forms were not looked at"
            for path in PAGES:
                yield f"{how}: {path}", operator.get(f"{address}{path}", timeout=30).text
        yield f"{how}: log", log.read_text(encoding="utf-8")


def test_no_secret_is_told_to_anybody(stack: LiveStack, tmp_path: Path) -> None:
    secrets = {*PLANTED, *passwords(stack)}
    assert len(secrets) >= len(PLANTED) + 4
    stack.stand_in.arm(kind="401", count=3)
    worker = stack.start_worker(
        "planted", stripe_api_key=KEY, stripe_webhook_secret=HOOK, log_level="debug"
    )
    until("its own page", lambda: bool(worker.said("probe")), 60)
    books = Books()
    write(stack, scattered("secret", 40, tenants=3, seed=7), books)
    await_settled(stack, books)

    texts = {f"tailrace {command}": told(stack, command) for command in COMMANDS}
    texts |= {f"tailrace {command} {at}": told(stack, command, **at) for command, at in BROKEN}
    texts["the worker's metrics"] = page(f"{worker.said('probe')[-1]['address']}/metrics")
    with exporter(stack.directory, TAILRACE_LEDGER_DSN=NOWHERE) as address:
        texts["the exporter's metrics"] = page(address)
    texts["a refused worker"] = refuse(stack)
    texts |= dict(pages(stack, tmp_path))
    worker.stop()
    for log in sorted((stack.directory / "logs").iterdir()):
        texts[log.name] = log.read_text(encoding="utf-8", errors="replace")
    found = {
        where: sorted(secret[:12] for secret in secrets if secret in text)
        for where, text in texts.items()
    }
    assert {where: which for where, which in found.items() if which} == {}
    assert "***" in texts["tailrace config show"]
    silent = [where for where, text in texts.items() if not text and where.startswith("tailrace")]
    assert not silent, "a command that said nothing was not looked at"
