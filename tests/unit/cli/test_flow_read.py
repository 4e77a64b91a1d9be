"""What Connect says, or that nobody could ask it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast

import pytest

from streams.cli.flow_read import read_flow
from streams.cli.stack import find_stack
from tests.support.http_server import on_loopback

STATUS = {
    "name": "tailrace-outbox-sandbox",
    "connector": {"state": "RUNNING", "worker_id": "w"},
    "tasks": [{"id": 0, "state": "FAILED", "worker_id": "w", "trace": "gone\n\tat line 1"}],
}


class Connect(BaseHTTPRequestHandler):
    """Says of every connector that its task has failed."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(STATUS).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its base's name
        """Says nothing."""


@pytest.fixture
def connect() -> Iterator[str]:
    with on_loopback(Connect) as address:
        yield address


def capture(folder: Path, address: str) -> dict[str, Any]:
    """What is seen without the service's database, which asks nothing of the ledger."""
    stack = find_stack(None, {"TAILRACE_CONNECT_URL": address} if address else {}, folder)
    seen = read_flow(stack, cast("Any", None), {"positions": []})["capture"]
    assert seen["unset"] == ["TAILRACE_SOURCE_DSN"]
    assert isinstance(seen, dict)
    return seen


def test_a_failed_task_is_no_running_connector(tmp_path: Path, connect: str) -> None:
    seen = capture(tmp_path, connect)
    assert (seen["connector"], seen["running"]) == ("connector RUNNING, task 0 FAILED", False)
    assert seen["unread"] == []


def test_a_connect_that_does_not_answer_is_told_with_the_reason(tmp_path: Path) -> None:
    seen = capture(tmp_path, "http://127.0.0.1:1")
    assert seen["connector"] is None
    assert [part["what"] for part in seen["unread"]] == ["the connector"]
    assert "see whether a Connect worker runs there" in seen["unread"][0]["why"]


def test_a_connect_that_is_not_set_is_not_asked(tmp_path: Path) -> None:
    seen = capture(tmp_path, "")
    assert (seen["connector"], seen["running"], seen["unread"]) == (None, True, [])
