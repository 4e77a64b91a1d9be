"""What the commands of an operator say of a stack, as values: a drill states what was seen."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tests.support import witness
from tests.support.book_reading import ledger_number
from tests.support.books import Books
from tests.support.live import LiveStack

_ADMITTED = "SELECT coalesce(sum(events), 0) FROM ledger.balance WHERE tenant_id = ANY(%s)"


def audit(stack: LiveStack, *options: str) -> dict[str, Any]:
    """The report of an audit that came to its end."""
    ran = stack.tailrace("audit", "--json", *options)
    assert ran.returncode in {0, 1}, ran.stdout + ran.stderr
    return _document(ran.stdout)


def assert_nothing_lost(stack: LiveStack) -> None:
    """What the product says of itself: nothing is lost, nothing counts twice.

    An audit waits for rows that it sends last of all. What was on its way before, copies of what is
    counted above all, has come through then: so the oracle is asked after it and not before.
    """
    found = audit(stack)
    assert (found["ok"], found["lost"], found["double"]) == (True, 0, 0), found["findings"]


def assert_not_judged(stack: LiveStack) -> None:
    """While nothing flows an audit says so, and neither that all is well nor that rows are lost."""
    ran = stack.tailrace("audit", "--wait-s", "3")
    assert ran.returncode == 75, ran.stdout + ran.stderr
    assert "nothing can be judged yet" in ran.stderr


def identities(found: Mapping[str, Any], kind: str) -> set[tuple[str, str]]:
    """Tenant and event key of everything that the findings of a kind name."""
    return {
        (each["tenant_id"], each["event_key"])
        for finding in found["findings"]
        if finding["kind"] == kind
        for each in finding["identities"]
    }


def guard(stack: LiveStack) -> set[str]:
    """The rules that the slot guard finds broken; a start would lose rows where any is."""
    ran = stack.tailrace("source", "guard", "--json")
    found = _document(ran.stdout)
    refused = {each["rule"] for each in found["findings"] if each["severity"] == "refuse"}
    assert found["safe"] == (not refused)
    for each in found["findings"]:
        witness.did(f"the guard: {each['rule']}: {each['evidence']}")
    return refused


def connector_state(stack: LiveStack) -> str:
    """The state of the connector; `FAILED` where it runs and a task of it does not.

    Empty while Connect does not know it yet, having just been started.
    """
    ran = stack.tailrace("connector", "status", "--json")
    if not ran.stdout:
        return ""
    found = _document(ran.stdout)
    failed = any(task["state"] == "FAILED" for task in found["tasks"])
    return "FAILED" if failed else str(found["state"])


def admitted(stack: LiveStack, books: Books) -> int:
    """How many usage events of some books the ledger counts."""
    return ledger_number(stack, _ADMITTED, sorted(books.tenants))


def assert_none_arrived(stack: LiveStack, books: Books) -> None:
    """The failed state: not one of these usage events has reached the ledger."""
    assert admitted(stack, books) == 0
    witness.seen("usage events are recorded and nowhere in the ledger", books.events)


def repair(stack: LiveStack, *options: str) -> int:
    """The repair that the guard names; the number of rows sent again."""
    ran = stack.tailrace("connector", "repair", "--reason", "a drill", "--yes", "--json", *options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return int(_document(ran.stdout)["done"]["rows"])


def _document(text: str) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])
