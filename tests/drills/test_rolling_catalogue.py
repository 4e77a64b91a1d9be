"""Meters are added and changed while usage flows and workers are restarted one by one.

A new meter counts at once. A change is announced an hour ahead: usage of before is counted in the
windows of before, whoever judges it and whenever it comes, usage of after in the new ones. What
would change usage that was judged already is refused.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
import requests

from sandbox.stripe import API_KEY
from tests.support.attempts import NOT_WHOLE, ask
from tests.support.book_reading import ledger_number
from tests.support.books import Books, Use, assert_exact, await_settled, show_pending, write
from tests.support.live import LiveWorker
from tests.support.shifted import ShiftedStack, shifted_stack
from tests.support.struck import IMPATIENT
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.timeout(400)]
HOUR: Final = timedelta(hours=1)
NAMES: Final = ("changes-1", "changes-2", "changes-3")
TENANTS: Final = 12
VERSIONS: Final = "SELECT count(*) FROM ledger.meter_version"
CHANGED: Final = """
[meters.api_calls]
event_name = "api_calls"
window = "hour"
close_delay = "2s"
{effective}

[meters.tokens]
event_name = "tokens"
window = "minute"
scale = {scale}
close_delay = "2s"
"""


@dataclass(frozen=True, slots=True)
class CutUse(Use):
    """Usage of a meter whose windows are those of its time."""

    window_s: int = 60

    @property
    def quantity(self) -> str:
        return str(self.units)

    @property
    def window(self) -> tuple[str, str, int]:
        at_s = int(self.occurred_at.timestamp())
        return self.tenant, self.metric, at_s - at_s % self.window_s


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[ShiftedStack]:
    with shifted_stack(tmp_path / "stack") as own:
        yield own


def uses(metric: str, name: str, first: datetime, window_s: int) -> Iterator[Use]:
    """One use a tenant and ten minutes of the hour that begins then."""
    for tenant in range(TENANTS):
        for part in range(6):
            at = first + timedelta(minutes=10 * part, seconds=7 * tenant)
            key, units = f"{name}-{metric}-{tenant}-{part}", 1 + 10 * tenant + part
            yield CutUse(f"changed-{tenant}", metric, key, units, at, window_s=window_s)


def apply(stack: ShiftedStack, file: Path, *, effective: str = "", scale: int = 0) -> str:
    """`meters apply`; what it said, of a refusal too."""
    before = ledger_number(stack, VERSIONS)
    file.write_text(CHANGED.format(effective=effective, scale=scale), encoding="utf-8")
    ran = stack.tailrace("meters", "apply", str(file), "--reason", "drill: a change", "--yes")
    assert (ran.returncode == 0) == (ledger_number(stack, VERSIONS) > before)
    return ran.stdout if ran.returncode == 0 else f"refused: {ran.stderr}"


def restarted(stack: ShiftedStack, worker: LiveWorker, books: Books, *more: Iterator[Use]) -> None:
    """Restarts a worker while usage is recorded, and waits until it works again."""
    # One that is only just starting has not learned yet what SIGTERM asks of it.
    until("it to have partitions", lambda: worker.said("recovered") != [], 60)
    worker.signal(signal.SIGTERM)
    for each in more:
        write(stack, each, books)
    show_pending(stack, books)
    assert worker.process.wait(40) == 0
    fresh = stack.start_worker(worker.name, **IMPATIENT)
    until("it to be given partitions again", lambda: fresh.said("recovered") != [], 60)


@pytest.mark.drill(name="rolling-catalogue")
def test_meters_change_under_load_while_workers_are_restarted(
    stack: ShiftedStack, tmp_path: Path
) -> None:
    books, file = Books(), tmp_path / "meters.toml"
    workers = [stack.start_worker(name, **IMPATIENT) for name in NAMES]
    full = stack.now.replace(minute=0, second=0, microsecond=0)
    change = full + (2 if stack.now.minute < 55 else 3) * HOUR
    write(stack, uses("api_calls", "before", full - 2 * HOUR, 60), books)

    at_once = f"effective_from = {full + HOUR:%Y-%m-%dT%H:%M:%SZ}"
    assert "takes effect at" in apply(stack, file, effective=at_once)
    answer = requests.post(
        f"{stack.stand_in.url}/v1/billing/meters",
        headers={"Authorization": f"Bearer {API_KEY}"},
        data={
            "display_name": "tokens",
            "event_name": "tokens",
            "default_aggregation[formula]": "sum",
        },
        timeout=10,
    )
    assert answer.status_code == 200, answer.text
    said = apply(stack, file, effective=f"effective_from = {change:%Y-%m-%dT%H:%M:%SZ}")
    assert "added api_calls v2" in said, said
    assert "added tokens v1" in said, said
    assert "counts units of scale 0" in apply(stack, file, scale=3)

    restarted(stack, workers[0], books, uses("tokens", "new", full - 2 * HOUR, 60))
    restarted(stack, workers[1], books, uses("api_calls", "announced", full - HOUR, 60))
    await_settled(stack, books, 120)

    stack.move_to(change + HOUR + timedelta(minutes=5))
    # A worker that has read the catalogue before the change meets usage of both sides of it.
    last, first = (
        uses("api_calls", "last", change - HOUR, 60),
        uses("api_calls", "first", change, HOUR.seconds),
    )
    restarted(stack, workers[2], books, last, first)
    write(stack, uses("tokens", "later", change, 60), books)
    await_settled(stack, books, 120)
    assert_exact(stack, books)
    assert ask(stack, NOT_WHOLE, books) == 0
