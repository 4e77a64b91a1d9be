import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.connect_answers import Plugin
from connectors.linter import CROSS_CHECKS, Finding, Scope, lint, lint_plugins
from connectors.names import CONNECTOR_CLASS, ROUTER_CLASS
from connectors.rules import FORBIDDEN, RULES
from connectors.source_config import SourceSettings, render
from tests.unit.connectors.planted import ABSENT, REFUSED, VIOLATIONS

SAFE = render(SourceSettings("shop", "db.internal", 5432, "service"))
HEARTBEAT = {
    "heartbeat.interval.ms": "1000",
    "heartbeat.action.query": "SELECT pg_logical_emit_message(false,'metering.hb','x')",
    "message.prefix.exclude.list": "metering.hb",
}
HEARTBEAT_TOPIC = Scope(topics=frozenset({"__debezium-heartbeat.src.shop"}))


def planted(option: str, value: str | None) -> dict[str, str]:
    config = {**SAFE, option: value or ""}
    if value is None:
        del config[option]
    return config


def about(findings: list[Finding], option: str) -> list[Finding]:
    return [finding for finding in findings if finding.option == option]


@pytest.mark.parametrize(("option", "value", "says"), VIOLATIONS)
def test_a_planted_violation_is_found_with_its_consequence_and_a_fix(
    option: str, value: str | None, says: str
) -> None:
    found = about(lint(planted(option, value)), option)
    assert found, f"{option}={value} was let through"
    assert says in str(found[0])
    assert found[0].fix


def test_each_rule_is_broken_by_at_least_one_planted_violation() -> None:
    assert {rule.option for rule in RULES} <= {option for option, _, _ in VIOLATIONS}


def test_each_required_rule_refuses_absence() -> None:
    for rule in (rule for rule in RULES if rule.required):
        found = about(lint(planted(rule.option, ABSENT)), rule.option)
        assert found, rule.option
        assert "is not set" in found[0].rule


def test_each_optional_rule_allows_absence_and_is_not_rendered_by_accident() -> None:
    for rule in (rule for rule in RULES if not rule.required and rule.option in SAFE):
        assert about(lint(planted(rule.option, ABSENT)), rule.option) == []


@pytest.mark.parametrize("option", REFUSED)
@pytest.mark.parametrize("value", ["trust_offset", "true", "0"])
def test_an_option_no_value_makes_safe_is_refused_whatever_it_says(option: str, value: str) -> None:
    found = about(lint(planted(option, value)), option)
    assert len(found) == 1
    assert "must not be set" in found[0].rule
    assert found[0].fix == f"remove {option}"


def test_each_refusal_is_exercised() -> None:
    for forbidden in FORBIDDEN:
        assert any(forbidden.covers(option) for option in REFUSED), forbidden.option


def test_no_option_is_both_ruled_and_refused() -> None:
    for rule, forbidden in itertools.product(RULES, FORBIDDEN):
        # A rule wins over a refused prefix; a refused full name beside a rule would be dead.
        assert rule.option != forbidden.option
    assert len({rule.option for rule in RULES}) == len(RULES)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("error.tolerance", "errors.tolerance"),
        ("snapshotmode", "snapshot.mode"),
        ("producer.override.ack", "producer.override.acks"),
        ("transforms.outbox.table.op.invalid.behaviour", "table.op.invalid.behavior"),
        ("something.else", "remove it"),
        ("transforms.filter.type", "remove it"),
        ("predicates.other.type", "remove it"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_known_name(option: str, hint: str) -> None:
    found = about(lint(planted(option, "x")), option)
    assert len(found) == 1
    assert "unknown option" in found[0].rule
    assert hint in found[0].fix


def test_a_literal_password_is_refused_without_being_shown() -> None:
    text = "\n".join(map(str, lint(planted("database.password", "hunter2"))))
    assert "literal" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "value", ["${env:METERING_CDC_PASSWORD}", "${file:/run/secrets/cdc:password}"]
)
def test_a_placeholder_is_a_password_nobody_can_read(value: str) -> None:
    assert lint(planted("database.password", value)) == []


@pytest.mark.parametrize("value", ["${env:HOME}", "x${env:METERING_A}", "${}"])
def test_half_a_placeholder_is_a_literal(value: str) -> None:
    assert about(lint(planted("database.password", value)), "database.password")


def test_heartbeats_pass_only_with_their_topic_their_query_and_their_messages_kept_in() -> None:
    assert lint({**SAFE, **HEARTBEAT}, HEARTBEAT_TOPIC) == []
    alone = {**SAFE, "heartbeat.interval.ms": "1000"}
    assert len(about(lint(alone, HEARTBEAT_TOPIC), "heartbeat.interval.ms")) == 2
    found = about(lint({**SAFE, **HEARTBEAT}), "heartbeat.interval.ms")
    assert "__debezium-heartbeat.src.shop" in found[0].fix


