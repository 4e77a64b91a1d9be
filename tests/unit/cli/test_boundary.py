"""Every error of every package leaves as words and an exit code, never as a traceback."""

from __future__ import annotations

import importlib

import confluent_kafka
import psycopg
import pytest

from connectors.errors import CaptureError, ConnectRejectedError, ConnectUnavailableError
from schemas.errors import MigrationChangedError, SchemaError
from streams.adapters.ledger_pool import LedgerRefusedError
from streams.cli.boundary import KNOWN, explain
from streams.cli.errors import CommandError, TryAgainError
from streams.ports import LedgerUnavailableError
from streams.settings import SettingsError
from streams.topics import TopicsError


def raised_by_kafka() -> TopicsError:
    error = TopicsError("could not list topics")
    error.__cause__ = confluent_kafka.KafkaException("no broker")
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError(["TAILRACE_X: unknown"]), 78),
        (MigrationChangedError("changed"), 78),
        (SchemaError("schema"), 78),
        (ConnectUnavailableError("away"), 69),
        (ConnectRejectedError("PUT /", 400, "no"), 78),
        (LedgerUnavailableError("ledger: away"), 69),
        (LedgerRefusedError("effective_from: too early"), 2),
        (TopicsError("usage.events: has 6 partitions"), 78),
        (raised_by_kafka(), 69),
        (psycopg.OperationalError("connection lost"), 69),
        (psycopg.errors.UndefinedTable("no such table"), 78),
        (psycopg.errors.InsufficientPrivilege("permission denied"), 78),
        (psycopg.errors.LockNotAvailable("busy"), 75),
        (psycopg.errors.DivisionByZero("1/0"), 1),
        (confluent_kafka.KafkaException("no broker"), 69),
        (TryAgainError("not now", fix="later"), 75),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_an_error_of_a_package_has_its_exit_code_and_its_words(
    error: BaseException, code: int
) -> None:
    shown = explain(error)
    assert shown.exit_code == code
    assert shown.what
    assert shown.lines()[0].startswith("error: ")


def test_an_error_nobody_expected_is_called_a_defect() -> None:
    shown = explain(ZeroDivisionError("division by zero"))
    assert shown.exit_code == 70
    assert "defect" in shown.what
    assert "--debug" in shown.fix


@pytest.mark.parametrize("name", [name for name in KNOWN if not name.startswith("cimpl.")])
def test_every_class_that_is_known_by_name_exists(name: str) -> None:
    module, _, qualname = name.rpartition(".")
    assert isinstance(getattr(importlib.import_module(module), qualname), type)


def test_every_error_of_capture_is_covered_by_its_own_line_or_its_base() -> None:
    def descendants(kind: type[CaptureError]) -> set[type[CaptureError]]:
        below = [descendants(each) for each in kind.__subclasses__()]
        return {kind}.union(*below)

    for kind in descendants(CaptureError):
        assert explain(kind.__new__(kind)).exit_code != 70


def test_every_error_of_ours_says_what_to_do_next() -> None:
    for kind in CommandError.__subclasses__():
        shown = explain(kind("what", fix="type this"))
        assert shown.lines() == ["error: what", "  next: type this"]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("postgresql://me:pL4nt3d@host/x"),
        psycopg.OperationalError("password=pL4nt3d refused"),
        TryAgainError("sk_live_pL4nt3d was refused", fix="not with sk_live_pL4nt3d"),
    ],
)
def test_what_is_shown_of_an_error_holds_no_secret(error: Exception) -> None:
    assert "pL4nt3d" not in repr(explain(error))
    assert "***" in explain(error).what
