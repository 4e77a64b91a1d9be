"""A column renamed under the connector stops it, visibly; no row is dropped in silence."""

from pathlib import Path

import psycopg
import pytest
import requests

from tests.support.live import LiveStack, live_stack
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def failed(stack: LiveStack) -> bool:
    url = f"{stack.facts['connect_url']}/connectors/outbox-sandbox/status"
    tasks = requests.get(url, timeout=10).json()["tasks"]
    return any(task["state"] == "FAILED" for task in tasks)


def test_a_renamed_column_stops_capture_and_the_command_says_so(tmp_path: Path) -> None:
    with live_stack(tmp_path / "stack") as stack:
        with psycopg.connect(stack.facts["postgres_dsn"], autocommit=True) as owner:
            owner.execute("ALTER TABLE metering.usage_outbox RENAME COLUMN payload TO body")
            with pytest.raises(psycopg.Error, match="payload"):
                owner.execute("SELECT metering.record_usage('acme', 'exports', 1, 'after')")
            owner.execute(
                "INSERT INTO metering.usage_outbox"
                " (emitted_at, event_id, kafka_key, event_type, received_at, body)"
                " VALUES (now(), gen_random_uuid(), 'acme', 'usage.recorded', now(), '{}')"
            )
        until("a failed task", lambda: failed(stack), 60)
        said = stack.tailrace("connector", "status")
        assert said.returncode == 1, said.stdout + said.stderr
        assert "FAILED" in said.stdout + said.stderr
