"""Which loopback ports the parts listen on: chosen once, kept, and checked before every start."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]  # its stubs are a package of their own

from sandbox.paths import read_json, write_json

if TYPE_CHECKING:
    from pathlib import Path

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ports:
    """One port per listener."""

    postgres: int
    kafka: int
    kafka_controller: int
    connect: int
    stripe: int
    webhook: int
    webhook_metrics: int


@dataclass(frozen=True, slots=True)
class Busy:
    """A kept port that somebody else holds now."""

    part: str
    port: int
    pid: int | None
    program: str


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def load_or_choose(file: Path) -> Ports:
    """The ports kept in the file; what is not kept yet is chosen and written there."""
    kept = read_json(file) or {}
    listeners = fields(Ports)
    chosen = dict(zip((field.name for field in listeners), free_ports(len(listeners)), strict=True))
    ports = Ports(**{name: int(kept.get(name, port)) for name, port in chosen.items()})
    if kept != asdict(ports):
        write_json(file, asdict(ports))
    return ports


def busy_ports(file: Path) -> list[Busy]:
    """Kept ports that cannot be bound, with the holder where the machine lets us see it."""
    kept = read_json(file) or {}
    return [_holder(str(part), int(port)) for part, port in kept.items() if not can_bind(int(port))]


def can_bind(port: int) -> bool:
    """Whether a listener could be opened on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def listening(port: int) -> bool:
    """Whether somebody accepts connections on this port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _holder(part: str, port: int) -> Busy:
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            held = connection.laddr and connection.laddr.port == port
            if held and connection.status == psutil.CONN_LISTEN and connection.pid:
                return Busy(part, port, connection.pid, psutil.Process(connection.pid).name())
    return Busy(part, port, None, "unknown program")
