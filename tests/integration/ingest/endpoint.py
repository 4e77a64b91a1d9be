"""`tailrace ingest` as a process over an outbox, and a producer that calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import requests

from streams.ingest.keys import add
from tests.support.stack import ROOT

EVENT: dict[str, Any] = {
    "tenant_id": "acme",
    "metric": "api_calls",
    "quantity": 3,
    "event_key": "k1",
}
TENANTS = ("acme", "beta")
CALL_S = 60


@dataclass
class Endpoint:
    """A running process and a key to it."""

    process: subprocess.Popen[str]
    address: str
    key: str
    keys: Path
    log: Path

    def post(self, body: Any, content_type: str = "application/json", **headers: str) -> Any:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        sent = {"Authorization": f"Bearer {self.key}", "Content-Type": content_type, **headers}
        return requests.post(f"{self.address}/v1/usage", data=content, headers=sent, timeout=CALL_S)

    def metrics(self) -> str:
        """What it tells Prometheus, at the address that it has logged."""
        lines = (msgspec.json.decode(line) for line in self.log.read_text().splitlines())
        (address,) = (line["address"] for line in lines if line["event"] == "metrics")
        return requests.get(address, timeout=CALL_S).text

    def get(self, path: str) -> requests.Response:
        return requests.get(self.address + path, timeout=CALL_S)


def environment(dsn: str, keys: Path, **settings: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")},
        "PYTHONPATH": str(ROOT),
        "TAILRACE_INGEST_DSN": dsn,
        "TAILRACE_INGEST_KEYS_FILE": str(keys),
        "TAILRACE_INGEST_PORT": "0",
        "TAILRACE_METRICS_PORT": "0",
        **settings,
    }


@contextmanager
def serving(dsn: str, folder: Path, name: str = "shop", **settings: str) -> Iterator[Endpoint]:
    """The process, for the time of a block; it has ended in order afterwards, or was killed.

    Args:
        dsn: of the outbox.
        folder: where the file of keys is, or comes to be; processes may share it.
        name: whose key.
        settings: by the names of their variables.
    """
    keys = folder / "keys.toml"
    key = add(keys, name, TENANTS)
    log = folder / f"{name}.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "streams.cli.main", "ingest"],
            cwd=folder,
            env=environment(dsn, keys, **settings),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("ingest ready: http://127.0.0.1:"), (
            folder / f"{name}.log"
        ).read_text()
        yield Endpoint(process, said.split()[2], key, keys, log)
        ended_by_test = process.poll() is not None
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=40)
    assert ended_by_test or process.returncode == 0, log.read_text()
