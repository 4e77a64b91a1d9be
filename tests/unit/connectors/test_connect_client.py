from __future__ import annotations

import socket

import msgspec
import pytest
import requests

from connectors.connect_answers import ConnectorStatus
from connectors.connect_client import ConnectClient, Waiting
from connectors.errors import (
    ConnectorUnknownError,
    ConnectRejectedError,
    ConnectUnavailableError,
    SettingsRefusedError,
    StateNotReachedError,
)
from tests.unit.connectors.fake_connect import FakeConnect, FakeTime

NAME = "outbox-shop"
CONFIG = {"connector.class": "x", "slot.name": "y"}


def test_reads_are_decoded(fake: FakeConnect, client: ConnectClient) -> None:
    fake.add(NAME, CONFIG)
    position = {"lsn": 9, "lsn_proc": 8, "lsn_commit": 7, "txId": 5}
    fake.offsets[NAME] = [{"partition": {"server": "src.shop"}, "offset": position}]
    assert client.worker().version == "4.3.1"
    assert client.connectors() == [NAME]
    assert [plugin.version for plugin in client.plugins()] == ["3.7.0.Final"] * 2
    assert client.config(NAME) == CONFIG
    assert client.status(NAME).all_running
    offsets = client.offsets(NAME)
    assert offsets.prefixes == {"src.shop"}
    stored = offsets.of("src.shop")
    assert stored is not None
    assert stored.safe_lsn == 7
    assert offsets.of("src.other") is None


def test_all_connectors_say_at_once_whether_they_were_stopped(
    fake: FakeConnect, client: ConnectClient
) -> None:
    fake.add("outbox-warehouse", CONFIG, "PAUSED")
    fake.add(NAME, CONFIG, "STOPPED")
    fake.add("another", CONFIG)
    assert [(seen.name, seen.at_rest) for seen in client.statuses()] == [
        ("another", False),
        (NAME, True),
        ("outbox-warehouse", False),
    ]
    assert fake.calls == ["GET /connectors?expand=status"]


def test_before_a_second_transaction_the_handled_position_is_the_watermark(
    fake: FakeConnect, client: ConnectClient
) -> None:
    fake.add(NAME, CONFIG)
    fake.offsets[NAME] = [
        {"partition": {"server": "a"}, "offset": {"lsn": 9, "lsn_proc": 8}},
        {"partition": {"server": "b"}, "offset": {"lsn": 9}},
        {"partition": {"server": "c"}, "offset": None},
    ]
    offsets = client.offsets(NAME)
    a, b = offsets.of("a"), offsets.of("b")
    assert a is not None
    assert b is not None
    assert (a.safe_lsn, b.safe_lsn, offsets.of("c")) == (8, None, None)


def test_an_unknown_connector_has_no_config_and_no_status(client: ConnectClient) -> None:
    assert client.config(NAME) is None
    with pytest.raises(ConnectorUnknownError, match="apply its config first"):
        client.status(NAME)
    with pytest.raises(ConnectorUnknownError):
        client.stop(NAME)


@pytest.mark.parametrize(
    "fault",
    [
        (409, '{"error_code":409,"message":"rebalance"}'),
        (500, '{"error_code":500,"message":"Request timed out"}'),
        (503, "<html>proxy</html>"),
        "drop",
    ],
)
def test_what_may_pass_is_tried_again_with_growing_waits(
    fake: FakeConnect, client: ConnectClient, time: FakeTime, fault: tuple[int, str] | str
) -> None:
    fake.faults = [fault, fault, fault]
    assert client.connectors() == []
    assert time.waits_s == [0.125, 0.25, 0.5]


@pytest.mark.parametrize("status", [400, 401, 403, 405, 422])
def test_a_no_is_final(
    fake: FakeConnect, client: ConnectClient, time: FakeTime, status: int
) -> None:
    fake.faults = [(status, '{"message":"because"}')]
    with pytest.raises(ConnectRejectedError, match=rf"GET /connectors with HTTP {status}: because"):
        client.connectors()
    assert time.waits_s == []
    assert len(fake.calls) == 1


def test_patience_ends_with_the_last_trouble_and_the_way_out(
    fake: FakeConnect, client: ConnectClient, time: FakeTime
) -> None:
    fake.faults = [(500, '{"message":"Request timed out"}')] * 1000
    with pytest.raises(
        ConnectUnavailableError, match=r"HTTP 500 Request timed out, after \d+ tries"
    ):
        client.connectors()
    assert 100 < sum(time.waits_s) <= 120
    assert max(time.waits_s) <= 10


def test_nobody_listening_is_said_plainly(time: FakeTime) -> None:
    with socket.socket() as unused, requests.Session() as session:
        unused.bind(("127.0.0.1", 0))
        client = ConnectClient(
            f"http://127.0.0.1:{unused.getsockname()[1]}", session, time.waiting(5)
        )
        with pytest.raises(ConnectUnavailableError, match="see whether a Connect worker runs"):
            client.connectors()


