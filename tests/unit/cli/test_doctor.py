"""The doctor's own rules: each trouble is planted, named, mended by what it says, and gone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from connectors.linter import Finding
from connectors.observation import Observation
from connectors.slot_guard import judge
from streams.adapters.stripe import DEFAULT_API_BASE, StripeSink, StripeUnreadableError
from streams.cli.checkup import account, broker, connect, machine, service, sink
from streams.cli.checkup.check import AwayError, Check, Fix, NotMadeError, Result, Trouble, made
from streams.cli.doctor import document, exit_code, lines
from streams.cli.errors import UnavailableError
from streams.cli.main import run
from streams.core.live_meter import CHECKS, LiveMeter, MeterFinding
from streams.core.observation import Answer, NotSent, in_words
from streams.settings import Settings
from streams.topics import TopicFinding
from tests.unit.connectors.test_slot_guard import EXPECTED, HEALTHY, slot, status

UNDECODABLE = 'Caused by: org.postgresql.util.PSQLException: ERROR: publication "m" does not exist'
TROUBLE = Trouble("it is broken", "it matters", Fix("shell", "tailrace status"))


def what(troubles: Iterable[Trouble]) -> list[str]:
    return [trouble.what for trouble in troubles]


def pastes(troubles: Iterable[Trouble]) -> list[str]:
    return [trouble.fix.paste for trouble in troubles]


def test_checks_that_status_sends_people_to_exist() -> None:
    assert set(CHECKS.values()) <= {check.name for check in sink.CHECKS}


def test_another_distribution_over_our_names_is_named_and_gone_once_it_is_uninstalled() -> None:
    owners = {"streams": ["tailrace"], "schemas": ["tailrace", "schemas"], "os": ["other"]}
    assert what(machine.foreign_owners(owners)) == [
        "the distribution schemas brings a package schemas too"
    ]
    (paste,) = pastes(machine.foreign_owners(owners))
    assert paste.startswith("pip uninstall -y schemas;")
    assert "--no-index" in paste, "an index may have another tailrace"
    owners["schemas"].remove("schemas")
    assert what(machine.foreign_owners(owners)) == []


def test_a_package_that_comes_from_elsewhere_is_named(tmp_path: Path) -> None:
    ours = {"streams": tmp_path / "ours/streams/__init__.py", "schemas": None}
    assert what(machine.foreign_places(ours, tmp_path / "ours")) == []
    foreign = {**ours, "schemas": tmp_path / "theirs/schemas/__init__.py"}
    (said,) = what(machine.foreign_places(foreign, tmp_path / "ours"))
    assert said == f"schemas is imported from {tmp_path}/theirs/schemas, not from {tmp_path}/ours"


def test_a_disk_with_little_room_is_named(tmp_path: Path) -> None:
    room = machine.FREE_BYTES_MIN
    assert what(machine.short_of_room({tmp_path: room})) == []
    (said,) = what(machine.short_of_room({tmp_path: room - 1}))
    assert said == f"2047 MiB are free where {tmp_path} is, less than 2048"


def test_what_another_program_left_in_a_data_directory_is_named_and_moved_aside(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "worker"
    for name in (*machine.IN_A_DATA_DIR, "it's theirs"):
        (folder / name).mkdir(parents=True)
    (folder / "theirs").write_text("other", encoding="utf-8")

    def look() -> list[Trouble]:
        return list(machine.strangers(folder, [path.name for path in folder.iterdir()]))

    assert len(look()) == 2
    for paste in pastes(look()):
        subprocess.run(["bash", "-c", paste], check=True)
    assert look() == []
    assert (tmp_path / "worker.theirs").read_text(encoding="utf-8") == "other"


def test_a_volume_that_is_a_data_directory_keeps_what_its_file_system_needs(tmp_path: Path) -> None:
    assert what(machine.strangers(tmp_path, ["lock", "lost+found"])) == []


def test_a_wal_without_rows_is_named() -> None:
    assert pastes(service.of_wal_level("replica")) == [
        "ALTER SYSTEM SET wal_level = 'logical'  -- then restart it"
    ]
    assert what(service.of_wal_level("logical")) == []


@pytest.mark.parametrize(
    ("check", "seen"),
    [
        ("primary", replace(HEALTHY, standby=True, written_lsn=None)),
        ("slot", replace(HEALTHY, slot=None)),
        ("slot", slot(plugin="test_decoding")),
        ("slot-lost", slot(wal_status="lost")),
        ("slot-lost", slot(wal_status="unreserved")),
        ("slot-position", slot(confirmed_lsn=1001)),
        ("slot-lag", replace(HEALTHY, written_lsn=(1 << 30) + 10_000)),
        ("slot-lag", slot(safe_wal_bytes=1 << 20)),
        ("slot-reader", slot(active=False, active_pid=None)),
        ("publication", replace(HEALTHY, publication=None)),
        ("slot-position", replace(HEALTHY, status=status("RUNNING", "FAILED", trace=UNDECODABLE))),
    ],
)
def test_what_the_slot_guard_finds_is_told_by_one_check(check: str, seen: Observation) -> None:
    telling = [name for name in service.GUARDED if what(service.told(name, judge(seen, EXPECTED)))]
    assert telling == [check]
    assert not any(what(service.told(name, judge(HEALTHY, EXPECTED))) for name in service.GUARDED)


@pytest.mark.parametrize("config", [{}, {broker.AUTO_CREATE: "true"}])
def test_a_broker_that_makes_topics_by_itself_is_named(config: dict[str, str]) -> None:
    (paste,) = pastes(broker.creates_topics(config))
    option, _, value = paste.removeprefix("echo ").split(" ", 1)[0].partition("=")
    assert what(broker.creates_topics({**config, option: value})) == []


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("does not exist", "missing"),
        ("has 6 partitions, this installation was set up with 12", "partitions"),
        ("cleanup.policy is compact, must be delete", "compaction"),
        ("retention.ms is 1, must be 2", "retention"),
        ("retention.bytes is 1, must be -1", "retention"),
        ("max.message.bytes is 1, must be 2", "settings"),
    ],
)
def test_every_finding_of_a_topic_has_its_check(rule: str, kind: str) -> None:
    assert broker.kind_of(rule) == kind


@pytest.mark.parametrize(
    ("counts", "pasted"),
    [
        ({"usage.events": 24, "usage.review": 24}, ["TAILRACE_PARTITIONS=24"] * 2),
        ({"usage.events": 6}, ["TAILRACE_PARTITIONS=6"]),
        ({"usage.review": 24}, ["tailrace topics grow --partitions 24"]),
        ({"usage.review": 6}, ["tailrace topics grow --partitions 12"]),
        (
            {"usage.events": 24, "usage.review": 36},
            ["TAILRACE_PARTITIONS=24", "tailrace topics grow --partitions 36"],
        ),
    ],
)
def test_a_growth_that_was_cut_short_goes_on_and_a_whole_one_is_set(
    counts: dict[str, int], pasted: list[str]
) -> None:
    """The events topic says which it is: it grows last."""
    rule = "has {} partitions, this installation was set up with 12"
    found = [
        TopicFinding(name, rule.format(count), "", fatal=True) for name, count in counts.items()
    ]
    patient: Any = SimpleNamespace(topics=lambda: found, settings=Settings(partitions=12))
    (look,) = (check.look for check in broker.CHECKS if check.name == "topic-partitions")
    said = [paste.partition("  # ")[0].partition(" --reason")[0] for paste in pastes(look(patient))]
    assert said == pasted


def test_converters_have_a_check_of_their_own() -> None:
    assert connect.is_converter(Finding("value.converter", "", ""))
    assert connect.is_converter(Finding("value.converter.schemas.enable", "", ""))
    assert not connect.is_converter(Finding("snapshot.mode", "", ""))


@pytest.mark.parametrize(
    ("key", "live", "said"),
    [
        ("rk_test_1", 0, []),
        ("rk_live_1", 1, []),
        ("rk_test_1", 1, ["TAILRACE_LIVE is 1 with a test key"]),
        ("sk_live_1", 1, ["the live key is a secret key, which may do everything"]),
        ("pk_test_1", 0, ["TAILRACE_STRIPE_API_KEY is no secret or restricted key"]),
    ],
)
def test_a_key_of_the_wrong_mode_or_kind_is_named(key: str, live: int, said: list[str]) -> None:
    assert what(sink.of_key(Settings(stripe_api_key=key, live=live))) == said


METER = LiveMeter("mtr_1", "exports", False, "sum", "stripe_customer_id", "value", None, False, 0)


def test_a_fix_of_a_meter_is_a_request_where_stripe_can_do_it() -> None:
    archived = MeterFinding("archived", "exports", "the meter is archived", "reactivate it")
    base = "http://127.0.0.1:1"
    assert sink.fix_of(archived, [METER], base).paste == (
        f"curl -H @- -X POST {base}/v1/billing/meters/mtr_1/reactivate "
        '<<<"Authorization: Bearer $TAILRACE_STRIPE_API_KEY"'
    )
    missing = sink.fix_of(replace(archived, kind="missing"), [], base)
    assert "--data-urlencode 'default_aggregation[formula]=sum'" in missing.paste
    assert sink.fix_of(replace(archived, kind="formula"), [], base) == Fix(
        "stripe", "reactivate it"
    )
    assert sink.fix_of(replace(archived, kind="mode"), [], base).where == "settings"


@pytest.mark.parametrize("name", ["exports", "it's; touch planted", "$(touch planted)"])
def test_a_key_is_no_argument_and_a_meter_s_name_is_no_command(name: str, tmp_path: Path) -> None:
    curl = tmp_path / "curl"
    curl.write_text('#!/bin/sh\nfor word; do echo "$word"; done\necho "stdin: $(cat)"\n', "utf-8")
    curl.chmod(0o755)
    missing = MeterFinding("missing", name, "the meter does not exist", "create it")
    done = subprocess.run(
        ["bash", "-c", sink.fix_of(missing, [], "http://127.0.0.1:1").paste],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "TAILRACE_STRIPE_API_KEY": "rk_test_planted"},
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    *words, stdin = done.stdout.splitlines()
    assert f"event_name={name}" in words
    assert not any("rk_test_planted" in word for word in words)
    assert stdin == "stdin: Authorization: Bearer rk_test_planted"
    assert not (tmp_path / "planted").exists()


def test_the_publication_is_never_gone_for_a_moment() -> None:
    paste = service.GUARDED["publication"][2].paste
    assert paste.startswith("BEGIN; DROP PUBLICATION")
    assert paste.endswith("; COMMIT")


def check(error: Exception | None = None, *troubles: Trouble, reaches: str = "") -> Result:
    def look(_patient: object) -> Iterator[Trouble]:
        if error is not None:
            raise error
        yield from troubles

    return made(Check("thing", "the thing is well", look, reaches), None, "tailrace config show")


def test_a_check_that_cannot_be_made_says_so_by_name() -> None:
    assert check() == Result("thing", "ok", "the thing is well")
    assert check(None, TROUBLE).state == "trouble"
    assert check(NotMadeError("nobody told")) == Result("thing", "not made", "nobody told")
    broken = check(ValueError("what is this"))
    assert (broken.state, broken.away) == ("not made", False)
    assert "ValueError: what is this" in broken.said
    away = check(psycopg.OperationalError("gone"))
    assert (away.state, away.away) == ("not made", True)


def test_what_does_not_answer_is_the_trouble_of_the_check_that_reaches_for_it() -> None:
    gone = UnavailableError("the ledger: PostgreSQL is not reachable", fix="start it")
    result = check(gone, reaches="ledger_dsn")
    assert (result.state, result.away) == ("trouble", True)
    assert what(result.troubles) == ["the ledger: PostgreSQL is not reachable"]
    assert pastes(result.troubles) == ["tailrace config show"]
    named = check(psycopg.OperationalError("gone"), reaches="ledger_dsn")
    assert what(named.troubles) == ["ledger_dsn: gone"]


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([], 0),
        ([check()], 0),
        ([check(NotMadeError("not here"))], 0),
        ([check(), check(None, TROUBLE)], 1),
        ([check(None, TROUBLE), check(psycopg.OperationalError("gone"))], 69),
    ],
)
def test_the_exit_code_tells_trouble_from_absence(results: list[Result], code: int) -> None:
    assert exit_code(results) == code


def test_a_trouble_is_shown_with_why_and_fix_and_all_are_counted() -> None:
    shown = list(lines([check(), check(None, TROUBLE), check(NotMadeError("not here"))]))
    assert shown == [
        "ok        thing  the thing is well",
        "TROUBLE   thing  it is broken",
        "            why: it matters",
        "            fix (shell): tailrace status",
        "not made  thing  not here",
        "1 ok · 1 in trouble · 1 not made",
    ]
    assert not document([check(), check(NotMadeError("not here"))])["ok"]
    assert document([check()])["ok"]


def test_without_a_stack_every_check_of_a_neighbour_is_named_as_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["doctor", "slot", "topics", "ledger", "connect", "stripe"]) == 0
    out = capsys.readouterr().out
    assert "not made  slot" in out
    assert "TAILRACE_SOURCE_DSN not set" in out
    assert "TAILRACE_KAFKA_BOOTSTRAP not set" in out
    assert "0 ok · 0 in trouble · 5 not made" in out


def test_a_check_nobody_knows_is_a_mistake_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["doctor", "sloth"]) == 2
    assert "there is none of the name sloth" in capsys.readouterr().err


def test_there_are_more_than_twenty_checks_and_each_name_is_one() -> None:
    modules = (machine, service, broker, connect, sink)
    names = [each.name for module in modules for each in module.CHECKS]
    assert len(names) >= 30
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("seen", "base", "sandbox", "where", "paste", "again"),
    [
        (Answer(503, False), "http://x", True, "shell", "tailrace sandbox status", "is down"),
        (Answer(503, False), DEFAULT_API_BASE, False, "stripe", "status.stripe.com", "is down"),
        (NotSent("E"), "http://x", False, "settings", "TAILRACE_STRIPE_API_BASE", "is down"),
        (Answer(401, True), "http://x", True, "settings", "TAILRACE_STRIPE_API_KEY", "correct"),
    ],
    ids=["sandbox", "Stripe", "another address", "key"],
)
def test_a_stripe_that_is_away_is_told_with_what_ends_it_and_when_to_ask_again(
    seen: Answer | NotSent, base: str, sandbox: bool, where: str, paste: str, again: str
) -> None:
    def look(_: None) -> list[Trouble]:
        raise account.away(seen, base, sandbox=sandbox)

    reaching, behind = (
        made(Check("stripe", "fine", look, reaches=reaches), None, "tailrace config show")
        for reaches in ("stripe_api_base", "")
    )
    (trouble,) = reaching.troubles
    assert trouble.what == in_words(seen)
    assert (trouble.fix.where, paste in trouble.fix.paste) == (where, True)
    assert (behind.state, behind.away) == ("not made", True)
    assert behind.said.startswith(f"{in_words(seen)}; ")
    assert again in behind.said


def test_the_doctor_waits_for_stripe_no_longer_than_for_a_short_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its reading has a limit of its own, whatever a worker's requests may last."""
    limits: list[float] = []

    class Silent(StripeSink):
        async def meters(self) -> tuple[LiveMeter, ...]:
            limits.append(self.settings.deadline_s)
            raise StripeUnreadableError("meters", Answer(503, False))

    monkeypatch.setattr(account, "StripeSink", Silent)
    with pytest.raises(AwayError, match="Stripe answered 503"):
        account.meters(
            Settings(stripe_api_key="sk_test_x", stripe_read_timeout_ms=60_000), sandbox=True
        )
    assert limits == [account.DEADLINE_S]
