"""meters.toml: every problem at once, and changes that leave judged usage alone."""

import pytest

from streams.core.instant import DAY_US, HOUR_US, MINUTE_US, SECOND_US, wire_text
from streams.core.meters_file import MeterProblem, parse, plan
from tests.support.events import T0_US, meter

NOW_US = T0_US + 10 * HOUR_US + 1


def problems(text: str) -> list[str]:
    return [str(problem) for problem in parse(text).problems]


def table(lines: str = "", name: str = "api_calls") -> str:
    return f"[meters.{name}]\n{lines}\n"


def test_a_bare_meter_gets_the_defaults() -> None:
    assert parse(table()).wanted == ((meter("api_calls"), None),)
    assert not problems(table())


def test_every_setting_is_taken() -> None:
    text = table(
        'event_name = "bytes"\nwindow = "minute"\npublish = "event"\nscale = 3\nskew_max = "90s"\n'
        'close_delay = "5m"\ncarry = "next-period"\naggregation = "count"\n'
        "effective_from = 2026-11-29T00:00:00Z"
    )
    expected = meter(
        "api_calls",
        event_name="bytes",
        window_us=MINUTE_US,
        publish="event",
        scale=3,
        skew_max_us=90 * SECOND_US,
        close_delay_us=5 * MINUTE_US,
        carry="next-period",
        aggregation="count",
    )
    assert not problems(text)
    assert parse(text).wanted == ((expected, T0_US),)


def test_an_instant_may_be_text() -> None:
    text = table('effective_from = "2026-11-29T01:00:00+01:00"')
    assert parse(text).wanted[0][1] == T0_US


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("=", "meters.toml: is not TOML: Invalid statement"),
        ("", "meters: is missing or empty; add at least one [meters.NAME]"),
        ("meters = 5", "meters: is missing or empty"),
        ("[meters]", "meters: is missing or empty"),
        ("[metres.api]\n[meters.a]", "metres: unknown table; meters stand under [meters.NAME]"),
        ("[meters]\napi = 5", "meters.api: must be a table: [meters.NAME]"),
        (table(name='"a b"'), "meters.a b: a name has 1 to 100 of A-Z a-z 0-9"),
        (table(name='"tailrace.x"'), "meters.tailrace.x: a name has 1 to 100"),
        (table(name='"_a"'), "meters._a: a name has 1 to 100"),
        (table("windows = 1"), "meters.api_calls.windows: unknown setting; known are aggregation"),
        (table('window = "week"'), "api_calls.window: must be one of minute, hour, day"),
        (table("window = [1]"), "api_calls.window: must be one of minute, hour, day"),
        (table('publish = "always"'), "api_calls.publish: must be one of window, event"),
        (table('carry = "drop"'), "api_calls.carry: must be one of review, next-period, manual"),
        (table('aggregation = "last"'), "api_calls.aggregation: must be one of sum, count"),
        (table('aggregation = "count"'), "api_calls.aggregation: count meters have no levels"),
        (table("scale = 13"), "api_calls.scale: must be a whole number from 0 to 12"),
        (table("scale = true"), "api_calls.scale: must be a whole number"),
        (table("scale = 1.0"), "api_calls.scale: must be a whole number"),
        (table("event_name = 5"), "event_name: must be text of 1 to 100 printable characters"),
        (table('event_name = ""'), "event_name: must be text of 1 to 100 printable characters"),
        (table('event_name = "a\\u0000"'), "event_name: must be text of 1 to 100 printable"),
        (table('skew_max = "1 day"'), "skew_max: '1 day' is not a duration: a whole number and"),
        (table("skew_max = 24"), "skew_max: '24' is not a duration"),
        (table('close_delay = "35d"'), "close_delay: must be at most 34d, since Stripe takes"),
        (table('skew_max = "35d"'), "skew_max: must be at most 34d, since Stripe takes usage for"),
        (
            table('skew_max = "30d"\nclose_delay = "97h"'),
            "close_delay: with skew_max must be at most 34d",
        ),
        (table("effective_from = 2026-11-29"), "effective_from: must be an instant with a time"),
        (table("effective_from = 2026-11-29T00:00:00"), "effective_from: must be an instant"),
        (table('effective_from = "soon"'), "effective_from: must be an instant with a time zone"),
    ],
)
def test_a_problem_names_its_path_and_rule(text: str, expected: str) -> None:
    (problem,) = problems(text)
    assert expected in problem


