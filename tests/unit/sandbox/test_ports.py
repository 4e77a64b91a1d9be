import os
import socket
from pathlib import Path

from sandbox import ports
from sandbox.paths import write_json


def test_ports_are_chosen_once(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    chosen = ports.load_or_choose(file)
    assert ports.load_or_choose(file) == chosen


def test_a_port_that_an_older_sandbox_did_not_need_is_chosen_beside_the_kept_ones(
    tmp_path: Path,
) -> None:
    file = tmp_path / "ports.json"
    kept = {"postgres": 1, "kafka": 2, "kafka_controller": 3, "connect": 4, "stripe": 5}
    write_json(file, kept)
    chosen = ports.load_or_choose(file)
    assert {name: getattr(chosen, name) for name in kept} == kept
    assert chosen.webhook > 5
    assert ports.load_or_choose(file) == chosen


def test_ports_are_distinct_and_free() -> None:
    found = ports.free_ports(20)
    assert len(set(found)) == 20
    assert all(ports.can_bind(port) for port in found)


def test_a_kept_port_that_is_held_is_named_with_its_holder(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    with socket.socket() as holder:
        holder.bind((ports.LOOPBACK, 0))
        holder.listen()
        port = holder.getsockname()[1]
        write_json(file, {"kafka": port, "postgres": ports.free_ports(1)[0]})
        (busy,) = ports.busy_ports(file)
        assert (busy.part, busy.port, busy.pid) == ("kafka", port, os.getpid())
        assert ports.listening(port)
    assert ports.busy_ports(file) == []


def test_nothing_kept_is_nothing_busy(tmp_path: Path) -> None:
    assert ports.busy_ports(tmp_path / "ports.json") == []
