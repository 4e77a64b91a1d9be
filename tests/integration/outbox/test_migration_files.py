"""Files that another tool runs make the very same outbox; and what a role sees of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from jsonschema import Draft202012Validator

from schemas.migration_files import MigrationFile, migration_files
from schemas.migrations import install, missing
from schemas.roles import CALLS
from streams.cli.main import run
from tests.support.catalog import describe
from tests.support.outbox import record
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres

Fresh = Callable[..., Database]
PARAMETERS: Mapping[str, str | int] = {"source": "shop", "partitions": 12, "slot": "slot_files"}
RULES = msgspec.json.decode(
    (Path(__file__).parents[3] / "schemas" / "cli" / "schema_check.json").read_bytes()
)


def files() -> list[MigrationFile]:
    return migration_files("outbox", PARAMETERS)


def at_once(conn: psycopg.Connection, file: MigrationFile) -> None:
    """As golang-migrate and psql -1 do: the whole text, in the transaction that it makes."""
    conn.execute(file.text.encode())


def in_a_block(conn: psycopg.Connection, file: MigrationFile) -> None:
    """As Flyway, Alembic and Django do: the tool's own transaction around it."""
    with conn.transaction():
        conn.execute(file.text.encode())


@pytest.mark.parametrize("run_one", [at_once, in_a_block])
def test_files_make_what_an_installation_makes(
    fresh_database: Fresh, run_one: Callable[[psycopg.Connection, MigrationFile], None]
) -> None:
    installed, made = fresh_database("outbox", PARAMETERS), fresh_database()
    with made.connect() as conn:
        for file in files():
            run_one(conn, file)
        assert missing(conn, "outbox") == []
        assert install(conn, "outbox", parameters=PARAMETERS) == []
        slots = conn.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        ).fetchall()
        assert slots == [("slot_files",)]
        ours = describe(conn, "metering")
    with installed.connect() as conn:
        assert describe(conn, "metering") == ours
    login = made.login("metering_writer")
    with psycopg.connect(made.dsn(login), row_factory=psycopg.rows.dict_row) as writer:
        assert record(writer)["status"] == "recorded"


def test_a_tool_that_commits_after_each_statement_is_stopped_before_it_harms(
    fresh_database: Fresh,
) -> None:
    versions, roles, tables, *_ = files()
    with fresh_database().connect() as conn:
        at_once(conn, versions)
        at_once(conn, roles)
        before = describe(conn, "metering")
        settings, _, rest = tables.text.partition(";\n")
        conn.execute(settings.encode())
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="one transaction"):
            conn.execute(f"{rest.partition('$$;')[0]}$$;".encode())
        assert describe(conn, "metering") == before


def test_a_file_that_ran_runs_no_second_time(fresh_database: Fresh) -> None:
    with fresh_database().connect() as conn:
        for file in files()[:4]:
            at_once(conn, file)
        before = describe(conn, "metering")
        with pytest.raises(psycopg.Error):
            at_once(conn, files()[3])
        assert describe(conn, "metering") == before


def test_a_database_that_is_not_what_the_files_say_fails_their_last_check(
    fresh_database: Fresh,
) -> None:
    *_, last = migration_files("outbox", {**PARAMETERS, "source": "other"})
    with (
        fresh_database("outbox", PARAMETERS).connect() as conn,
        pytest.raises(psycopg.errors.InvalidParameterValue, match="is shop for ever, not other"),
    ):
        at_once(conn, last)


def test_the_calls_of_a_role_are_those_that_it_is_granted(fresh_database: Fresh) -> None:
    with fresh_database("outbox").connect() as conn:
        for role, calls in CALLS.items():
            rows = conn.execute(
                "SELECT p.proname || '(' || oidvectortypes(p.proargtypes) || ')' FROM pg_proc AS p"
                " WHERE p.pronamespace = 'metering'::regnamespace"
                " AND has_function_privilege(%s, p.oid, 'EXECUTE')",
                (role,),
            ).fetchall()
            assert sorted(row[0] for row in rows) == sorted(calls)


@pytest.fixture
def checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)

    def ask(dsn: str, *options: str) -> tuple[int, str, str]:
        code = run(["schema", "check", "outbox", "--dsn", dsn, *options])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return ask


@pytest.mark.parametrize("role", ["writer", "corrector", "ops"])
def test_a_login_asks_with_its_own_rights_whether_it_is_let_in(
    fresh_database: Fresh, checked: Any, role: str
) -> None:
    database = fresh_database("outbox")
    login = database.login(f"metering_{role}")
    code, out, _ = checked(database.dsn(login), "--role", role)
    assert (code, out) == (0, f"ok: {login} may do all that metering_{role} is there for\n")
    other = "corrector" if role == "writer" else "writer"
    code, out, err = checked(database.dsn(login), "--role", other)
    assert code == 1
    assert "missing EXECUTE of metering.record_" in out
    assert f'GRANT metering_{other} TO "{login}"' in err
    code, out, _ = checked(database.dsn(login), "--role", other, "--json")
    document = msgspec.json.decode(out)
    Draft202012Validator(RULES).validate(document)
    assert (code, document["role"], document["login"]) == (1, f"metering_{other}", login)


def test_where_nothing_is_installed_a_role_lacks_everything(
    fresh_database: Fresh, checked: Any
) -> None:
    code, out, _ = checked(fresh_database().dsn(), "--role", "writer")
    assert code == 1
    assert out.splitlines() == [
        f"missing function metering.{call}" for call in sorted(CALLS["metering_writer"])
    ]


def test_a_service_s_login_is_told_how_it_can_ask(fresh_database: Fresh, checked: Any) -> None:
    database = fresh_database("outbox")
    code, _, err = checked(database.dsn(database.login("metering_writer")))
    assert code == 78
    assert "--role writer" in err
