"""Every POST: a form of a signed-in operator → a plan, and when it was seen, the act itself.

Nothing here changes an amount that the same command would refuse: plan and act are the functions of
the commands. The ledger sees the login of this console, so its rule of four eyes holds whoever is
signed in; the operator's name stands with the reason. The form that does an act carries the digest
of the plan that was shown: where the plan has changed since, it is shown anew and nothing is done.
"""

import hashlib
import math
import shlex
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, NamedTuple

import structlog
from starlette.responses import Response

from streams.cli.database import Connection, connected
from streams.cli.deciding import Act, again, carry_out, plan_of
from streams.cli.errors import UsageProblemError
from streams.cli.options import Where
from streams.cli.redriving import redriving, select
from streams.cli.review import approving, rejecting
from streams.console.operators import COOKIE, SESSION_S, Operator, RefusedSignIn
from streams.console.visit import (
    Answer,
    ForbiddenError,
    Page,
    Visit,
    item_number,
    moved,
    own_path,
)

log = structlog.get_logger("console")

REASON_CHARACTERS_MAX: Final = 2_000
Do = Callable[[], Sequence[str]]
"""Does exactly what was rehearsed; the receipts."""


class Rehearsed(NamedTuple):
    """What an act would do, or did."""

    would: Sequence[str]
    unchanged: Sequence[str]
    refused: Sequence[str]

    @property
    def digest(self) -> str:
        """Changes with what would be done."""
        return hashlib.sha256("\n".join(self.would).encode()).hexdigest()


def sign_in_form(visit: Visit) -> Answer:
    """Where an operator signs in."""
    return Page("sign_in.html", {"wrong": "", "back": own_path(visit.asked("back"))})


def sign_in(visit: Visit) -> Answer:
    """A session for whoever knows the secret."""
    back = own_path(visit.form.get("back"))
    peer = visit.request.client
    address = peer.host if peer else ""
    cookie = visit.console.operators.admit(
        visit.form.get("secret", ""), visit.form.get("actor", ""), address
    )
    if isinstance(cookie, RefusedSignIn):
        return _not_signed_in(cookie, address, back)
    answer = moved(back)
    # Behind what ends TLS only the browser knows; its cookie must not go out in clear text either.
    origin = visit.request.headers.get("origin", "")
    secure = visit.request.url.scheme == "https" or origin.startswith("https://")
    answer.set_cookie(
        COOKIE, cookie, max_age=SESSION_S, httponly=True, samesite="strict", secure=secure
    )
    return answer


def _not_signed_in(refused: RefusedSignIn, address: str, back: str) -> Page:
    if refused.wait_s > 0.0:
        seconds = math.ceil(refused.wait_s)
        wrong = (
            f"Too many sign-ins failed of late, so this one was not looked at. Wait {seconds} s, "
            "then send it again."
        )
        headers = {"retry-after": str(seconds)}
        return Page("sign_in.html", {"wrong": wrong, "back": back}, 429, headers)
    # Not the name that was given: people type the secret there.
    log.warning("sign_in_refused", peer=address)
    wrong = "The secret is not the one of --secret-file, or no name was given."
    return Page("sign_in.html", {"wrong": wrong, "back": back}, 403)


def sign_out(visit: Visit) -> Answer:
    """Takes the cookie away."""
    _operator(visit)
    answer: Response = moved("/")
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def decide(visit: Visit) -> Answer:
    """Approve or reject one item."""
    operator, verb, items = _operator(visit), visit.request.path_params["verb"], [visit.item()]
    reason = _reason(visit)
    match verb:
        case "approve":
            into, proof = _into(visit.form.get("into")), visit.form.get("proof") or None
            act: Act = approving(items, into, proof, reason)
        case "reject":
            act = rejecting(items, reason)
        case _:
            raise UsageProblemError(f"{verb}: is no decision", fix="approve or reject")
    why = _kept(reason, operator)

    def rehearse(ledger: Connection) -> tuple[Rehearsed, Do]:
        plan = plan_of(ledger, items, act, why)
        would = [f"would {text}" for text in plan.would]
        return Rehearsed(would, plan.unchanged, plan.refused), lambda: [
            receipt.text for receipt in carry_out(ledger, plan, act, why)
        ]

    return _act(visit, rehearse, act.command)


