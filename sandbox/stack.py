"""The whole stack as values: directory, ports and wishes → parts, order and sandbox.json."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandbox import clock, connect, facts, install, kafka, postgres
from sandbox.connect import Connect
from sandbox.installation import Address, Installation
from sandbox.kafka import Kafka
from sandbox.paths import read_json, write_json
from sandbox.ports import LOOPBACK, free_ports
from sandbox.postgres import Postgres
from sandbox.runner import Part, Step
from sandbox.stripe import API_KEY, Stripe
from sandbox.webhook import Webhook, url_of
from sandbox.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sandbox.board import PartState
    from sandbox.jars import Jars
    from sandbox.paths import Paths
    from sandbox.ports import Ports
    from sandbox.secrets import Secrets
    from sandbox.wanted import Wanted

FOREIGN_PREFIXES = ("TAILRACE_", "PG", "KAFKA_", "CONNECT_", "SHIFT_CLOCK_", "METERING_")
"""Variables of the caller's shell that would change what a part does."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found on this machine to run the stack with."""

    java: Path
    jars: Jars
    binaries: postgres.Binaries
    account: str | None


@dataclass(frozen=True, slots=True)
class Stack:
    """The parts of one sandbox, with their addresses."""

    paths: Paths
    wanted: Wanted
    postgres: Postgres
    kafka: Kafka
    connect: Connect
    stripe: Stripe
    ports: Ports
    secrets: Secrets
    env: Mapping[str, str]

    @property
    def stripe_url(self) -> str:
        """The API base that the workers use."""
        return self.wanted.stripe or self.stripe.url

    @property
    def installation(self) -> Installation:
        """What the installation steps work with."""
        here = Address(LOOPBACK, self.postgres.port)
        return Installation(
            database=here,
            database_of_connect=here,
            secrets=self.secrets,
            bootstrap=self.kafka.bootstrap,
            connect_url=self.connect.url,
        )

    def parts(self) -> list[Part]:
        """Every part but the workers."""
        parts = [
            Part(
                "postgres",
                self.postgres.prepare,
                self.postgres.command,
                self.postgres.ready,
                stop=postgres.STOP,
            ),
            Part(
                "kafka",
                self.kafka.prepare,
                self.kafka.command,
                self.kafka.ready,
                stop=kafka.STOP,
            ),
            Part(
                "connect",
                self.connect.prepare,
                self.connect.command,
                self.connect.ready,
                after=("kafka",),
                stop=connect.STOP,
                deadline_s=90.0,
            ),
        ]
        if self.wanted.stripe is None:
            stand_in, receiver = self.stripe, self.webhook
            parts += [
                Part("stripe", stand_in.prepare, stand_in.command, stand_in.ready),
                Part(
                    "webhook",
                    receiver.prepare,
                    receiver.command,
                    receiver.ready,
                    after=("stripe", "ledger"),
                ),
            ]
        return parts

    def steps(self) -> list[Step]:
        """The installation, in order."""
        return install.steps(self.installation, self._note_partitions)

    def worker(self, number: int) -> tuple[Part, Worker]:
        """One worker; it starts when everything else is there."""
        worker = Worker(
            number=number,
            data=self.paths.worker_data(number),
            metrics_port=free_ports(1)[0],
            settings=self.worker_settings,
            env=self.env,
        )
        before = ("postgres", "kafka", *(step.name for step in self.steps()))
        part = Part(f"worker-{number}", worker.prepare, worker.command, worker.ready, after=before)
        return part, worker

    @property
    def webhook(self) -> Webhook:
        """Where the stand-in tells of rejections; another Stripe cannot reach it."""
        port, metrics_port = self.ports.webhook, self.ports.webhook_metrics
        return Webhook(port, metrics_port, self.worker_settings(), self.env)

    def worker_settings(self) -> dict[str, str]:
        """The settings all workers share; the same work for any other command of the service."""
        own = facts.settings(self.installation, self.stripe_url, self.wanted.stripe_key or API_KEY)
        grown = read_json(self.paths.partitions_json)
        return own if grown is None else {**own, "TAILRACE_PARTITIONS": str(grown["partitions"])}

    def _note_partitions(self, partitions: int) -> None:
        """Kept with the data: topics that were grown stay so."""
        write_json(self.paths.partitions_json, {"partitions": partitions})

    def render(
        self, states: Mapping[str, PartState], stack: str, workers: Mapping[int, Worker]
    ) -> dict[str, Any]:
        """The content of sandbox.json."""

        def pid(part: str) -> int | None:
            state = states.get(part)
            return None if state is None or state.ref is None else state.ref.pid

        return {
            "state": stack,
            **facts.addresses(
                self.installation,
                self.stripe_url,
                None if self.wanted.stripe else self.webhook.url,
            ),
            "settings": self.worker_settings(),
            "supervisor_pid": os.getpid(),
            "pids": {
                **{part.name: pid(part.name) for part in self.parts()},
                **({"stripe": None, "webhook": None} if self.wanted.stripe else {}),
                "workers": [
                    {
                        "pid": pid(f"worker-{number}"),
                        "data_dir": str(worker.data),
                        "metrics_url": worker.metrics_url,
                    }
                    for number, worker in sorted(workers.items())
                ],
            },
            "parts": {
                name: {"state": state.state, "restarts": state.restarts, "text": state.text}
                for name, state in states.items()
            },
        }


def build(
    paths: Paths,
    wanted: Wanted,
    machine: Machine,
    ports: Ports,
    secrets: Secrets,
    environ: Mapping[str, str],
) -> Stack:
    """Puts a stack together; starts nothing.

    Raises:
        ClockError: A shifted clock is wanted and cannot be had.
    """
    env = part_environment(environ)
    if wanted.shift_clock:
        env.update(clock.environment(paths))
    server = Postgres(
        machine.binaries,
        paths.dir / "postgres",
        ports.postgres,
        secrets.superuser,
        machine.account,
        env,
    )
    broker = Kafka(
        machine.java,
        machine.jars.kafka,
        paths.dir / "kafka",
        paths.etc,
        ports.kafka,
        ports.kafka_controller,
        env,
    )
    worker = Connect(
        machine.java,
        machine.jars.kafka,
        machine.jars.plugins,
        paths.etc,
        ports.connect,
        broker.bootstrap,
        {**env, connect.PASSWORD_VARIABLE: secrets.cdc},
    )
    stand_in = Stripe(paths.dir / "stripe", ports.stripe, url_of(ports.webhook), env)
    return Stack(paths, wanted, server, broker, worker, stand_in, ports, secrets, env)


def part_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without what would steer a part."""
    kept = {name: value for name, value in environ.items() if not name.startswith(FOREIGN_PREFIXES)}
    return {**kept, "TZ": "UTC", "PYTHONUNBUFFERED": "1"}
