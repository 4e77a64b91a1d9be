"""The console's routes: addresses → handlers, behind the doors."""

from importlib.resources import files

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from streams.console import acts, pages
from streams.console.doors import LOOPBACK, Doors
from streams.console.visit import Console, Page, changing, mode_of, reading, render


def build(console: Console, names: frozenset[str] = frozenset()) -> Starlette:
    """The application.

    Args:
        console: what it shows, and who may change something.
        names: host names it answers to beside those of loopback.
    """
    static = str(files("streams.console").joinpath("static"))
    app = Starlette(
        routes=[
            Route("/", reading(pages.now)),
            Route("/curves", reading(pages.curves)),
            Route("/trace", reading(pages.trace)),
            Route("/dead", reading(pages.dead)),
            Route("/dead/{item}", reading(pages.dead_item)),
            Route("/review", reading(pages.review)),
            Route("/review/{item}", reading(pages.review_item)),
            Route("/windows", reading(pages.windows)),
            Route("/statement", reading(pages.statement)),
            Route("/reconcile", reading(pages.reconcile)),
            Route("/log", reading(pages.log)),
            Route("/sign-in", reading(acts.sign_in_form), methods=["GET"]),
            Route("/sign-in", changing(acts.sign_in), methods=["POST"]),
            Route("/sign-out", changing(acts.sign_out), methods=["POST"]),
            Route("/review/{item}/{verb}", changing(acts.decide), methods=["POST"]),
            Route("/dead/redrive", changing(acts.redrive), methods=["POST"]),
            Mount("/static", StaticFiles(directory=static)),
        ],
        middleware=[Middleware(Doors, names=LOOPBACK | names)],
        exception_handlers={HTTPException: _refused},
    )
    app.state.console = console
    return app


def _refused(request: Request, error: Exception) -> Response:
    """No such page, or not asked for in this way."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    values = {"what": f"{request.url.path}: there is no such page", "fix": ""}
    try:
        mode = mode_of(request.app.state.console.find().settings)
    except Exception:  # noqa: BLE001 - the page says what was asked for, not how the stack is
        mode = "UNKNOWN"
    return render(request, Page("broken.html", values, status), mode)
