"""The doors: names, foreign forms, headers, and who an operator is."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from streams.cli.errors import ConfigurationError
from streams.cli.stack import Stack
from streams.console import pages
from streams.console.app import build
from streams.console.doors import HEADERS, name_of
from streams.console.operators import SESSION_S, Operators, read_secret
from streams.console.serve import Place
from streams.console.visit import Console, Page, mode_of
from streams.core.instant import SECOND_US
from streams.settings import Settings

SECRET = "sixteen characters at least"


class Clock:
    """Stands still until it is moved."""

    us = 1_700_000_000 * SECOND_US

    def now_us(self) -> int:
        return self.us

    def elapsed_s(self) -> float:
        return self.us / SECOND_US


def client(base: str = "http://127.0.0.1:8190", **names: frozenset[str]) -> TestClient:
    console = Console(lambda: Stack(Settings(), None, {}, ()), Operators(SECRET, Clock()))
    return TestClient(build(console, **names), base_url=base)


@pytest.mark.parametrize("host", ["127.0.0.1:8190", "localhost", "[::1]:8190", "LOCALHOST:1"])
def test_a_loopback_name_is_answered(host: str) -> None:
    assert client().get("/sign-in", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]:8190"])
def test_a_name_that_was_pointed_here_is_refused(host: str) -> None:
    answer = client().get("/sign-in", headers={"host": host})
    assert answer.status_code == 421
    assert "--name" in answer.text


def test_a_name_that_was_given_is_answered() -> None:
    console = client("https://console.example", names=frozenset({"console.example"}))
    assert console.get("/sign-in").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_form_of_another_site_is_refused_before_it_is_read(headers: dict[str, str]) -> None:
    answer = client().post("/sign-in", data={"actor": "ann", "secret": SECRET}, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_form_of_our_own_pages_is_read() -> None:
    answer = client().post(
        "/sign-in",
        data={"actor": "ann", "secret": SECRET},
        headers={"origin": "http://127.0.0.1:8190", "sec-fetch-site": "same-origin"},
        follow_redirects=False,
    )
    assert answer.status_code == 303


@pytest.mark.parametrize("address", ["/sign-in", "/nothing", "/static/console.js", "/review"])
def test_every_answer_forbids_what_is_not_ours(address: str) -> None:
    answer = client().get(address)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_a_form_without_end_is_not_read() -> None:
    answer = client().post("/sign-in", content=b"actor=" + b"a" * 20_000)
    assert answer.status_code == 413


def test_a_stack_without_settings_is_a_page_and_no_traceback() -> None:
    answer = client().get("/review")
    assert answer.status_code == 502
    assert "TAILRACE_LEDGER_DSN not set" in answer.text
    assert "Traceback" not in answer.text


def test_a_session_ends_with_its_time_with_a_restart_and_by_a_changed_letter() -> None:
    clock = Clock()
    operators = Operators(SECRET, clock, b"k" * 32)
    cookie = operators.sign_in(SECRET, " Ann O'Hara ")
    assert cookie is not None
    operator = operators.operator(cookie)
    assert operator is not None
    assert operator.actor == "Ann O'Hara"
    assert operators.is_own_form(operator, operator.form_token)
    assert not operators.is_own_form(operator, "")
    assert Operators(SECRET, clock).operator(cookie) is None
    assert Operators(None, clock, b"k" * 32).operator(cookie) is None
    for place in range(len(cookie)):
        changed = cookie[:place] + ("a" if cookie[place] != "a" else "b") + cookie[place + 1 :]
        assert operators.operator(changed) is None
    clock.us += SESSION_S * SECOND_US
    assert operators.operator(cookie) is None


@pytest.mark.parametrize("actor", ["", "  ", "a" * 81, "ann\nroot"])
def test_an_actor_who_says_nothing_is_nobody(actor: str) -> None:
    assert Operators(SECRET, Clock()).sign_in(SECRET, actor) is None


@pytest.mark.parametrize("cookie", [None, "", ".", "a.b.c", "....", "a.b.c.d"])
def test_a_cookie_of_anybodys_making_is_nobody(cookie: str | None) -> None:
    assert Operators(SECRET, Clock()).operator(cookie) is None


def test_the_secret_is_read_from_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with pytest.raises(ConfigurationError, match="secret-file"):
        read_secret(file)
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    file.chmod(0o640)
    with pytest.raises(ConfigurationError, match="can be read by others"):
        read_secret(file)
    file.chmod(0o600)
    assert read_secret(file) == SECRET
    file.write_text("short", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="fewer than 16"):
        read_secret(file)


@pytest.mark.parametrize(
    ("host", "name"),
    [("a:1", "a"), ("A", "a"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("", "")],
)
def test_a_host_is_known_without_its_port(host: str, name: str) -> None:
    assert name_of(host) == name


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("192.0.2.1", False), ("::", False)],
)
def test_only_loopback_is_this_machine_alone(host: str, alone: bool) -> None:
    assert Place(host).is_loopback is alone


@pytest.mark.parametrize(
    ("key", "live", "mode"),
    [
        ("sk_live_1", 1, "LIVE"),
        ("rk_live_1", 1, "LIVE"),
        ("sk_test_1", 0, "TEST"),
        ("", 0, "UNKNOWN"),
        ("", 1, "LIVE"),
    ],
)
def test_live_is_never_taken_for_test(key: str, live: int, mode: str) -> None:
    assert mode_of(Settings(stripe_api_key=key, live=live)) == mode


def test_a_defect_of_ours_is_a_page_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_visit: object) -> Page:
        return Page("now.html", {"verdict": None})

    monkeypatch.setattr(pages, "review", broken)
    answer = client().get("/review")
    assert answer.status_code == 500
    assert "this is a defect" in answer.text
    assert "Nothing was changed" in answer.text


def test_a_page_shows_no_secret_of_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_visit: object) -> Page:
        raise ValueError("postgresql://me:pL4nt3d@host/x")

    monkeypatch.setattr(pages, "review", broken)
    answer = client().get("/review")
    assert answer.status_code == 500
    assert "me:***@host" in answer.text
    assert "pL4nt3d" not in answer.text, "whoever reaches the port reads it"
