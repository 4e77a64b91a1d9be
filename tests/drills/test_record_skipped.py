"""A record of a newer schema holds its partition until a person skips it; the others go on.

As in a deployment where the outbox was upgraded before the workers. Nothing behind the record is
admitted before the decision, all of it once afterwards. Audits call it lost until somebody has said
which usage it was; then they list it as skipped and not billed, and prove the rest.
"""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from tests.drills.asked import audit, identities
from tests.support import witness
from tests.support.book_reading import ledger_number
from tests.support.books import Books, Use, assert_exact, await_settled, scattered, write
from tests.support.held import held_records, home, record_newer
from tests.support.live import LiveStack
from tests.support.stack import open_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.drill, pytest.mark.timeout(240)]
EVENTS: Final = 240
REASON: Final = "drill: nobody can read it"
ADMITTED: Final = "SELECT count(*) FROM ledger.balance WHERE tenant_id = ANY(%s)"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[LiveStack]:
    """A stack of its own: what is skipped stays a finding of every audit."""
    with open_stack(tmp_path / "stack", os.environ, workers=1) as parts:
        yield LiveStack(parts)


def held_at(stack: LiveStack, partition: int) -> dict[str, Any]:
    """The record that holds the partition, once its worker has said so."""
    until("the held record to be reported", lambda: len(held_records(stack)) == 1, 30)
    (held,) = held_records(stack)
    assert (held["partition"], held["state"]) == (partition, "held")
    assert "schema version 2 is unknown" in held["reason"]
    return held


def assert_named(stack: LiveStack, held: dict[str, Any], tenant: str) -> None:
    """Somebody says which usage it was: it is neither lost nor billed from then on."""
    order = ("held", "name", str(held["partition"]), str(held["offset"]))
    said = stack.tailrace(*order, "--yes", "--reason", REASON)
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"was {tenant}/from-the-future" in said.stdout
    again = stack.tailrace(*order, "--yes", "--reason", REASON)
    assert again.stdout.startswith("unchanged: "), again.stdout + again.stderr
    found = audit(stack)
    assert (found["findings"], found["lost"], found["double"]) == ([], 0, 0)
    assert found["verdicts"]["skipped"] == 1
    assert [record["named"]["event_key"] for record in found["skipped"]] == ["from-the-future"]


@pytest.mark.drill(name="record-skipped")
def test_a_skipped_record_lets_its_partition_go_on(stack: LiveStack) -> None:
    uses = list(scattered("skip", EVENTS, tenants=24, seed=95))
    partition = home(stack, uses[0].tenant)
    newer = next(f"newer-{n}" for n in range(1_000) if home(stack, f"newer-{n}") == partition)
    at = uses[0].occurred_at - timedelta(minutes=1)
    record_newer(stack, Use(newer, "api_calls", "from-the-future", 7, at))
    behind, beside = Books(), Books()
    write(stack, (use for use in uses if home(stack, use.tenant) == partition), behind)
    write(stack, (use for use in uses if home(stack, use.tenant) != partition), beside)

    await_settled(stack, beside)
    held = held_at(stack, partition)
    assert ledger_number(stack, ADMITTED, sorted(behind.tenants)) == 0
    witness.seen("events held behind a record that nobody can read", behind.events)
    found = audit(stack)
    assert [finding["kind"] for finding in found["findings"]] == ["held"]
    assert (found["lost"], found["double"]) == (0, 0)

    offset = str(held["offset"])
    healthy = stack.tailrace(
        "held", "skip", str(partition), str(held["offset"] + 1), "--yes", "--reason", REASON
    )
    assert healthy.returncode != 0, "a record that nobody is held at was skipped"
    order = ("held", "skip", str(partition), offset, "--yes", "--reason", REASON)
    skipped = stack.tailrace(*order)
    assert skipped.returncode == 0, skipped.stdout + skipped.stderr
    assert f"skipped offset {offset} of partition {partition}" in skipped.stdout
    assert "(receipt " in skipped.stdout

    await_settled(stack, behind)
    assert_exact(stack, behind)
    assert_exact(stack, beside)
    (done,) = held_records(stack)
    assert (done["offset"], done["state"]) == (held["offset"], "done")
    assert f"receipt {done['decision']['receipt']}" in skipped.stdout
    again = stack.tailrace(*order)
    assert again.stdout.startswith("unchanged: skipped already"), again.stdout + again.stderr

    found = audit(stack)
    assert identities(found, "lost") == {(newer, "from-the-future")}
    assert (found["lost"], found["skipped"][0]["offset"]) == (1, held["offset"])

    assert_named(stack, held, newer)
    assert_exact(stack, behind)
    assert_exact(stack, beside)
