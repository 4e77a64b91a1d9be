from __future__ import annotations

from connectors.config_diff import describe, diff


def test_equal_configs_differ_in_nothing() -> None:
    assert diff({"a": "1"}, {"a": "1"}) == ()
    assert describe(()) == "no changes"


def test_changes_read_like_a_patch_in_the_order_of_names() -> None:
    changes = diff({"b": "1", "c": "x"}, {"a": "new", "b": "2"})
    assert describe(changes) == "+ a = new\n~ b = 1 -> 2\n- c = x"


def test_without_a_held_config_everything_is_added() -> None:
    assert describe(diff(None, {"a": "1"})) == "+ a = 1"


def test_a_literal_secret_is_hidden_and_a_placeholder_is_not() -> None:
    changes = diff({"database.password": "hunter2"}, {"database.password": "${env:METERING_X}"})
    assert describe(changes) == "~ database.password = (hidden) -> ${env:METERING_X}"
