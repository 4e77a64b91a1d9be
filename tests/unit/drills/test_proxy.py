"""The network that drills cut: nothing passes while it is cut, and nothing of it is forgotten."""

import contextlib
import queue
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.proxy import Proxy, proxied

PAUSE_S = 0.2
"""How long nothing has to arrive to count as nothing."""


class Part:
    """What stands behind the proxy: it keeps what it hears, and answers in capitals."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.heard: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._serve, daemon=True).start()

    def end(self) -> None:
        with contextlib.suppress(OSError):  # it has ended before
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while said := connection.recv(100):
                    self.heard.put(said)
                    connection.sendall(said.upper())
            except OSError:
                return


@pytest.fixture
def part() -> Iterator[Part]:
    made = Part()
    yield made
    made.end()


@pytest.fixture
def proxy(part: Part) -> Iterator[Proxy]:
    with proxied(part.url) as made:
        yield made


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2])), 5)


def silent(connection: socket.socket) -> bool:
    """Neither an answer nor an end of the connection."""
    return select.select([connection], [], [], PAUSE_S)[0] == []


def test_what_is_said_arrives_and_so_does_the_answer(part: Part, proxy: Proxy) -> None:
    with connected(proxy) as caller:
        caller.sendall(b"one")
        assert caller.recv(100) == b"ONE"
        assert part.heard.get(timeout=5) == b"one"


def test_while_it_is_cut_callers_old_and_new_hang(part: Part, proxy: Proxy) -> None:
    with connected(proxy) as old:
        old.sendall(b"one")
        assert old.recv(100) == b"ONE"
        proxy.cut()
        with connected(proxy) as new:
            for caller in (old, new):
                caller.sendall(b"two")
                assert silent(caller)
            assert part.heard.get(timeout=5) == b"one"
            assert part.heard.empty()
            proxy.mend()
            for caller in (old, new):
                assert caller.recv(100) == b"TWO"


def test_what_was_on_its_way_arrives_late_though_its_sender_has_given_up(
    part: Part, proxy: Proxy
) -> None:
    with connected(proxy) as caller:
        caller.sendall(b"one")
        assert caller.recv(100) == b"ONE"
        proxy.cut()
        caller.sendall(b"two")
        assert silent(caller)
    proxy.mend()
    assert [part.heard.get(timeout=5) for _ in range(2)] == [b"one", b"two"]


def test_a_part_that_is_gone_is_a_closed_connection(part: Part, proxy: Proxy) -> None:
    part.end()
    with connected(proxy) as caller:
        assert caller.recv(100) == b""


def test_nothing_of_it_runs_on_even_where_it_is_still_cut(part: Part) -> None:
    with proxied(part.url) as proxy, connected(proxy) as caller:
        caller.sendall(b"one")
        assert caller.recv(100) == b"ONE"
        proxy.cut()
        caller.sendall(b"two")
    assert not [thread for thread in threading.enumerate() if thread.name == "proxy"]
