"""Dead meter events from the ledger to the topic: each at least once, none marked too soon."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from streams import topics
from streams.agents.dead_letters import DeadLetterPump
from streams.core.dead_letter import DeadMeterEvent
from streams.ports import LedgerUnavailableError, OutputsDeadError, UndeliveredError
from tests.unit.agents.outside import Broker, Outputs

DETAIL = (
    '{"identifier": "m1:x", "attempts": [{"outcome": "Ambiguous", "code": null},'
    ' {"outcome": "Refused", "code": "no_meter"}], "amount": 9007199254740993}'
)


def letter(number: int, **changes: Any) -> DeadMeterEvent:
    plain = DeadMeterEvent(
        number, "refused", 10 + number, "acme", "api_calls", "9007199254740993",
        0, 60_000_000, 61_500_000, DETAIL,
    )  # fmt: skip
    return replace(plain, **changes)


@dataclass
class Queue:
    """The ledger's queue of dead letters."""

    waiting: list[DeadMeterEvent]
    away: bool = False
    marks: list[list[int]] = field(default_factory=list)

    async def dead_letters(self, limit: int) -> Sequence[DeadMeterEvent]:
        return self.waiting[:limit]

    async def dead_letters_published(self, parked_ids: list[int]) -> None:
        if self.away:
            message = "connection refused"
            raise LedgerUnavailableError(message)
        self.marks.append(parked_ids)
        self.waiting = [one for one in self.waiting if one.parked_id not in parked_ids]


class Bench:
    def __init__(self, count: int) -> None:
        self.queue = Queue([letter(n) for n in range(count)])
        self.broker = Broker()
        self.outputs = Outputs(self.broker, [])
        self.pump = DeadLetterPump(self.queue, self.outputs)

    def ids(self) -> list[int]:
        records = self.broker.outputs.get(topics.DEAD_LETTER, [])
        return [msgspec.json.decode(value)["parked_id"] for _, value in records]


async def test_all_of_them_in_batches() -> None:
    bench = Bench(450)
    await bench.pump.pump()
    assert bench.ids() == list(range(450))
    assert [len(mark) for mark in bench.queue.marks] == [200, 200, 50]


async def test_a_record_carries_evidence_amount_and_what_to_do_next() -> None:
    bench = Bench(1)
    await bench.pump.pump()
    ((key, value),) = bench.broker.outputs[topics.DEAD_LETTER]
    assert key == b"acme"
    record = msgspec.json.decode(value)
    assert record == {
        "v": 1,
        "kind": "refused",
        "parked_id": 0,
        "meter_event_id": 10,
        "tenant_id": "acme",
        "metric": "api_calls",
        "units": "9007199254740993",
        "window_start": "1970-01-01T00:00:00.000000Z",
        "window_end": "1970-01-01T00:01:00.000000Z",
        "parked_at": "1970-01-01T00:01:01.500000Z",
        "next": "create the meter in Stripe, then redrive",
        "detail": msgspec.json.decode(DETAIL),
    }
    assert b'"amount": 9007199254740993' in value, "the detail goes on as it was written"


async def test_a_meter_event_of_several_tenants_has_no_key() -> None:
    bench = Bench(0)
    bench.queue.waiting = [letter(1, tenant_id=None, reason="ambiguous", detail="{}")]
    await bench.pump.pump()
    ((key, value),) = bench.broker.outputs[topics.DEAD_LETTER]
    assert key is None
    assert "redrive only with proof" in msgspec.json.decode(value)["next"]


async def test_an_undelivered_record_is_not_marked_and_comes_again() -> None:
    bench = Bench(3)
    bench.outputs.fault = UndeliveredError("usage.dead-letter: _MSG_TIMED_OUT")
    await bench.pump.pump()
    assert bench.queue.marks == []
    bench.outputs.fault, bench.outputs.queue = None, []
    await bench.pump.pump()
    assert bench.ids() == [0, 1, 2]
    assert bench.queue.waiting == []


async def test_a_lost_mark_repeats_the_record() -> None:
    bench = Bench(2)
    bench.queue.away = True
    await bench.pump.pump()
    bench.queue.away = False
    await bench.pump.pump()
    assert bench.ids() == [0, 1, 0, 1]
    assert bench.queue.waiting == []


async def test_a_dead_producer_ends_the_worker() -> None:
    bench = Bench(1)
    bench.outputs.fault = OutputsDeadError("_FATAL")
    with pytest.raises(OutputsDeadError):
        await bench.pump.pump()