def test_an_answer_of_something_else_is_not_believed(
    fake: FakeConnect, client: ConnectClient
) -> None:
    fake.faults = [(200, "<html>hello</html>"), (200, '{"a":1}')]
    for _ in range(2):
        with pytest.raises(ConnectUnavailableError, match="not an answer of Kafka Connect"):
            client.connectors()


@pytest.mark.parametrize("url", ["", "127.0.0.1:8083", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused_at_once(url: str, time: FakeTime) -> None:
    with requests.Session() as session, pytest.raises(SettingsRefusedError, match="connect_url"):
        ConnectClient(url, session, time.waiting())


def test_names_are_quoted_into_one_path_segment(fake: FakeConnect, client: ConnectClient) -> None:
    with pytest.raises(ConnectorUnknownError):
        client.status("../a b")
    assert fake.calls == ["GET /connectors/..%2Fa%20b/status"]


def test_a_connector_is_created_stopped(fake: FakeConnect, client: ConnectClient) -> None:
    client.create_stopped(NAME, CONFIG)
    assert client.status(NAME).state == "STOPPED"
    assert client.config(NAME) == CONFIG


def test_a_new_connector_is_waited_for_until_its_status_is_known(
    fake: FakeConnect, client: ConnectClient, time: FakeTime
) -> None:
    fake.status_comes_late = 3
    client.create_stopped(NAME, CONFIG)
    assert len(time.waits_s) == 3
    assert client.status(NAME).state == "STOPPED"


def test_a_new_connector_whose_status_never_comes_is_not_believed(
    fake: FakeConnect, client: ConnectClient
) -> None:
    fake.status_comes_late = 10_000
    with pytest.raises(ConnectorUnknownError):
        client.create_stopped(NAME, CONFIG)


def test_a_creation_whose_answer_was_lost_is_recognised(
    fake: FakeConnect, client: ConnectClient
) -> None:
    fake.lost_answers = 1
    client.create_stopped(NAME, CONFIG)
    assert fake.calls.count("POST /connectors") == 2
    assert fake.states[NAME] == "STOPPED"


def test_a_creation_during_a_rebalance_is_tried_again(
    fake: FakeConnect, client: ConnectClient
) -> None:
    fake.faults = [(409, '{"message":"rebalance"}')]
    client.create_stopped(NAME, CONFIG)
    assert fake.states[NAME] == "STOPPED"


def test_a_creation_never_replaces_another_config(fake: FakeConnect, client: ConnectClient) -> None:
    fake.add(NAME, {"other": "config"})
    with pytest.raises(ConnectRejectedError, match="exists with another config"):
        client.create_stopped(NAME, CONFIG)
    assert fake.configs[NAME] == {"other": "config"}


def test_offsets_go_only_while_stopped(fake: FakeConnect, client: ConnectClient) -> None:
    fake.add(NAME, CONFIG)
    fake.offsets[NAME] = [{"partition": {"server": "x"}, "offset": {"lsn": 1}}]
    with pytest.raises(ConnectRejectedError, match="STOPPED"):
        client.delete_offsets(NAME)
    client.stop_and_wait(NAME)
    client.delete_offsets(NAME)
    assert client.offsets(NAME).offsets == []


def test_a_stop_that_is_ignored_ends_with_the_last_state_seen(
    fake: FakeConnect, client: ConnectClient
) -> None:
    fake.add(NAME, CONFIG)
    fake.ignores_stop = True
    with pytest.raises(StateNotReachedError, match="connector RUNNING, task 0 RUNNING"):
        client.stop_and_wait(NAME, within_s=5)


def test_a_failed_task_is_visible_though_its_connector_says_running(
    fake: FakeConnect, client: ConnectClient
) -> None:
    fake.add(NAME, CONFIG)
    fake.task_states[NAME] = "FAILED"
    status = client.status(NAME)
    assert (status.state, status.all_running, status.failed) == ("RUNNING", False, True)
    assert status.first_trace == status.cause == "java.lang.Exception: gone"
    client.restart_failed(NAME)
    assert fake.calls[-1].endswith("/restart?includeTasks=true&onlyFailed=true")
    assert client.status(NAME).all_running


def test_a_cause_is_cut_and_the_trace_keeps_all_of_it() -> None:
    line = f"ConnectException: slot is gone. Offset {'x' * 2_000}"
    task = {"id": 0, "state": "FAILED", "trace": f"{line}\n\tat one"}
    told = {"name": NAME, "connector": {"state": "RUNNING"}, "tasks": [task]}
    status = msgspec.convert(told, ConnectorStatus)
    assert status.first_trace == line
    assert status.cause == f"{line[:240]}…"


def test_a_connector_without_tasks_does_not_run(fake: FakeConnect, client: ConnectClient) -> None:
    fake.add(NAME, CONFIG)
    fake.task_states[NAME] = "NONE"
    assert not client.status(NAME).all_running
    assert str(client.status(NAME)) == "connector RUNNING, no tasks"


def test_pauses_double_are_jittered_and_bounded() -> None:
    waiting = Waiting(lambda _: None, lambda: 0.0, lambda: 0.999)
    pauses = [waiting.pause_s(attempt) for attempt in range(40)]
    assert pauses == sorted(pauses)
    assert 9.9 < pauses[-1] <= 10
