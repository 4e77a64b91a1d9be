"""The quickstarts, typed line by line on a stack that has what they speak of.

What decides is done to items of the test; a number in a page stands for the reader's own.
"""

import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import psycopg
import pytest

from sandbox.stripe import METERS_FILE
from tests.support.books import Use, record
from tests.support.documents import page
from tests.support.live import LiveStack
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
FINANCE: Final = "docs/quickstart-finance.md"
ELSEWHERE: Final = re.compile(
    r"tailrace (?:sandbox|drill|worker|exporter|console|webhook)|.*(?:\.example|--first)"
).match
"""What a stack that runs is not told: to start, to break, other machines, a first time."""
TRY_AGAIN: Final = 75
FOUND: Final = {0, 1}
"""What only looks may find something."""


def typed(name: str) -> list[str]:
    """The commands of a page, in its order."""
    lines = [line for block in page(name).blocks("") for line in block.commands]
    return [line for line in lines if line.startswith("tailrace")]


def run(stack: LiveStack, command: str, fine: set[int]) -> str:
    """Types a line until the stack can answer it."""
    said: list[str] = []

    def ends() -> bool:
        ran = stack.tailrace(*shlex.split(command)[1:])
        said.append(ran.stdout)
        assert ran.returncode in {*fine, TRY_AGAIN}, f"{command}\n{ran.stdout}{ran.stderr}"
        return ran.returncode in fine

    until(command, ends, 60)
    return said[-1]


def waiting_item(stack: LiveStack) -> str:
    """The number of what waits for a decision on the tenant of the pages."""
    ran = stack.tailrace("review", "list", "--tenant", "acme", "--json")
    items = msgspec.json.decode(ran.stdout)["items"] if ran.returncode in FOUND else []
    return str(items[0]["item"]) if items else ""


@pytest.fixture(scope="module")
def acme(stack: LiveStack) -> None:
    """What the pages speak of: usage on time, usage that is 30 hours late, and who pays."""
    now = datetime.now(UTC)  # noqa: TID251 - a service lives now
    with psycopg.connect(stack.facts["writer_dsn"], autocommit=True) as service:
        for use in (
            Use("acme", "exports", "my-first-row", 1, now),
            Use("acme", "api_calls", "late", 3, now - timedelta(hours=30), "late"),
        ):
            record(service, use)
    with psycopg.connect(stack.facts["ledger_dsn"], autocommit=True) as ledger:
        # The pages all speak of this tenant: another test may have mapped it.
        if not ledger.execute("SELECT FROM ledger.customer WHERE tenant_id = 'acme'").fetchall():
            ledger.execute(
                "SELECT ledger.map_customer_v1('acme', 'cus_acme', NULL, NULL, NULL, NULL, 'test')"
            )


@pytest.mark.usefixtures("acme")
def test_an_upstream_engineer_sees_what_became_of_the_row(stack: LiveStack) -> None:
    recording, tracing = typed("docs/quickstart-upstream.md")
    assert "recorded" in run(stack, recording, {0})
    until("a verdict", lambda: "accepted" in run(stack, tracing, FOUND), 60)


@pytest.mark.usefixtures("acme")
def test_finance_looks_decides_and_proves(stack: LiveStack) -> None:
    until("the late usage to wait", lambda: waiting_item(stack) != "", 60)
    item = waiting_item(stack)
    for command in typed(FINANCE):
        run(stack, re.sub(r"\b7\b", item, command), {0} if "--yes" in command else FOUND)
    assert waiting_item(stack) == ""
    assert run(stack, "tailrace audit", {0}).rstrip().endswith("lost 0 · double 0")


def test_a_platform_engineer_looks_at_the_stack(stack: LiveStack) -> None:
    commands = [line for line in typed("docs/quickstart-platform.md") if not ELSEWHERE(line)]
    assert len(commands) > 10
    for command in commands:
        run(stack, command.replace("meters.toml", str(METERS_FILE)), FOUND)
