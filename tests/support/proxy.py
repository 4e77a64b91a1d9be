"""The network between two parts, as a TCP proxy of this machine that can be cut.

While it is cut nothing arrives on either side and nothing is refused: connections hang, as they do
behind a dead switch, and whoever waits for an answer finds out by waiting. What was sent before is
not forgotten: when the cut is mended it arrives, late, even where the sender has long given up.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from tests.support import witness

PIECE_BYTES: Final = 65_536


class Proxy:
    """Passes connections on to one address."""

    def __init__(self, target: str) -> None:
        """Listens on a port of its own.

        Args:
            target: the URL of the part behind it.
        """
        parts = urlsplit(target)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{parts.scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._whole = threading.Event()
        self._whole.set()
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, name="proxy")]
        self._threads[0].start()

    def cut(self) -> None:
        """Nothing passes from now on."""
        witness.did("the network is cut")
        self._whole.clear()

    def mend(self) -> None:
        """Everything passes again, and first what was on its way."""
        witness.did("the network is whole again")
        self._whole.set()

    def close(self) -> None:
        """Ends all connections; nothing of it runs on."""
        self._whole.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._open):
            _end(each)
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._connect, near)

    def _connect(self, near: socket.socket) -> None:
        self._open.add(near)
        self._whole.wait()
        try:
            far = socket.create_connection(self._target, 10)
        except OSError:
            self._close(near)
            return
        far.settimeout(None)
        self._open.add(far)
        back = self._start(self._pass, far, near)
        self._pass(near, far)
        back.join()
        self._close(near)
        self._close(far)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        """All bytes from one side to the other, and then the news that no more will come."""
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                self._whole.wait()
                sink.sendall(piece)
        self._whole.wait()
        _end(sink)

    def _start(self, what: Callable[..., None], *sockets: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=what, args=sockets, name="proxy")
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()
        return thread

    def _close(self, one: socket.socket) -> None:
        self._open.discard(one)
        one.close()


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied(target: str) -> Iterator[Proxy]:
    """A proxy for the time of a block."""
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
