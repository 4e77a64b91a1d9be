"""The console in a real browser: every page, by keyboard alone, and nothing forbidden on any.

Its pictures are kept in build/screens: `make screens`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.integration.cli.conftest import World
from tests.integration.console.conftest import SECRET
from tests.integration.console.test_pages import item_of, troubled
from tests.support.browser import HEIGHT, WIDTH, Tab, browser
from tests.support.console import console, write_secret
from tests.support.waiting import until

# The first one may have to install the browser.
pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]

ROOT: Final = Path(__file__).parents[3]
SCREENS: Final = ROOT / "build" / "screens"
PAGES: Final = {
    "now": "/",
    "trace": "/trace?tenant=acme&key=fine",
    "dead": "/dead",
    "review": "/review",
    "windows": "/windows",
    "statement": "/statement?tenant=acme",
    "reconcile": "/reconcile",
    "log": "/log",
    "sign-in": "/sign-in",
}
NOT_FOUND: Final = "status of 404"
"""The answer to the journey of a key that nobody knows."""
REACHABLE: Final = "a[href], button, input:not([type=hidden]), select, summary, code[tabindex]"


@dataclass
class Served:
    """A console as people start it, and a browser beside it."""

    address: str
    tab: Tab

    async def open(self, path: str) -> Tab:
        await self.tab.open(f"{self.address.rstrip('/')}{path}")
        return self.tab


@pytest.fixture
def busy(world: World) -> World:
    """The same with something to show; made outside the loop, since commands run their own."""
    troubled(world)
    return world


@pytest.fixture
def address(world: World, tmp_path: Path) -> Iterator[str]:
    """`tailrace console` in a process of its own."""
    secret = write_secret(tmp_path, SECRET)
    with console(world.cli.directory, secret, tmp_path / "console.log") as served_at:
        yield served_at


@pytest.fixture
async def served(address: str, tmp_path: Path) -> AsyncIterator[Served]:
    async with browser(tmp_path / "chromium") as tab:
        yield Served(address, tab)


async def test_every_page_with_data_obeys_its_policy_and_has_its_picture(
    busy: World, served: Served
) -> None:
    pages = {**PAGES, "review-item": f"/review/{item_of(busy, 'review')}"}
    for name, path in pages.items():
        tab = await served.open(path)
        if path == "/":
            await tab.until("document.body.dataset.drawn >= 1")
        assert await tab.value("document.querySelector('h1').textContent.length > 0")
        assert await tab.value("document.styleSheets.length") == 2
        await tab.picture(SCREENS / f"{name}.png")
        assert await tab.violations() == [], path


async def test_page_1_fits_without_scrolling_and_names_what_to_type(
    busy: World, served: Served
) -> None:
    tab = await served.open("/")
    await tab.until("document.body.dataset.drawn >= 1")
    assert await tab.value("document.documentElement.scrollHeight") <= HEIGHT
    assert await tab.value("document.documentElement.scrollWidth") <= WIDTH
    assert await tab.value("document.querySelectorAll('.remark code').length") >= 3
    # The mode is on the screen, and in the colour that is its own.
    assert await tab.value("document.querySelector('.mode').textContent") == "TEST"


async def test_pages_with_nothing_to_show_stand_as_well(served: Served) -> None:
    for path in PAGES.values():
        tab = await served.open(path)
        assert await tab.value("document.querySelector('h1') !== null")
        assert [said for said in await tab.violations() if NOT_FOUND not in said] == []


async def test_a_picture_that_is_not_moving_any_more_says_so(world: World, served: Served) -> None:
    tab = await served.open("/")
    world.add_fact("ledger_dsn", "postgresql://nobody@127.0.0.1:1/ledger")
    await tab.value("htmx.ajax('GET', '/', {target: '#now', swap: 'outerHTML'})")
    await tab.until("document.querySelector('.broken') !== null")
    assert "not reachable" in await tab.value("document.querySelector('.what').textContent")
    await tab.picture(SCREENS / "broken.png")


async def test_a_picture_stands_still_for_whoever_is_in_it(busy: World, served: Served) -> None:
    tab = await served.open("/")
    await tab.value("document.querySelector('.remark code').focus()")
    await tab.value("htmx.ajax('GET', '/', {target: '#now', swap: 'outerHTML'}); 1")
    await tab.until("document.getElementById('stale').textContent.includes('in use')")
    assert await tab.value("document.activeElement.tagName") == "CODE"


async def test_a_policy_that_is_broken_would_be_seen(served: Served) -> None:
    tab = await served.open("/sign-in")
    await tab.value(
        "document.body.append(Object.assign(document.createElement('script'),"
        " {textContent: 'window.planted = 1'}))"
    )
    await tab.until("window.violations.length > 0")
    assert await tab.value("window.planted === undefined")


@pytest.mark.parametrize("path", ["/", "/dead", "/review", "/log"])
async def test_everything_on_a_page_is_reached_with_tab(
    busy: World, served: Served, path: str
) -> None:
    tab = await served.open(path)
    # A picture that moves on would take its numbers along.
    await tab.value("document.querySelectorAll('#pause').forEach((each) => each.checked = true)")
    await tab.value(
        f"[...document.querySelectorAll({REACHABLE!r})]"
        ".forEach((each, number) => each.dataset.number = number)"
    )
    number = "document.activeElement.dataset.number"
    count = await tab.value(f"document.querySelectorAll({REACHABLE!r}).length")
    reached = []
    for _ in range(count):
        await tab.press("Tab")
        reached.append(await tab.value(f"Number({number})"))
    assert sorted(reached) == list(range(count))
    assert await tab.value("document.querySelector('.skip').dataset.number") == "0"


async def test_an_item_is_approved_by_keyboard_alone(busy: World, served: Served) -> None:
    item = item_of(busy, "review")
    tab = await served.open(f"/sign-in?back=/review/{item}")
    await write(tab, {"actor": "ann", "secret": SECRET})
    assert await tab.value("location.pathname") == f"/review/{item}"
    await write(tab, {"reason": "the customer confirmed it"})
    assert "would approve" in await tab.value("document.querySelector('.receipts').textContent")
    await tab.picture(SCREENS / "plan.png")
    await tab.value("document.querySelector('button.act').focus()")
    async with tab.loading():
        await tab.press("Enter")
    assert "approved" in await tab.value("document.querySelector('.receipts').textContent")
    with busy.ledger.connect() as conn:
        state = "SELECT state FROM ledger.parked WHERE parked_id = %s"
        until("it is approved", lambda: conn.execute(state, (item,)).fetchone() == ("approved",))
    assert await tab.violations() == []


async def write(tab: Tab, fields: dict[str, str]) -> None:
    """Fills the first form that has these fields, and sends it with Enter."""
    for name, text in fields.items():
        await tab.value(f"document.querySelector('main [name={name}]').focus()")
        await tab.type(text)
    async with tab.loading():
        await tab.press("Enter")
