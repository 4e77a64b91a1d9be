"""The oracle counts right by hand, agrees with the product's rules, and notices every error."""

from dataclasses import replace
from decimal import Decimal

import pytest

from streams.core.catalogue import Catalogue
from streams.core.instant import wire_text
from streams.core.level import CellKey
from tests.bench.oracle import ID_MODULUS, Tally, differences, tally
from tests.bench.workload import SCALES, Shape, messages
from tests.support.events import T0_US, Partition, Record, meter

HAND = (
    '{"event_id": "00000000-0000-0000-0000-00000000000a", "tenant_id": "t", "metric": "m",'
    ' "quantity": "QUANTITY", "occurred_at": "OCCURRED",'
    ' "received_at": "2026-11-02T00:00:00.000000Z"}'
)


def by_hand(quantity: str, occurred: str, last_digit: str = "a") -> bytes:
    text = HAND.replace("QUANTITY", quantity).replace("OCCURRED", occurred)
    return text.replace("0a", "0" + last_digit).encode()


def test_a_few_records_by_hand() -> None:
    found = tally(
        [
            by_hand("1.5", "2026-11-01T05:59:59.999999Z"),
            by_hand("1.5", "2026-11-01T05:59:59.999999Z"),
            by_hand("2", "2026-11-01T05:00:00.000000Z", "b"),
            by_hand("7", "2026-11-01T06:00:00.000000Z", "c"),
            by_hand("7", "2026-11-01T00:00:00.000000Z", "d"),
            by_hand("7", "2026-10-31T23:59:59.999999Z", "e"),
            by_hand("7", "2026-10-31T23:59:59.999999Z", "e"),
            by_hand("about 7", "2026-11-01T06:00:00.000000Z", "f"),
            b"{",
        ]
    )
    assert found == Tally(
        records=9,
        accepted=4,
        duplicates=2,
        late=1,
        malformed=2,
        ids=0xA + 0xB + 0xC + 0xD,
        totals={
            ("t", "m", "2026-11-01T05"): (2, Decimal("3.5")),
            ("t", "m", "2026-11-01T06"): (1, Decimal(7)),
            ("t", "m", "2026-11-01T00"): (1, Decimal(7)),
        },
    )


def test_it_agrees_with_the_products_rules_on_the_workload() -> None:
    records = list(messages(Shape(records=6_000)))
    expected = tally(message.value for message in records)
    meters = tuple(meter(metric, scale=scale) for metric, scale in SCALES.items())
    partition = Partition(catalogue=Catalogue(meters, read_at_us=T0_US))
    partition.run([Record(n, T0_US // 1000, m.key, m.value) for n, m in enumerate(records)])
    found = Tally(
        records=len(records),
        accepted=partition.counts["accepted"],
        duplicates=partition.counts["duplicate"],
        late=partition.counts["review"],
        malformed=partition.counts["dead"],
        ids=sum(
            int.from_bytes(identity, "big")
            for identity, mark in partition.marks.items()
            if mark[:1] == b"a"
        )
        % ID_MODULUS,
    )
    for key, reading in partition.readings.items():
        if not isinstance(key, CellKey):
            hour = wire_text(key.window_start_us)[:13]
            total = Decimal(reading.total).scaleb(-SCALES[key.metric])
            found.totals[key.tenant_id, key.metric, hour] = (reading.records, total)
    assert differences(expected, found) == []
    assert min(expected.duplicates, expected.late, expected.malformed) > 0


GOOD = Tally(10, 6, 2, 1, 1, 77, {("t", "m", "h"): (6, Decimal("3.5"))})


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (replace(GOOD, records=9), "records: 9, must be 10"),
        (replace(GOOD, accepted=7), "accepted: 7, must be 6"),
        (replace(GOOD, duplicates=1), "duplicates: 1, must be 2"),
        (replace(GOOD, late=0), "late: 0, must be 1"),
        (replace(GOOD, malformed=0), "malformed: 0, must be 1"),
        (replace(GOOD, ids=78), "ids: 78, must be 77"),
        (replace(GOOD, totals={("t", "m", "h"): (6, Decimal("3.501"))}), "totals: 1 of 1 differ"),
        (replace(GOOD, totals={("t", "m", "h"): (5, Decimal("3.5"))}), "totals: 1 of 1 differ"),
        (replace(GOOD, totals={}), "totals: 1 of 1 differ"),
        (
            replace(GOOD, totals={**GOOD.totals, ("t", "m", "i"): (1, Decimal(1))}),
            "totals: 1 of 2 differ",
        ),
    ],
)
def test_any_difference_is_named(wrong: Tally, named: str) -> None:
    lines = differences(GOOD, wrong)
    assert len(lines) == 1
    assert lines[0].startswith(named)


def test_an_equal_decimal_of_another_exponent_is_no_difference() -> None:
    assert differences(GOOD, replace(GOOD, totals={("t", "m", "h"): (6, Decimal("3.500"))})) == []
