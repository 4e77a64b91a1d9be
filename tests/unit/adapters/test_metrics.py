"""Every name of the table in the exposition, and no name besides."""

import re
from collections.abc import Iterator
from math import inf

import pytest

from streams.adapters.metrics import (
    METRICS,
    SHARED,
    TOLD_BY,
    MetricName,
    Sample,
    Spread,
    SpreadSample,
    Teller,
    exposition,
)

UNITS = (
    "_total",
    "_offset",
    "_held",
    "_back",
    "_seconds",
    "_open",
    "_lost",
    "_double",
    "_findings",
    "_paused",
    "_up",
    "_events",
    "_units",
    "_windows",
    "_levels",
    "_entries",
    "_lanes",
    "_proposals",
    "_cells",
    "_items",
    "_halts",
    "_bytes",
    "_running",
    "_records",
    "_failures",
    "_waiting",
    "_remarks",
    "_risk",
)
EVERY = [(teller, metric) for teller, told in TOLD_BY.items() for metric in told]


def sample_of(metric: MetricName, number: int) -> Sample | SpreadSample:
    values = tuple(f"{label}{number}" for label in metric.labels) or None
    if metric.kind == "histogram":
        return metric.name, values, Spread(((1.5, 1), (inf, number)), 2.5)
    return metric.name, values, number


def all_of(teller: Teller) -> Iterator[Sample | SpreadSample]:
    return (sample_of(metric, number) for number, metric in enumerate(TOLD_BY[teller], 1))


@pytest.mark.parametrize(("teller", "metric"), EVERY)
def test_each_name_is_exposed_with_kind_meaning_and_value(
    teller: Teller, metric: MetricName
) -> None:
    number = TOLD_BY[teller].index(metric) + 1
    lines = exposition(lambda: all_of(teller), teller)().decode().splitlines()
    labels = ",".join(f'{label}="{label}{number}"' for label in sorted(metric.labels))
    count = f"{metric.name}_count" if metric.kind == "histogram" else metric.name
    assert f"{count}{'{' + labels + '}' if labels else ''} {number}.0" in lines
    assert f"# TYPE {metric.name} {metric.kind}" in lines
    assert f"# HELP {metric.name} {metric.meaning}" in lines


@pytest.mark.parametrize("teller", TOLD_BY)
def test_nothing_else_is_exposed(teller: Teller) -> None:
    text = exposition(lambda: all_of(teller), teller)().decode()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert names == {metric.name for metric in TOLD_BY[teller]}


def test_two_tell_the_same_name_only_where_that_is_meant() -> None:
    worker, exporter, ingest = ({m.name for m in told} for told in TOLD_BY.values())
    assert worker & exporter == set(SHARED)
    assert not ingest & (worker | exporter)


def test_a_name_outside_the_table_is_an_error() -> None:
    for name in ("usage_invented", "usage_exporter_up"):
        with pytest.raises(KeyError, match=name):
            exposition(lambda name=name: [(name, None, 1)])()  # type: ignore[misc]


@pytest.mark.parametrize("teller", TOLD_BY)
def test_names_without_samples_are_still_declared(teller: Teller) -> None:
    text = exposition(list, teller)().decode()
    assert text.count("# TYPE ") == len(TOLD_BY[teller])


def test_the_figures_are_read_when_somebody_asks() -> None:
    count = 0
    read = exposition(lambda: [("usage_records_total", None, count)])
    assert b"usage_records_total 0.0" in read()
    count = 7
    assert b"usage_records_total 7.0" in read()


def test_several_labels_of_one_name() -> None:
    samples: list[Sample] = [("usage_partition_held", "3", 1), ("usage_partition_held", "7", 1)]
    text = exposition(lambda: samples)().decode()
    assert 'usage_partition_held{partition="3"} 1.0' in text
    assert 'usage_partition_held{partition="7"} 1.0' in text


def test_a_histogram_is_told_by_its_buckets_their_sum_and_their_number() -> None:
    (metric,) = [m for m in METRICS if m.kind == "histogram"]
    text = exposition(lambda: [sample_of(metric, 3)], "ingest")().decode()
    assert re.findall(rf"^({metric.name}_.*)$", text, re.MULTILINE) == [
        f'{metric.name}_bucket{{le="1.5"}} 1.0',
        f'{metric.name}_bucket{{le="+Inf"}} 3.0',
        f"{metric.name}_count 3.0",
        f"{metric.name}_sum 2.5",
    ]


def test_two_workers_in_one_process_do_not_share_figures() -> None:
    one, other = exposition(lambda: [("usage_chunks_total", None, 1)]), exposition(list)
    assert b"usage_chunks_total 1.0" in one()
    assert b"usage_chunks_total 1.0" not in other()


def test_names_are_unique_and_their_unit_stands_last() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("usage_") and name.endswith(UNITS) for name in names)
    assert all((m.kind == "counter") == m.name.endswith("_total") for m in METRICS)
