"""Forms before anything is read: who may not, and what says nothing."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from streams.cli.stack import Stack
from streams.console.acts import Rehearsed
from streams.console.app import build
from streams.console.operators import Operators
from streams.console.visit import Console
from streams.settings import Settings
from tests.unit.console.test_doors import SECRET, Clock

ADDRESSES = ("/review/1/approve", "/review/1/reject", "/dead/redrive", "/sign-out")
FIELDS = {"reason": "why", "item": "1"}


def client(secret: str | None = SECRET, key: bytes = b"k" * 32) -> TestClient:
    console = Console(lambda: Stack(Settings(), None, {}, ()), Operators(secret, Clock(), key))
    return TestClient(build(console), base_url="http://127.0.0.1:8190")


def signed_in(actor: str = "ann") -> tuple[TestClient, str]:
    """A session, and the token of its forms."""
    tab = client()
    tab.post("/sign-in", data={"actor": actor, "secret": SECRET}, follow_redirects=False)
    found = re.search(r'name="token" value="(\w+)"', tab.get("/sign-in").text)
    assert found is not None
    return tab, found[1]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_console_without_a_secret_changes_nothing(address: str) -> None:
    answer = client(None).post(address, data=FIELDS)
    assert answer.status_code == 403
    assert "this console only reads" in answer.text


@pytest.mark.parametrize("address", ADDRESSES)
def test_nobody_decides_without_a_session(address: str) -> None:
    answer = client().post(address, data=FIELDS)
    assert answer.status_code == 403
    assert "nobody is signed in" in answer.text


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("whose", ["", "another's"])
def test_a_form_of_another_session_or_of_none_is_refused(address: str, whose: str) -> None:
    tab, _ = signed_in()
    token = signed_in("ben")[1] if whose else ""
    answer = tab.post(address, data={**FIELDS, "token": token})
    assert answer.status_code == 403
    assert "not of your session" in answer.text


@pytest.mark.parametrize("reason", ["", "   ", "w" * 2_001])
@pytest.mark.parametrize("address", ADDRESSES[:3])
def test_a_decision_says_why(address: str, reason: str) -> None:
    tab, token = signed_in()
    answer = tab.post(address, data={"token": token, "item": "1", "reason": reason})
    assert answer.status_code == 400
    assert "reason: say why" in answer.text


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"item": "1", "cause": "no_meter"},
        {"item": "-1"},
        {"item": "1" * 5_000},
        {"cause": "no_meter", "proof": "seen"},
    ],
)
def test_a_redrive_means_one_item_or_one_cause(fields: dict[str, str]) -> None:
    tab, token = signed_in()
    answer = tab.post("/dead/redrive", data={"token": token, "reason": "why", **fields})
    assert answer.status_code == 400


@pytest.mark.parametrize("address", ["/review/1/bill", "/review/1/approve"])
def test_what_is_no_decision_is_refused(address: str) -> None:
    tab, token = signed_in()
    answer = tab.post(address, data={"token": token, "reason": "why", "into": "elsewhere"})
    assert answer.status_code == 400


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "/\\evil", "", "x"])
def test_signing_in_leads_to_no_other_site(back: str) -> None:
    answer = client().post(
        "/sign-in", data={"actor": "ann", "secret": SECRET, "back": back}, follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


@pytest.mark.parametrize("secret", ["", "wrong", SECRET[:-1], f"{SECRET}x"])
def test_a_wrong_secret_opens_nothing(secret: str) -> None:
    answer = client().post("/sign-in", data={"actor": "ann", "secret": secret})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert "The secret is not the one" in answer.text


def test_a_refused_sign_in_is_logged_without_what_was_typed() -> None:
    with capture_logs() as logged:
        client().post("/sign-in", data={"actor": SECRET, "secret": "wrong"})
    assert [(each["event"], each["log_level"]) for each in logged] == [
        ("sign_in_refused", "warning")
    ]
    assert SECRET not in repr(logged)


@pytest.mark.parametrize(("origin", "secure"), [("http", False), ("https", True)])
def test_a_cookie_of_a_browser_that_speaks_tls_is_never_sent_without(
    origin: str, secure: bool
) -> None:
    # What ends TLS before the console speaks to it in clear text.
    answer = client().post(
        "/sign-in",
        data={"actor": "ann", "secret": SECRET},
        headers={"origin": f"{origin}://127.0.0.1:8190"},
        follow_redirects=False,
    )
    assert answer.status_code == 303
    assert ("secure" in answer.headers["set-cookie"].lower()) is secure


@pytest.mark.parametrize("item", ["redrive", "-1", "1" * 19, "1" * 5_000, "٣"])
@pytest.mark.parametrize("kind", ["dead", "review"])
def test_what_is_no_item_is_a_page_and_no_defect(kind: str, item: str) -> None:
    answer = client().get(f"/{kind}/{item}")
    assert answer.status_code == 400
    assert "is no number of an item" in answer.text


@pytest.mark.parametrize("path", ["//evil.example", "//evil.example/dead"])
def test_a_page_that_is_not_there_leads_to_no_other_site(path: str) -> None:
    answer = client().get(f"http://127.0.0.1:8190{path}")
    assert answer.status_code == 404
    assert 'href="//' not in answer.text


def test_a_cookie_is_kept_from_scripts_and_from_other_sites() -> None:
    answer = client().post(
        "/sign-in",
        data={"actor": "ann", "secret": SECRET, "back": "/review/7"},
        follow_redirects=False,
    )
    assert answer.headers["location"] == "/review/7"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_signing_out_takes_the_session_away() -> None:
    tab, token = signed_in()
    assert "ann" in tab.get("/sign-in").text
    tab.post("/sign-out", data={"token": token}, follow_redirects=False)
    assert "nobody is signed in" in tab.post("/dead/redrive", data=FIELDS).text


def test_a_plan_is_known_by_what_it_would_do() -> None:
    plan = Rehearsed(["would approve 1"], [], [])
    assert plan.digest == Rehearsed(["would approve 1"], ["2 was approved"], []).digest
    assert plan.digest != Rehearsed(["would approve 2"], [], []).digest
