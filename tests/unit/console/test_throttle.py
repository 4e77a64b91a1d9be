"""Failed sign-ins wait for each other, by address and over all; nothing of it grows without end."""

from __future__ import annotations

import math
from typing import Final

from starlette.testclient import TestClient

from streams.cli.stack import Stack
from streams.console.app import build
from streams.console.operators import Operators
from streams.console.throttle import (
    ADDRESSES_MAX,
    FORGOTTEN_S,
    FREE_BY_ADDRESS,
    FREE_OVER_ALL,
    WAIT_S_MAX,
    Throttle,
)
from streams.console.visit import Console
from streams.core.instant import SECOND_US
from streams.settings import Settings
from tests.unit.console.test_doors import SECRET, Clock

HERE: Final = "192.0.2.1"


def failed(throttle: Throttle, count: int, now_s: float = 0.0, address: str = HERE) -> None:
    for _ in range(count):
        assert throttle.begin(address, now_s) == 0.0


def test_a_few_failures_are_free_and_each_more_waits_twice_as_long_to_a_bound() -> None:
    throttle, now_s = Throttle(), 100.0
    failed(throttle, FREE_BY_ADDRESS, now_s)
    waits = []
    for _ in range(8):
        waits.append(throttle.begin(HERE, now_s))
        assert throttle.begin(HERE, now_s) == waits[-1], "to wait is no failure"
        assert throttle.begin(HERE, now_s + waits[-1] - 0.5) == 0.5
        now_s += waits[-1]
        assert throttle.begin(HERE, now_s) == 0.0
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, WAIT_S_MAX, WAIT_S_MAX]


def test_another_address_does_not_wait_for_it() -> None:
    throttle = Throttle()
    failed(throttle, FREE_BY_ADDRESS)
    assert throttle.begin(HERE, 0.0) > 0
    assert throttle.begin("192.0.2.2", 0.0) == 0.0


def test_a_good_one_takes_its_count_back() -> None:
    throttle = Throttle()
    for _ in range(3 * FREE_OVER_ALL):
        failed(throttle, 1)
        throttle.end(HERE)
    failed(throttle, FREE_BY_ADDRESS)


def test_many_addresses_wait_together() -> None:
    throttle = Throttle()
    for number in range(FREE_OVER_ALL):
        failed(throttle, 1, address=f"192.0.2.{number}")
    assert throttle.begin("198.51.100.1", 0.0) == 1.0


def test_failures_are_forgotten() -> None:
    throttle = Throttle()
    failed(throttle, FREE_BY_ADDRESS)
    assert throttle.begin(HERE, 0.5) > 0
    failed(throttle, FREE_BY_ADDRESS, FORGOTTEN_S)


def test_no_more_addresses_are_kept_than_the_bound() -> None:
    throttle = Throttle()
    for number in range(ADDRESSES_MAX + 50):
        failed(throttle, 1, address=f"host-{number}")
        throttle.end("nobody")
    assert len(throttle._by_address) <= ADDRESSES_MAX


def test_the_page_says_how_long_to_wait_and_the_right_secret_is_not_looked_at_before() -> None:
    clock = Clock()
    console = Console(lambda: Stack(Settings(), None, {}, ()), Operators(SECRET, clock))
    tab = TestClient(build(console), base_url="http://127.0.0.1:8190")

    def sent(secret: str) -> tuple[int, str, str]:
        fields = {"actor": "ann", "secret": secret}
        answer = tab.post("/sign-in", data=fields, follow_redirects=False)
        return answer.status_code, answer.text, answer.headers.get("retry-after", "")

    for _ in range(FREE_BY_ADDRESS):
        assert sent("a guess")[0] == 403
    for secret in ("a guess", SECRET):
        status, text, retry_after = sent(secret)
        assert (status, retry_after) == (429, "1")
        assert "Too many sign-ins failed of late" in text
        assert "Wait 1 s" in text
    clock.us += math.ceil(1.0) * SECOND_US
    assert sent(SECRET)[0] == 303
    assert sent("a guess")[0] == 403
