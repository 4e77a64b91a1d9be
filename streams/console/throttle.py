"""Failed sign-ins of late → how long the next one has to wait, by address and over all addresses.

Every try counts before it is looked at, and a good one takes its count back: tries that come at the
same time cannot get in beneath the bound. A try that has to wait is not looked at and not counted:
nobody locks anybody out for longer than they keep trying, and they get a try a minute for it.
"""

import threading
from dataclasses import dataclass
from typing import Final

FREE_BY_ADDRESS: Final = 5
"""A person mistypes; nobody waits for that."""
FREE_OVER_ALL: Final = 50
"""Tries from many addresses are one person's too."""
WAIT_S_MAX: Final = 60.0
FORGOTTEN_S: Final = 600.0
"""After the last failure."""
ADDRESSES_MAX: Final = 1_000
"""Remembered; beyond that the oldest is forgotten, and the bound over all holds still."""
_DOUBLINGS_MAX: Final = 6


@dataclass(slots=True)
class _Failures:
    count: int
    last_s: float

    def wait_s(self, free: int, now_s: float) -> float:
        beyond = self.count - free
        if beyond < 0:
            return 0.0
        pause_s = min(WAIT_S_MAX, float(2 ** min(beyond, _DOUBLINGS_MAX)))
        return max(0.0, self.last_s + pause_s - now_s)


class Throttle:
    """Counts failures; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_address: dict[str, _Failures] = {}
        self._all = _Failures(0, 0.0)

    def begin(self, address: str, now_s: float) -> float:
        """Seconds that this try has to wait; 0.0: look at it, it counts as failed until `end`.

        Args:
            address: whence it comes.
            now_s: seconds of any clock that only goes on.
        """
        with self._lock:
            self._forget(now_s)
            mine = self._by_address.get(address, _Failures(0, now_s))
            wait_s = max(
                mine.wait_s(FREE_BY_ADDRESS, now_s), self._all.wait_s(FREE_OVER_ALL, now_s)
            )
            if wait_s == 0.0:
                self._by_address.pop(address, None)
                while len(self._by_address) >= ADDRESSES_MAX:
                    del self._by_address[next(iter(self._by_address))]
                self._by_address[address] = mine  # the youngest stands last
                for each in (mine, self._all):
                    each.count, each.last_s = each.count + 1, now_s
            return wait_s

    def end(self, address: str) -> None:
        """The try that was looked at last was good: the address begins anew."""
        with self._lock:
            self._by_address.pop(address, None)
            self._all.count = max(0, self._all.count - 1)

    def _forget(self, now_s: float) -> None:
        over_s = now_s - FORGOTTEN_S
        for address in [a for a, f in self._by_address.items() if f.last_s <= over_s]:
            del self._by_address[address]
        if self._all.last_s <= over_s:
            self._all.count = 0
