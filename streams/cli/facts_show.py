"""The answers to the open questions: kept in a file, shown on the terminal."""

from pathlib import Path

import msgspec

from streams.adapters.stripe import API_VERSION
from streams.cli import terminal
from streams.cli.stripe_facts import Answered, Facts, Horizon, unasked_all


def unasked(api_base: str, *, as_json: bool) -> None:
    """Lists the questions, for there is nobody to ask."""
    if as_json:
        facts = Facts(None, api_base, API_VERSION, None, unasked_all(), Horizon())
        terminal.emit_json(msgspec.to_builtins(facts))
    else:
        for one in unasked_all():
            terminal.data(f"{one.id}: {one.asks}")
            terminal.data(f"  why: {one.why}")
            terminal.data(f"  assumed meanwhile: {one.assumed}")
    terminal.say("not asked: set TAILRACE_STRIPE_API_KEY to the key of a Stripe sandbox")


def answer(one: Answered) -> None:
    """One line, or two where something is left open."""
    verdict = {True: "as assumed", False: "NOT AS ASSUMED", None: "-"}[one.holds]
    if one.answer is None:
        verdict = "open"
    terminal.data(f"{one.id:24}{verdict:16}{one.said or one.still_open}")
    if one.answer is not None and one.still_open is not None:
        terminal.data(f"{'':24}{'still open':16}{one.still_open}")
    if one.holds is False:
        terminal.data(f"{'':24}{'assumed':16}{one.assumed}")


def keep(path: Path, facts: Facts) -> None:
    """Replaces the file whole.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
    fresh.replace(path)


def whole(path: Path, facts: Facts, *, as_json: bool) -> None:
    """The end of a run."""
    if as_json:
        terminal.emit_json(msgspec.to_builtins(facts))
    answered = sum(one.answer is not None for one in facts.questions)
    left = sum(one.still_open is not None for one in facts.questions)
    terminal.say(
        f"{answered} of {len(facts.questions)} answered, {facts.contradictions} not as assumed, "
        f"{left} still open; kept in {path}"
    )
