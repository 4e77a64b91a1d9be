"""Bugs between the ledger and Stripe."""

from dataclasses import replace
from typing import Any, Final

from tests.simulation.mutants import Mutant, Patch
from tests.simulation.stripe import Sink

_send = Sink.send


def _names_each_try_anew(patch: Patch) -> None:
    async def send(self: Sink, meter_event: Any, idempotency_key: str) -> Any:
        identifier = f"{meter_event.identifier}:{meter_event.attempt_id}"
        claim = replace(meter_event, identifier=identifier)
        return await _send(self, claim, f"{idempotency_key}:{meter_event.attempt_id}")

    patch.setattr(Sink, "send", send)


MUTANTS: Final = (
    Mutant(
        "identifier_per_try",
        "the identifier of a meter event never changes",
        _names_each_try_anew,
        ("double",),
        ("stripe_sporadic",),
    ),
)
