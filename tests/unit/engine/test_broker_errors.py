"""A broker that is away is named with its beginning, now and then, and its end is told."""

from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from streams.engine.broker_errors import QUIET_S, TOLD_EVERY_S, BrokerErrors

REFUSED = KafkaError(KafkaError._TRANSPORT, "Connection refused")


@dataclass
class Clocks:
    elapsed: float = 1_000.0

    def seconds(self) -> float:
        return self.elapsed

    def wall(self) -> str:
        return f"at {self.elapsed:.0f}"


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def errors(clocks: Clocks) -> BrokerErrors:
    return BrokerErrors(clocks.seconds, clocks.wall)


def told(errors: BrokerErrors, clocks: Clocks, *elapsed: float) -> list[tuple[str, str]]:
    """What is logged when errors come at these instants, and the feeder looks at each."""
    with capture_logs() as lines:
        for at in elapsed:
            clocks.elapsed = at
            errors.look()
            errors.note(REFUSED)
    return [(line["event"], line["since"]) for line in lines]


def test_an_outage_is_said_at_once_and_then_now_and_then_with_its_beginning(
    errors: BrokerErrors, clocks: Clocks
) -> None:
    assert (
        told(errors, clocks, 5, 6, 5 + TOLD_EVERY_S - 1, 5 + TOLD_EVERY_S)
        == [("broker_error", "at 5")] * 2
    )
    assert (errors.count, errors.since) == (4, "at 5")


def test_an_outage_is_over_when_nothing_was_heard_of_it_for_long_enough(
    errors: BrokerErrors, clocks: Clocks
) -> None:
    told(errors, clocks, 5)
    with capture_logs() as lines:
        clocks.elapsed = 5 + QUIET_S - 1
        errors.look()
        assert lines == []
        clocks.elapsed = 5 + QUIET_S
        errors.look()
        errors.look()
    assert [(line["event"], line["since"]) for line in lines] == [("broker_errors_over", "at 5")]
    assert errors.since is None
    assert told(errors, clocks, 500) == [("broker_error", "at 500")]
