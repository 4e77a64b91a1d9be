"""Schemathesis asks what the OpenAPI document allows, and what it forbids.

Twice: by the document as it is served, where a valid event may still break a rule that no schema
can say, such as a length in bytes; and by one that is narrowed to what is always taken.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.integration.ingest.conftest import Conn
from tests.integration.ingest.endpoint import TENANTS, Endpoint
from tests.support.outbox import one

pytestmark = pytest.mark.postgres

SEED: Final = 20_261_130
EXAMPLES: Final = 100
CONFIG: Final = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 405, 408, 413, 415, 422]
"""
NAME: Final = {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,30}$"}
TENANT: Final = {"enum": list(TENANTS)}
QUANTITY: Final = {
    "oneOf": [
        {"type": "integer", "minimum": 0, "maximum": 999},
        {"type": "string", "pattern": r"^[0-9]{1,3}(\.[0-9]{1,12})?$"},
    ]
}
INSTANT: Final = {
    "type": ["string", "null"],
    "pattern": r"^20[01]\d-0[1-9]-[01][1-9]T[01]\d:[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]0\d:00)$",
}
FLAT: Final = {
    "type": ["object", "null"],
    "propertyNames": {"pattern": "^[a-z-]+$"},
    "additionalProperties": {"type": "integer"},
}


def narrowed(document: dict[str, Any]) -> dict[str, Any]:
    """The contract for events of two tenants that break no rule at all."""
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        if "tenant_id" in schema.get("properties", ()):
            schema["properties"] |= {
                "tenant_id": TENANT, "metric": NAME, "event_key": NAME, "quantity": QUANTITY,
                "occurred_at": INSTANT, "attributes": FLAT,
            }  # fmt: skip
    event = schemas["CloudEvent"]["properties"]
    event |= {"subject": TENANT, "id": NAME, "source": NAME, "type": NAME, "time": INSTANT}
    event["data"]["properties"] |= {"quantity": QUANTITY, "metric": NAME, "attributes": FLAT}
    schemas["CloudEvent"] |= {
        name: FLAT[name] for name in ("propertyNames", "additionalProperties")
    }
    return document


def asked(shop: Endpoint, folder: Path, document: dict[str, Any], *options: str) -> dict[str, Any]:
    """The report of a run, whose words are shown when it fails."""
    (folder / "openapi.json").write_bytes(msgspec.json.encode(document))
    (folder / "config.toml").write_text(CONFIG)
    command: list[str | Path] = [
        Path(sys.executable).with_name("schemathesis"),
        *("--config-file", "config.toml", "--no-color", "run", "openapi.json"),
        *("--url", shop.address, "--header", f"Authorization: Bearer {shop.key}"),
        *("--checks", "all", "--max-examples", str(EXAMPLES), "--seed", str(SEED)),
        *options,
        *("--report", "json", "--report-json-path", "report.json"),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = shortened(done.stdout)
    assert done.returncode == 0, said + done.stderr
    return msgspec.json.decode((folder / "report.json").read_bytes(), type=dict[str, Any])


def shortened(text: str) -> str:
    """Bodies of a thousand events are nobody's reading."""
    return "\n".join(line[:400] for line in text.splitlines())


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("narrow", "least"), [(False, 150), (True, 150)])
def test_answers_keep_the_contract(
    shop: Endpoint, books: Conn, tmp_path: Path, narrow: bool, least: int
) -> None:
    document: dict[str, Any] = shop.get("/openapi.json").json()
    if narrow:
        report = asked(shop, tmp_path, narrowed(document), "--mode", "positive")
    else:
        report = asked(shop, tmp_path, document, "--exclude-checks", "positive_data_acceptance")
    cases = report["test_cases"]
    assert report["complete"]
    assert report["operations"]["tested"] == len(document["paths"])
    assert cases["generated"] >= least
    assert (cases["with_failures"], cases["errored"], report["errors"]) == (0, 0, [])
    print(f"schemathesis: {cases['generated']} cases, 0 failures")  # noqa: T201 - the evidence
    if narrow:
        kept = one(books, "SELECT count(*) AS rows FROM metering.usage_outbox", ())
        assert kept["rows"] > 50, "most of what is valid must come as far as the database"
