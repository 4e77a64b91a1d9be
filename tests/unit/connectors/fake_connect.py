"""A Kafka Connect of one connector, over real HTTP on loopback, with planted faults.

It keeps the parts of Connect's behaviour that capture rests on, as seen on a real worker: a stop
removes the tasks, offsets go only while stopped, a connector can be created stopped, a failed task
leaves its connector RUNNING, and `name` is added to the config that is given back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import msgspec
import requests

from connectors.connect_client import ConnectClient, Waiting
from connectors.names import CONNECTOR_CLASS, ROUTER_CLASS
from tests.support.http_server import on_loopback


@dataclass
class FakeConnect:
    """State of the fake, open to tests."""

    plugins: list[dict[str, str]] = field(
        default_factory=lambda: [
            {"class": CONNECTOR_CLASS, "type": "source", "version": "3.7.0.Final"},
            {"class": ROUTER_CLASS, "type": "transformation", "version": "3.7.0.Final"},
        ]
    )
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    task_states: dict[str, str] = field(default_factory=dict)
    traces: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    #: What the next resume or restart leads to.
    comes_up: list[str] = field(default_factory=list)
    #: Stops are acknowledged and ignored.
    ignores_stop: bool = False
    #: How many restarts run for a moment and then fail.
    fails_soon: int = 0
    looks_before_failure: int = 0
    #: How many deletions of offsets are undone by a late commit.
    late_commits: int = 0
    #: How many times a new connector's status is still unknown.
    status_comes_late: int = 0
    validation_errors: dict[str, list[str]] = field(default_factory=dict)
    #: (status, body) answered before anything else, first come first served; "drop" closes.
    faults: list[tuple[int, str] | str] = field(default_factory=list)
    #: The same, but after the request was carried out: its answer is lost.
    lost_answers: int = 0
    calls: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, name: str, config: dict[str, str], state: str = "RUNNING") -> None:
        self.configs[name] = dict(config)
        self.states[name] = state
        self.task_states[name] = "RUNNING"
        # Positions outlive their connector.
        self.offsets.setdefault(name, [])

    def wrote(self) -> list[str]:
        return [
            call for call in self.calls if not call.startswith("GET") and "validate" not in call
        ]

    def run(self, name: str) -> None:
        outcome = self.comes_up.pop(0) if self.comes_up else "RUNNING"
        self.states[name] = "RUNNING"
        self.task_states[name] = outcome

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        parts = path.partition("?")[0].strip("/").split("/")
        if parts == [""]:
            return 200, {"version": "4.3.1", "commit": "x", "kafka_cluster_id": "k"}
        if parts[0] == "connector-plugins":
            return self._plugins(parts)
        if method == "GET" and path.endswith("/connectors?expand=status"):
            return 200, {name: {"status": self._read(name, "status")[1]} for name in self.configs}
        if parts == ["connectors"]:
            return self._collection(method, body)
        name, verb = parts[1], parts[2] if len(parts) > 2 else ""
        if name not in self.configs and (method, verb) != ("PUT", "config"):
            return 404, {"error_code": 404, "message": f"Unknown connector {name}"}
        return self._one(method, name, verb, body)

    def _plugins(self, parts: list[str]) -> tuple[int, object]:
        if len(parts) == 1:
            return 200, self.plugins
        configs = [
            {"definition": {"name": option}, "value": {"name": option, "errors": errors}}
            for option, errors in self.validation_errors.items()
        ]
        return 200, {"name": parts[1], "error_count": len(configs), "configs": configs}

    def _collection(self, method: str, body: bytes) -> tuple[int, object]:
        if method == "GET":
            return 200, sorted(self.configs)
        wanted = msgspec.json.decode(body)
        name = wanted["name"]
        if name in self.configs:
            return 409, {"error_code": 409, "message": f"Connector {name} already exists"}
        self.add(name, wanted["config"], wanted.get("initial_state", "RUNNING"))
        return 201, {"name": name}

    def _one(self, method: str, name: str, verb: str, body: bytes) -> tuple[int, object]:
        if method == "GET":
            return self._read(name, verb)
        if verb == "config":
            created = name not in self.configs
            if created:
                self.add(name, {})
            self.configs[name] = msgspec.json.decode(body)
            return (201 if created else 200), {"name": name}
        if verb == "offsets":
            return self._forget(name)
        if verb == "stop" and not self.ignores_stop:
            self.states[name] = "STOPPED"
        if self.fails_soon and verb == "restart":
            self.fails_soon -= 1
            self.looks_before_failure = 3
        if verb == "resume" or (verb == "restart" and self.task_states[name] == "FAILED"):
            self.run(name)
        return 202, {}

    def _forget(self, name: str) -> tuple[int, object]:
        if self.states[name] != "STOPPED":
            return 400, {"error_code": 400, "message": "Connectors must be in the STOPPED state"}
        if self.late_commits:
            self.late_commits -= 1
        else:
            self.offsets[name] = []
        return 200, {"message": "reset"}

    def _read(self, name: str, verb: str) -> tuple[int, object]:
        if verb == "config":
            return 200, {**self.configs[name], "name": name}
        if verb == "offsets":
            return 200, {"offsets": self.offsets[name]}
        if self.status_comes_late:
            self.status_comes_late -= 1
            return 404, {"error_code": 404, "message": f"No status found for connector {name}"}
        if self.looks_before_failure:
            self.looks_before_failure -= 1
            if not self.looks_before_failure:
                self.task_states[name] = "FAILED"
        state = self.states[name]
        task = {"id": 0, "state": self.task_states[name], "worker_id": "w"}
        if self.task_states[name] == "FAILED":
            task["trace"] = self.traces.get(name, "java.lang.Exception: gone\n\tat x")
        tasks = [] if state == "STOPPED" or self.task_states[name] == "NONE" else [task]
        connector = {"state": state, "worker_id": "w"}
        return 200, {"name": name, "connector": connector, "tasks": tasks, "type": "source"}


class FakeTime:
    """A clock that only moves when somebody waits, and remembers the waits."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.waits_s: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self.now_s += seconds

    def waiting(self, total_s: float = 120.0) -> Waiting:
        return Waiting(self.sleep, lambda: self.now_s, lambda: 0.5, total_s=total_s)


@contextmanager
def serving(fake: FakeConnect) -> Iterator[str]:
    """Serve the fake on a free loopback port; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with fake.lock:
                fake.calls.append(f"{self.command} {self.path}")
                fault = fake.faults.pop(0) if fake.faults else None
                if isinstance(fault, tuple):
                    self.reply(fault[0], fault[1].encode())
                    return
                if fault == "drop":
                    self.close_connection = True
                    return
                status, answer = fake.answer(self.command, self.path, body)
                if fake.lost_answers and self.command != "GET":
                    fake.lost_answers -= 1
                    self.close_connection = True
                    return
            self.reply(status, msgspec.json.encode(answer))

        def reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, *_: object) -> None:
            """Say nothing: the calls are kept in the fake."""

        do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815  http.server's names

    with on_loopback(Handler) as address:
        yield address


@contextmanager
def connected(fake: FakeConnect, time: FakeTime, total_s: float = 120.0) -> Iterator[ConnectClient]:
    """A client of a served fake."""
    with serving(fake) as url, requests.Session() as session:
        yield ConnectClient(url, session, time.waiting(total_s))
