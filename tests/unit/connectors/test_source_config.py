from dataclasses import replace
from typing import Any

import pytest

from connectors import names
from connectors.errors import SettingsRefusedError
from connectors.linter import lint
from connectors.source_config import SourceSettings, options, render

SETTINGS = SourceSettings("billing-eu", "db.internal", 5432, "service")


def test_what_is_rendered_passes_the_linter() -> None:
    assert lint(render(SETTINGS)) == []
    assert lint(render(replace(SETTINGS, exactly_once=True))) == []
    assert lint(render(replace(SETTINGS, host="127.0.0.1", ssl_mode="disable"))) == []
    assert lint(render(replace(SETTINGS, ssl_root_cert="/etc/ca.pem"))) == []


def test_rendering_is_a_function_of_the_settings_alone() -> None:
    assert render(SETTINGS) == render(replace(SETTINGS))


def test_every_option_says_why_and_occurs_once() -> None:
    chosen = options(SETTINGS)
    assert len({option.name for option in chosen}) == len(chosen)
    assert all(len(option.reason) > 10 for option in chosen)


def test_no_secret_is_rendered_only_the_place_where_the_worker_finds_it() -> None:
    assert render(SETTINGS)["database.password"] == "${env:METERING_CDC_PASSWORD}"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("topic.prefix", "src.billing-eu"),
        ("slot.name", "metering_outbox"),
        ("publication.name", "metering_outbox"),
        ("plugin.name", "pgoutput"),
        ("snapshot.mode", "no_data"),
        ("publication.autocreate.mode", "disabled"),
        ("errors.tolerance", "none"),
        ("event.processing.failure.handling.mode", "fail"),
        ("event.converting.failure.handling.mode", "fail"),
        ("heartbeat.interval.ms", "0"),
        ("provide.transaction.metadata", "false"),
        ("predicates.isOutbox.pattern", r"src\.billing\-eu\.metering\.usage_outbox"),
        ("transforms.outbox.table.field.event.id", "event_id"),
        ("transforms.outbox.table.field.event.key", "kafka_key"),
        ("transforms.outbox.route.by.field", "event_type"),
        ("transforms.outbox.route.topic.replacement", "usage.events"),
        ("producer.override.acks", "all"),
        ("producer.override.enable.idempotence", "true"),
        ("slot.max.retries", "60"),
        ("slot.retry.delay.ms", "1000"),
        ("errors.max.retries", "30"),
        ("retriable.restart.connector.wait.ms", "2000"),
    ],
)
def test_the_options_that_decide_about_loss_have_their_proven_value(
    option: str, value: str
) -> None:
    assert render(SETTINGS)[option] == value


def test_options_that_no_value_makes_safe_are_left_out() -> None:
    assert "offset.mismatch.strategy" not in render(SETTINGS)


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        ({"source": "Billing"}, "source"),
        ({"source": "src.billing"}, "source"),
        ({"source": ""}, "source"),
        ({"source": "x" * 64}, "source"),
        ({"host": " "}, "host"),
        ({"port": 0}, "port"),
        ({"port": 65536}, "port"),
        ({"database": ""}, "database"),
        ({"user": ""}, "user"),
        ({"ssl_mode": "prefer"}, "ssl_mode"),
        ({"topic": "usage events"}, "topic"),
        ({"slot": "Metering"}, "slot"),
        ({"publication": "a b"}, "publication"),
        ({"password_variable": "HOME"}, "password_variable"),
    ],
)
def test_bad_settings_are_refused_by_field(broken: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingsRefusedError) as refused:
        render(replace(SETTINGS, **broken))
    assert [problem.split(":")[0] for problem in refused.value.problems] == [field]


def test_all_bad_settings_are_named_at_once() -> None:
    with pytest.raises(SettingsRefusedError) as refused:
        render(replace(SETTINGS, source="", port=0, ssl_mode="allow"))
    assert len(refused.value.problems) == 3


def test_a_connector_is_named_after_its_source() -> None:
    assert names.connector_name("billing-eu") == "outbox-billing-eu"
    with pytest.raises(SettingsRefusedError, match="source"):
        names.connector_name("../x")
