"""Bugs in what people may not do alone, and in what they order."""

from typing import Any, Final

from streams.core import admission, verdict
from tests.simulation.ledger.agreeing import Agreeing
from tests.simulation.ledger.lanes import Lanes
from tests.simulation.ledger.pausing import Pausing
from tests.simulation.ledger.people import People
from tests.simulation.ledger.rows import Lane
from tests.simulation.mutants import Mutant, Patch

_approve = People.approve
_concerns = Pausing.concerns
_judge_correction = verdict.judge_correction


def _lets_services_correct_anything(patch: Patch) -> None:
    def judge_correction(*given: Any, above_limit: bool, **named: Any) -> Any:
        del above_limit
        return _judge_correction(*given, above_limit=False, **named)

    patch.setattr(admission, "judge_correction", judge_correction)


def _lets_one_person_decide(patch: Patch) -> None:
    patch.setattr(Agreeing, "needs_four_eyes", lambda *_: False)


def _looks_at_each_alone(patch: Patch) -> None:
    patch.setattr(Agreeing, "alone_units", lambda *_: 0)


def _lets_whoever_proposed_agree(patch: Patch) -> None:
    patch.setattr(Agreeing, "is_own", lambda *_: False)


def _counts_one_login_twice(patch: Patch) -> None:
    def approve(self: People, parked_id: int, login: str) -> int | None:
        if parked_id in self.tables.agreed:
            self.tables.agreed[parked_id] = "somebody"
        return _approve(self, parked_id, login)

    patch.setattr(People, "approve", approve)


def _lends_in_a_pause(patch: Patch) -> None:
    patch.setattr(Lanes, "is_paused", lambda *_: False)


def _pauses_whoever_pays_now(patch: Patch) -> None:
    def concerns(self: Pausing, scope: str, subject: str, lane: Lane) -> bool:
        if scope != "tenant":
            return _concerns(self, scope, subject, lane)
        return self.customer_of(subject, self.now_us) == lane.customer

    patch.setattr(Pausing, "concerns", concerns)


def _pauses_the_present_name(patch: Patch) -> None:
    def concerns(self: Pausing, scope: str, subject: str, lane: Lane) -> bool:
        if scope != "meter":
            return _concerns(self, scope, subject, lane)
        names = [m.event_name for m in self.meters.values() if m.metric == subject]
        return lane.event_name == names[-1]

    patch.setattr(Pausing, "concerns", concerns)


MUTANTS: Final = (
    Mutant(
        "service_limit_ignored",
        "a service's correction above its limit waits for a person",
        _lets_services_correct_anything,
        ("lost", "silent", "identity_phantom"),
    ),
    Mutant(
        "one_person_suffices",
        "a large correction needs a second login",
        _lets_one_person_decide,
        ("four_eyes",),
        ("decided_twice",),
    ),
    Mutant(
        "small_ones_apart",
        "many small corrections of one person are one large one",
        _looks_at_each_alone,
        ("four_eyes",),
        ("decided_twice",),
    ),
    Mutant(
        "agreed_with_oneself",
        "whoever proposes a correction is not who agrees with it",
        _lets_whoever_proposed_agree,
        ("four_eyes",),
        ("decided_twice",),
    ),
    Mutant(
        "one_login_twice",
        "two approvals of one login are one",
        _counts_one_login_twice,
        ("four_eyes",),
    ),
    Mutant(
        "lent_in_a_pause",
        "what is paused is not lent",
        _lends_in_a_pause,
        ("unpaused",),
        ("publishing_paused",),
    ),
    Mutant(
        "pause_by_present_payer",
        "a tenant is paused with all customers it was ever mapped to",
        _pauses_whoever_pays_now,
        ("unpaused",),
        ("tenants_move", "each_paused"),
    ),
    Mutant(
        "pause_by_present_name",
        "a meter is paused under all names it ever had",
        _pauses_the_present_name,
        ("unpaused",),
        ("each_paused",),
    ),
)