def test_transaction_metadata_passes_only_with_its_topic() -> None:
    config = planted("provide.transaction.metadata", "true")
    topic = "src.shop.transaction"
    assert topic in about(lint(config), "provide.transaction.metadata")[0].rule
    assert lint(config, Scope(topics=frozenset({topic}))) == []


@pytest.mark.parametrize(
    ("host", "scope", "allowed"),
    [
        ("db.internal", Scope(), False),
        ("10.0.0.5", Scope(), False),
        ("localhost.example.com", Scope(), False),
        ("127.0.0.1", Scope(), True),
        ("127.8.9.1", Scope(), True),
        ("::1", Scope(), True),
        ("localhost", Scope(), True),
        ("postgres", Scope(private_hosts=frozenset({"postgres"})), True),
        ("postgres", Scope(private_hosts=frozenset({"other"})), False),
    ],
)
@pytest.mark.parametrize("mode", ["disable", "require"])
def test_plain_text_and_unchecked_certificates_stay_on_the_machine(
    host: str, scope: Scope, allowed: bool, mode: str
) -> None:
    config = {**SAFE, "database.sslmode": mode, "database.hostname": host}
    assert (lint(config, scope) == []) is allowed


@pytest.mark.parametrize(
    "pattern",
    [
        ".*",
        r"src\.shop\..*",
        r"src\.other\.metering\.usage_outbox",
        r"metering\.usage_outbox",
        "src.shop.metering.usage_outbox",
        "(",
    ],
)
def test_a_predicate_that_is_not_exactly_this_outbox_is_refused(pattern: str) -> None:
    option = "predicates.isOutbox.pattern"
    found = about(lint(planted(option, pattern)), option)
    assert len(found) == 1
    assert r"src\.shop\.metering\.usage_outbox" in found[0].fix


def test_a_queue_must_hold_more_than_a_batch() -> None:
    found = lint({**SAFE, "max.batch.size": "8192"})
    assert [finding.option for finding in found] == ["max.queue.size"]


def test_an_outage_may_hide_behind_running_for_five_minutes_at_most() -> None:
    found = lint(
        {**SAFE, "errors.max.retries": "120", "retriable.restart.connector.wait.ms": "3000"}
    )
    assert [finding.option for finding in found] == ["errors.max.retries"]
    assert "360 s" in found[0].rule


def test_an_empty_config_is_judged_without_a_crash_and_names_every_required_option() -> None:
    named = {finding.option for finding in lint({})}
    assert named == {rule.option for rule in RULES if rule.required}


def test_each_cross_check_says_nothing_of_an_empty_config() -> None:
    assert all(check({}, Scope()) == [] for check in CROSS_CHECKS)


@given(
    st.dictionaries(
        st.sampled_from([rule.option for rule in RULES]) | st.text(max_size=30),
        st.text(max_size=30),
        max_size=8,
    )
)
def test_any_map_is_judged_without_a_crash(changes: dict[str, str]) -> None:
    for finding in lint({**SAFE, **changes}):
        assert finding.rule
        assert finding.fix


def plugins(connector: str | None, router: str | None = "3.7.0.Final") -> list[Plugin]:
    found = [
        Plugin(class_name="org.apache.kafka.connect.transforms.Cast", type="x", version="4.3.1")
    ]
    if connector is not None:
        found.append(Plugin(class_name=CONNECTOR_CLASS, type="source", version=connector))
    if router is not None:
        found.append(Plugin(class_name=ROUTER_CLASS, type="transformation", version=router))
    return found


@pytest.mark.parametrize("version", ["3.7.0.Final", "3.7.1.Final", "3.10.0.Final", "4.0.0.Final"])
def test_versions_that_keep_every_row_pass(version: str) -> None:
    assert lint_plugins(plugins(version, version)) == []


@pytest.mark.parametrize(
    "version",
    [
        "3.6.1.Final",
        "3.6.3.Final",
        "2.7.4.Final",
        "3.7.0.Alpha2",
        "3.7.0.CR1",
        "3.7",
        "",
        "unknown",
    ],
)
def test_versions_that_lose_rows_or_are_not_released_are_refused(version: str) -> None:
    found = lint_plugins(plugins(version, version))
    assert {finding.option for finding in found} == {CONNECTOR_CLASS, ROUTER_CLASS}
    assert all("3.7.0.Final" in finding.fix for finding in found)


def test_missing_plugins_are_named() -> None:
    found = lint_plugins(plugins(None, None))
    assert [finding.option for finding in found] == [CONNECTOR_CLASS, ROUTER_CLASS]
    assert all(finding.rule == "not installed" for finding in found)


def test_mixed_versions_are_refused() -> None:
    assert "one version only" in lint_plugins(plugins("3.7.1.Final"))[0].rule
    twice = [*plugins("3.7.0.Final"), *plugins("3.7.1.Final", None)]
    assert "one version only" in lint_plugins(twice)[0].rule
