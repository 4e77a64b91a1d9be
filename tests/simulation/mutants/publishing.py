"""Bugs between the ledger and Stripe."""

from dataclasses import replace
from typing import Any, Final

from streams.agents import publish
from streams.core import publication, settlement
from streams.core.lane import Claim, Settlement
from streams.core.observation import MaybeSent, NotSent
from streams.core.outcome import AlreadyRecorded
from streams.core.settlement import Send
from tests.simulation.ledger.database import Database
from tests.simulation.ledger.lanes import Lanes
from tests.simulation.ledger.rejecting import Rejecting
from tests.simulation.ledger.work_list import WorkList
from tests.simulation.mutants import Mutant, Patch
from tests.simulation.mutants.layers import (
    name_cells_alone,
    never_reconcile,
)
from tests.simulation.stripe import Sink

_attempt = publish.Publisher._attempt
_send = Sink.send
_classify = publication.classify
_settle = settlement.settle
_lend = Lanes.lend
_end = Lanes._settle


def _names_each_try_anew(patch: Patch) -> None:
    async def send(self: Sink, meter_event: Any, idempotency_key: str) -> Any:
        identifier = f"{meter_event.identifier}:{meter_event.attempt_id}"
        claim = replace(meter_event, identifier=identifier)
        return await _send(self, claim, f"{idempotency_key}:{meter_event.attempt_id}")

    patch.setattr(Sink, "send", send)


def _keeps_one_key(patch: Patch) -> None:
    patch.setattr(Claim, "idempotency_key", property(lambda self: f"{self.identifier}.g1"))


def _sends_however_old(patch: Patch) -> None:
    patch.setattr(publish, "may_send", lambda *_: Send())


def _forgets_doubt(patch: Patch) -> None:
    def settle(claim: Claim, *given: Any, **named: Any) -> Settlement:
        made = _settle(claim, *given, **named)
        if made.evidence.outcome == "Retry":
            state = "pending" if made.state == "ambiguous" else made.state
            return replace(made, possibly_executed=False, state=state)
        return made

    def end(self: Lanes, r: dict[str, Any]) -> None:
        if r["outcome"] == "Retry":
            self.meter_event(r["meter_event_id"]).possibly_executed = False
        _end(self, r)

    patch.setattr(publish, "settle", settle)
    patch.setattr(Lanes, "_settle", end)


def _takes_timeouts_as_unsent(patch: Patch) -> None:
    def classify(observation: Any, history: Any) -> Any:
        if isinstance(observation, MaybeSent):
            observation = NotSent(observation.cause)
        return _classify(observation, history)

    patch.setattr(settlement, "classify", classify)


def _charges_outages(patch: Patch) -> None:
    patch.setattr(settlement, "_charged", lambda *_given, **_named: True)


def _believes_any_duplicate(patch: Patch) -> None:
    rules = tuple(
        replace(rule, decide=lambda *_: AlreadyRecorded()) if rule.name == "duplicate" else rule
        for rule in publication.RULES
    )
    patch.setattr(publication, "RULES", rules)


def _lets_negatives_pass(patch: Patch) -> None:
    open_in, candidate = Lanes.open_in, Lanes._candidate

    def also_negative(self: Lanes, lane_id: int) -> Any:
        """Asks as if nothing were open, and takes that answer only for less than nothing."""
        if (found := candidate(self, lane_id)) is not None:
            return found
        patch.setattr(Lanes, "open_in", lambda *_: [])
        found = candidate(self, lane_id)
        patch.setattr(Lanes, "open_in", open_in)
        return found if found is not None and found[5] < 0 else None

    patch.setattr(Lanes, "_candidate", also_negative)


def _ignores_leases(patch: Patch) -> None:
    patch.setattr(publish.Publisher, "_unsent", lambda *_: None)


def _checks_before_its_turn(patch: Patch) -> None:
    async def attempt(self: Any, lent: Any) -> Any:
        pace, asked_at_s = self._pace, self._clock.elapsed_s()
        await pace.turn()
        then = replace(lent, asked_at_s=lent.asked_at_s + self._clock.elapsed_s() - asked_at_s)
        self._pace = _Now()
        try:
            return await _attempt(self, then)
        finally:
            self._pace = pace

    patch.setattr(publish.Publisher, "_attempt", attempt)


