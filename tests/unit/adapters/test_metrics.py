"""Every name of the table in the exposition, and no name besides."""

import re
from collections.abc import Iterator

import pytest

from streams.adapters.metrics import METRICS, MetricName, Sample, exposition

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
)


def sample_of(metric: MetricName, number: int) -> Sample:
    return metric.name, f"l{number}" if metric.label else None, number


def all_of_them() -> Iterator[Sample]:
    return (sample_of(metric, number) for number, metric in enumerate(METRICS, 1))


@pytest.mark.parametrize("number", range(1, len(METRICS) + 1))
def test_each_name_is_exposed_with_kind_meaning_and_value(number: int) -> None:
    metric = METRICS[number - 1]
    lines = exposition(all_of_them)().decode().splitlines()
    label = f'{{{metric.label}="l{number}"}}' if metric.label else ""
    assert f"{metric.name}{label} {number}.0" in lines
    assert f"# TYPE {metric.name} {metric.kind}" in lines
    assert f"# HELP {metric.name} {metric.meaning}" in lines


def test_nothing_else_is_exposed() -> None:
    text = exposition(all_of_them)().decode()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert names == {metric.name for metric in METRICS}


def test_a_name_outside_the_table_is_an_error() -> None:
    with pytest.raises(KeyError, match="usage_invented"):
        exposition(lambda: [("usage_invented", None, 1)])()


def test_names_without_samples_are_still_declared() -> None:
    text = exposition(list)().decode()
    assert text.count("# TYPE ") == len(METRICS)


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


def test_two_workers_in_one_process_do_not_share_figures() -> None:
    one, other = exposition(lambda: [("usage_chunks_total", None, 1)]), exposition(list)
    assert b"usage_chunks_total 1.0" in one()
    assert b"usage_chunks_total 1.0" not in other()


def test_names_are_unique_and_their_unit_stands_last() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("usage_") and name.endswith(UNITS) for name in names)
    assert all((m.kind == "counter") == m.name.endswith("_total") for m in METRICS)
