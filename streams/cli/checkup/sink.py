"""Stripe: reachable with a key of the right mode, and meters that count what is sent."""

import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from streams.cli.checkup.check import Check, Fix, NotMadeError, Trouble, answers
from streams.cli.checkup.patient import Patient
from streams.core.live_meter import CHECKS as METER_CHECKS
from streams.core.live_meter import MEANING, LiveMeter, MeterFinding, check_meters
from streams.core.meter_event import CUSTOMER_KEY, VALUE_KEY
from streams.settings import Settings


def _reached(patient: Patient) -> Iterator[Trouble]:
    return answers(patient.meters())


def _key(patient: Patient) -> Iterator[Trouble]:
    patient.set("stripe_api_key")
    yield from of_key(patient.settings)


def of_key(settings: Settings) -> Iterator[Trouble]:
    """Whether the key's mode is the one that is meant, and not wider than needed."""
    key = settings.stripe_api_key
    if settings.live and not settings.livemode:
        yield Trouble(
            "TAILRACE_LIVE is 1 with a test key",
            "usage goes to Stripe's sandbox: nobody is billed",
            Fix("settings", "TAILRACE_LIVE=0  # or a live key, if it is meant"),
        )
    if key.startswith("sk_live"):
        yield Trouble(
            "the live key is a secret key, which may do everything",
            "whoever reads it from this computer can refund, pay out and read all customers",
            Fix(
                "settings", "TAILRACE_STRIPE_API_KEY=rk_live_…  # restricted: meter events, meters"
            ),
        )
    if not key.startswith(("sk_", "rk_")):
        yield Trouble(
            "TAILRACE_STRIPE_API_KEY is no secret or restricted key",
            "Stripe refuses it, so nothing is sent",
            Fix("settings", "TAILRACE_STRIPE_API_KEY=rk_test_…"),
        )


def _meters(check: str) -> Callable[[Patient], Iterator[Trouble]]:
    def look(patient: Patient) -> Iterator[Trouble]:
        names = {meter.event_name for meter in patient.in_force()}
        if not names:
            message = "the catalogue has no meter yet: `tailrace meters apply`"
            raise NotMadeError(message)
        there = patient.meters()
        for finding in check_meters(names, there, livemode=patient.settings.livemode):
            if METER_CHECKS[finding.kind] == check:
                yield Trouble(
                    f"{finding.event_name}: {finding.rule}",
                    MEANING[finding.kind],
                    fix_of(finding, there, patient.settings.stripe_api_base),
                )

    return look


def fix_of(finding: MeterFinding, meters: Iterable[LiveMeter], base: str) -> Fix:
    """What to paste about a meter."""
    # The key goes by stdin: everybody on a machine sees the arguments of its programs.
    curl, key = "curl -H @-", '<<<"Authorization: Bearer $TAILRACE_STRIPE_API_KEY"'
    name = finding.event_name
    if finding.kind == "archived":
        meter_id = next(meter.id for meter in meters if meter.event_name == name)
        return Fix("shell", f"{curl} -X POST {base}/v1/billing/meters/{meter_id}/reactivate {key}")
    if finding.kind == "missing":
        fields = (
            f"display_name={name}", f"event_name={name}", "default_aggregation[formula]=sum",
            "customer_mapping[type]=by_id", f"customer_mapping[event_payload_key]={CUSTOMER_KEY}",
            f"value_settings[event_payload_key]={VALUE_KEY}",
        )  # fmt: skip
        given = " ".join(f"--data-urlencode {shlex.quote(field)}" for field in fields)
        return Fix("shell", f"{curl} {base}/v1/billing/meters {given} {key}")
    if finding.kind == "mode":
        return Fix("settings", "TAILRACE_STRIPE_API_KEY=…  # of the mode that is meant")
    return Fix("stripe", finding.remedy)


CHECKS: Final[Iterable[Check[Patient]]] = (
    Check("stripe", "Stripe answers", _reached, reaches="stripe_api_base"),
    Check("stripe-key", "the key is of the mode that is meant", _key),
    *(
        Check(name, what, _meters(name))
        for name, what in (
            ("meter-active", "every meter in force is there, and active"),
            ("meter-formula", "each adds up what it is sent"),
            ("meter-keys", "each finds customer and value"),
            ("meter-mode", "each is of the key's mode"),
        )
    ),
)