class _Now:
    """Nobody waits, because somebody has."""

    async def turn(self) -> None:
        """At once."""

    def slower(self) -> None:
        """Told to the other."""


def _merges_what_is_under_way(patch: Patch) -> None:
    patch.setattr(WorkList, "unfinished", lambda *_: False)


def _writes_attempts_afterwards(patch: Patch) -> None:
    def lend(self: Any, *given: Any, **named: Any) -> list[int]:
        return _lend(self, *given, **named)

    def end(self: Any, r: dict[str, Any]) -> None:
        m = self.meter_event(r["meter_event_id"])
        key = f"{m.identifier}.g{m.key_generation}"
        self.attempted.setdefault(key, self.timeline.now_us())
        _end(self, r)

    patch.setattr(Database, "lend", lend)
    patch.setattr(WorkList, "unfinished", lambda *_: False)
    patch.setattr(Lanes, "_settle", end)


def _ignores_reports(patch: Patch) -> None:
    patch.setattr(Rejecting, "take_back", lambda *_given, **_named: None)


MUTANTS: Final = (
    Mutant(
        "identifier_per_try",
        "the identifier of a meter event never changes",
        _names_each_try_anew,
        ("double",),
        ("stripe_sporadic",),
    ),
    Mutant(
        "one_idempotency_key",
        "the key moves on after an error that was received",
        _keeps_one_key,
        ("lost", "stuck"),
        ("errors_kept",),
        ("what is in doubt for too long is settled by Stripe's sums",),
        never_reconcile,
    ),
    Mutant(
        "no_fence",
        "what is in doubt is not sent again after 23 hours",
        _sends_however_old,
        ("double", "stale_fence"),
        ("refused_for_a_day",),
    ),
    Mutant(
        "doubt_forgotten",
        "once a request may have been executed, no refusal of a later one ends the doubt",
        _forgets_doubt,
        ("double",),
        ("refused_for_a_day",),
    ),
    Mutant(
        "timeout_as_unsent",
        "a request without an answer may have been executed",
        _takes_timeouts_as_unsent,
        ("double",),
        ("refused_for_a_day",),
    ),
    Mutant(
        "dead_in_an_outage",
        "what fails because Stripe is down for all uses up no attempts",
        _charges_outages,
        ("given_up",),
        ("refused_for_hours",),
    ),
    Mutant(
        "any_duplicate_is_success",
        "a duplicate is a success only if an earlier attempt explains it",
        _believes_any_duplicate,
        ("lost", "settled"),
        ("decided_twice",),
        ("an identifier names what a request covers",),
        name_cells_alone,
    ),
    Mutant(
        "negative_overtakes",
        "a negative amount waits for everything before it in its lane",
        _lets_negatives_pass,
        ("overtaken",),
        ("positives_refused",),
    ),
    Mutant(
        "lease_unchecked",
        "a request whose lease is over is not sent",
        _ignores_leases,
        ("double", "stale_lease"),
        ("stopped_with_claims",),
    ),
    Mutant(
        "lease_checked_before_its_turn",
        "the lease is checked when a request is about to leave, not when it lines up",
        _checks_before_its_turn,
        ("double", "stale_lease"),
        ("stopped_in_turn",),
    ),
    Mutant(
        "attempt_written_afterwards",
        "an attempt is written before its first byte",
        _writes_attempts_afterwards,
        ("unattempted",),
        ("killed_after_answer",),
    ),
    Mutant(
        "merged_under_way",
        "a request whose attempt has no end yet is not made anew",
        _merges_what_is_under_way,
        ("double",),
        ("killed_after_answer", "decided_twice"),
    ),
    Mutant(
        "rejection_ignored",
        "what Stripe refuses after it was accepted is taken back",
        _ignores_reports,
        ("lost",),
        ("rejected_afterwards",),
    ),
)