def redrive(visit: Visit) -> Answer:
    """Send dead requests again: one, or all of a cause."""
    operator, reason = _operator(visit), _reason(visit)
    item, cause = visit.form.get("item"), visit.form.get("cause") or None
    if (item is None) == (cause is None):
        raise UsageProblemError("which dead letters? One item, or one cause", fix="/dead")
    proof = visit.form.get("proof") or None
    if proof is not None and item is None:
        raise UsageProblemError("a proof of absence speaks of one request", fix="/dead")
    items = None if item is None else [item_number(item)]
    every = dict.fromkeys(("tenant", "from_us", "to_us"))
    which = {**every, "items": items, "cause": cause, "proof": proof}
    why, stack = _kept(reason, operator), visit.stack

    def rehearse(ledger: Connection) -> tuple[Rehearsed, Do]:
        found = select(ledger, stack, which, lambda _said: None)

        def texts(*outcomes: str, yes: bool) -> list[list[str]]:
            lines = list(redriving(ledger, found, why, proof, yes=yes))
            return [
                [line["text"] for line in lines if line["outcome"] == each] for each in outcomes
            ]

        planned = Rehearsed(*texts("would_redrive", "unchanged", "refused", yes=False))
        return planned, lambda: list(chain(*texts("redriven", "refused", yes=True)))

    words = ["--cause", shlex.quote(cause)] if cause else [str(item)]
    command = again(["tailrace dead redrive", *words], reason)
    return _act(visit, rehearse, command)


def _act(
    visit: Visit,
    rehearse: Callable[[Connection], tuple[Rehearsed, Do]],
    command: str,
) -> Answer:
    with connected(visit.stack.need("ledger_dsn").ledger_dsn, "the ledger") as ledger:
        planned, do = rehearse(ledger)
        seen = visit.form.get("plan")
        # What cannot be done alone is not begun; the commands keep the same rule.
        if seen == planned.digest and planned.would and not planned.refused:
            return Page("done.html", {"receipts": do(), "unchanged": planned.unchanged})
    again_with = {
        name: value for name, value in visit.form.items() if name not in {"plan", "token"}
    }
    has_moved = seen is not None and bool(planned.would)
    values = {"planned": planned, "form": again_with, "command": command, "moved": has_moved}
    return Page("plan.html", values, 409 if planned.refused else 200)


def _operator(visit: Visit) -> Operator:
    """Who acts.

    Raises:
        ForbiddenError: nobody is signed in, or the form is not of their session.
    """
    operators = visit.console.operators
    if not operators.may_act:
        raise ForbiddenError(
            "this console only reads, so nothing was changed",
            fix="start it with --secret-file, or type the command in a shell",
        )
    if visit.operator is None:
        raise ForbiddenError("nobody is signed in, so nothing was changed", fix="/sign-in")
    if not operators.is_own_form(visit.operator, visit.form.get("token", "")):
        raise ForbiddenError(
            "this form is not of your session, so nothing was changed",
            fix="go back, load the page again, and decide there",
        )
    return visit.operator


def _reason(visit: Visit) -> str:
    reason = visit.form.get("reason", "").strip()
    if not reason or len(reason) > REASON_CHARACTERS_MAX:
        raise UsageProblemError(
            "reason: say why, in at most 2,000 characters; the ledger keeps it",
            fix="go back and fill it in; nothing was changed",
        )
    return reason


def _kept(reason: str, operator: Operator) -> str:
    """What the ledger keeps: the login is the console's, so who was there stands in the reason."""
    return f"{reason} ({operator.actor}, at the console)"


def _into(given: str | None) -> Where | None:
    if not given:
        return None
    try:
        return Where(given)
    except ValueError as error:
        raise UsageProblemError(
            f"into: {given!r} is neither own nor carry", fix="/review"
        ) from error