def test_all_problems_come_at_once() -> None:
    text = table('scale = -1\nwindow = "x"') + table("colour = 1", name="jobs")
    paths = [problem.path for problem in parse(text).problems]
    assert paths == ["meters.api_calls.window", "meters.api_calls.scale", "meters.jobs.colour"]


def test_a_new_meter_may_date_from_the_beginning() -> None:
    additions, found = plan([], parse(table()), NOW_US, HOUR_US)
    assert (additions, found) == ([meter("api_calls")], [])
    dated = parse(table("effective_from = 2026-11-29T00:00:00Z"))
    assert plan([], dated, NOW_US, HOUR_US)[0][0].effective_from_us == T0_US


def test_an_unchanged_meter_adds_nothing() -> None:
    history = [meter("api_calls", effective_from_us=5)]
    assert plan(history, parse(table()), NOW_US, HOUR_US) == ([], [])


def test_a_change_takes_the_next_common_edge_after_the_notice() -> None:
    to_days = parse(table('window = "day"'))
    (line,), found = plan([meter("api_calls")], to_days, NOW_US, HOUR_US)
    assert not found
    assert line == meter("api_calls", version=2, window_us=DAY_US, effective_from_us=T0_US + DAY_US)
    to_minutes = parse(table('window = "minute"'))
    (line,), _ = plan([meter("api_calls")], to_minutes, NOW_US, HOUR_US)
    assert line.effective_from_us == T0_US + 12 * HOUR_US
    (line,), _ = plan([meter("api_calls")], to_minutes, NOW_US - 1, HOUR_US)
    assert line.effective_from_us == T0_US + 11 * HOUR_US


def test_a_change_comes_after_the_one_before_it() -> None:
    later_us = T0_US + 3 * DAY_US
    history = [
        meter("api_calls", version=2, carry="manual", effective_from_us=later_us),
        meter("api_calls"),
    ]
    (line,), _ = plan(history, parse(table('close_delay = "5m"')), NOW_US, HOUR_US)
    assert (line.version, line.effective_from_us) == (3, later_us + HOUR_US)


@pytest.mark.parametrize("instant", ["2026-11-29T11:00:00Z", "2026-11-29T12:30:00Z"])
def test_a_date_too_soon_or_off_the_edge_is_refused(instant: str) -> None:
    text = table(f'carry = "manual"\neffective_from = {instant}') + table(name="jobs")
    additions, found = plan([meter("api_calls")], parse(text), NOW_US, HOUR_US)
    assert not additions
    earliest = wire_text(T0_US + 12 * HOUR_US)
    rule = (
        f"a change takes effect at {earliest} at the earliest and on a multiple of 60 min, so "
        "that no judged event changes"
    )
    assert found == [MeterProblem("meters.api_calls.effective_from", rule)]


def test_a_good_date_is_kept() -> None:
    text = table('carry = "manual"\neffective_from = 2026-11-29T15:00:00Z')
    (line,), _ = plan([meter("api_calls")], parse(text), NOW_US, HOUR_US)
    assert line.effective_from_us == T0_US + 15 * HOUR_US


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (
            "scale = 2",
            "",
            [
                "meters.a.scale: event name e counts units of scale 0 by meters.b, not of scale 2; "
                "use another event_name",
                "meters.b.scale: event name e counts units of scale 2 by meters.a, not of scale 0; "
                "use another event_name",
            ],
        ),
        (
            'publish = "event"\naggregation = "count"',
            'publish = "event"',
            [
                "meters.a.aggregation: event name e is a sum by meters.b, not a count; use another "
                "event_name",
                "meters.b.aggregation: event name e is a count by meters.a, not a sum; use another "
                "event_name",
            ],
        ),
        ("scale = 2", "scale = 2", []),
    ],
)
def test_one_event_name_counts_one_thing(first: str, second: str, expected: list[str]) -> None:
    name = 'event_name = "e"\n'
    assert problems(table(name + first, "a") + table(name + second, "b")) == expected


def test_an_event_name_of_an_older_version_still_counts_what_it_counted() -> None:
    history = [
        meter("old", event_name="e", scale=2),
        meter("old", version=2, event_name="else", scale=2, effective_from_us=5),
    ]
    additions, found = plan(history, parse(table('event_name = "e"', "a")), NOW_US, HOUR_US)
    assert not additions
    assert [problem.path for problem in found] == ["meters.a.scale"]


def test_the_longest_way_is_taken() -> None:
    assert not problems(table('skew_max = "33d"\nclose_delay = "24h"'))
