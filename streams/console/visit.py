"""One request: who asks, of which stack, and the page that they get, broken backends included."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal
from urllib.parse import parse_qs

import structlog
from jinja2 import Environment, FunctionLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from streams.cli.boundary import explain
from streams.cli.errors import (
    CONFIGURATION,
    FINDING,
    INTERNAL,
    TRY_AGAIN,
    UNAVAILABLE,
    USAGE,
    UsageProblemError,
)
from streams.cli.stack import Stack
from streams.console import words
from streams.console.operators import COOKIE, Operator, Operators
from streams.settings import Settings

log = structlog.get_logger("console")

FORM_BYTES_MAX: Final = 16_384
STATUSES: Final[Mapping[int, int]] = {
    USAGE: 400, FINDING: 409, CONFIGURATION: 502, UNAVAILABLE: 503, TRY_AGAIN: 503, INTERNAL: 500,
}  # fmt: skip
"""An exit code of the commands and what it is in HTTP."""
NAVIGATION: Final = (
    ("/", "Now"), ("/trace", "Trace"), ("/dead", "Dead letters"), ("/review", "Review"),
    ("/windows", "Windows"), ("/reconcile", "Reconcile"), ("/log", "Audit log"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Console:
    """What the process was started with."""

    find: Callable[[], Stack]
    """Resolved at each request: a sandbox comes and goes."""
    operators: Operators
    workers: tuple[str, ...] = ()
    """Addresses of workers' metrics, beside those that a sandbox lists."""


@dataclass(frozen=True, slots=True)
class Page:
    """A template and what stands in it."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request, as handlers see it."""

    request: Request
    console: Console
    stack: Stack
    operator: Operator | None
    form: Mapping[str, str]
    """Empty for a GET."""

    def asked(self, name: str) -> str | None:
        """A query parameter; None for none or nothing in it."""
        return self.request.query_params.get(name, "").strip() or None

    def item(self) -> int:
        """The number in the path.

        Raises:
            UsageProblemError: it is none.
        """
        return item_number(self.request.path_params["item"])


Answer = Page | Response
Handler = Callable[[Visit], Answer]
Mode = Literal["LIVE", "TEST", "UNKNOWN"]


def mode_of(settings: Settings) -> Mode:
    """Whether requests of this stack are billed; not known where the console has no key."""
    if settings.stripe_api_key:
        return "LIVE" if settings.livemode else "TEST"
    return "LIVE" if settings.live else "UNKNOWN"


def reading(handler: Handler) -> Callable[[Request], Response]:
    """The endpoint of a page that only reads; Starlette runs it on a thread."""

    def endpoint(request: Request) -> Response:
        return _answer(request, handler, {})

    return endpoint


def changing(handler: Handler) -> Callable[[Request], Any]:
    """The endpoint of a form: its body is read here, everything else on a thread."""

    async def endpoint(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > FORM_BYTES_MAX:
                return HTMLResponse("The form is too long.\n", status_code=413)
        given = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
        form = {name: values[-1] for name, values in given.items()}
        return await run_in_threadpool(_answer, request, handler, form)

    return endpoint


def item_number(text: str) -> int:
    """An item's number, as the ledger can have one.

    Raises:
        UsageProblemError: it is none.
    """
    if re.fullmatch(r"[0-9]{1,18}", text) is None:
        raise missing("ITEM: is no number of an item", "/")
    return int(text)


def moved(address: str) -> Response:
    """Go on there, with a GET."""
    return RedirectResponse(address, status_code=303)


def own_path(given: str | None) -> str:
    """Where to go on; never another site."""
    if given and given.startswith("/") and not given.startswith(("//", "/\\")):
        return given
    return "/"


def _answer(request: Request, handler: Handler, form: Mapping[str, str]) -> Response:
    console: Console = request.app.state.console
    operator = console.operators.operator(request.cookies.get(COOKIE))
    mode: Mode = "UNKNOWN"
    try:
        stack = console.find()
        mode = mode_of(stack.settings)
        answer = handler(Visit(request, console, stack, operator, form))
        if isinstance(answer, Response):
            return answer
        return render(request, answer, mode, operator)
    except Exception as error:  # the last fence: an operator gets a page, never a traceback
        page = broken(error)
        if page.status == STATUSES[INTERNAL]:
            log.exception("page", path=request.url.path)
        return render(request, page, mode, operator)


class ForbiddenError(UsageProblemError):
    """Who asks may not do it; the text says why, and that nothing was changed."""


def broken(error: Exception) -> Page:
    """What was seen, why that stops the page, and what to type."""
    shown = explain(error)
    status = STATUSES[shown.exit_code]
    if isinstance(error, ForbiddenError):
        status = 403
    return Page("broken.html", {"what": shown.what, "fix": shown.fix}, status)


def missing(what: str, fix: str) -> Exception:
    """An error that ends as a page with what to do instead."""
    return UsageProblemError(what, fix=fix)


def render(
    request: Request, page: Page, mode: Mode, operator: Operator | None = None
) -> HTMLResponse:
    """The page with what all pages share."""
    console: Console = request.app.state.console
    partial = "hx-request" in request.headers
    text = _templates().get_template(page.template).render(
        path=own_path(request.url.path),
        mode=mode,
        navigation=NAVIGATION,
        operator=operator,
        may_act=console.operators.may_act,
        frame="bare.html" if partial else "frame.html",
        **page.values,
    )  # fmt: skip
    return HTMLResponse(text, status_code=page.status, headers=dict(page.headers))


@cache
def _templates() -> Environment:
    folder = files("streams.console").joinpath("templates")
    known = Environment(
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    known.filters.update(words.FILTERS)
    return known
