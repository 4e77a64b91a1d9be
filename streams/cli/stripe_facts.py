"""The open questions, asked of a Stripe sandbox one after the other, and kept in a file.

In: settings with a test key, and what earlier runs have kept. Out: a document with every question,
its answer, and whether the product's assumption holds.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from streams.adapters.clock import Clock
from streams.adapters.stripe import API_VERSION, StripeSettings, StripeSink, StripeUnreadableError
from streams.cli import stripe_probes, stripe_sum_probes
from streams.cli.errors import ConfigurationError
from streams.cli.stripe_finding import Finding, Probe
from streams.cli.stripe_lab import Kept, Lab, StillOpenError
from streams.cli.stripe_questions import QUESTIONS
from streams.core.instant import wire_text
from streams.core.observation import Answer

PROBES: Final[Mapping[str, Probe]] = {
    "identifier-horizon": stripe_probes.identifier_horizon,
    "identifier-and-meter": stripe_probes.identifier_and_meter,
    "identifier-and-customer": stripe_probes.identifier_and_customer,
    "unknown-customer": stripe_probes.unknown_customer,
    "bad-value": stripe_probes.bad_value,
    "same-lane": stripe_probes.same_lane,
    "stream-duplicate": stripe_sum_probes.stream_duplicate,
    "cancelled-identifier": stripe_probes.cancelled_identifier,
    "rejected-identifier": stripe_sum_probes.rejected_identifier,
    "adjustment-errors": stripe_probes.adjustment_errors,
    "summary-lag": stripe_sum_probes.summary_lag,
    "summary-end": stripe_sum_probes.summary_end,
    "overwrite-order": stripe_sum_probes.overwrite_order,
    "overwrite-parts": stripe_sum_probes.overwrite_parts,
    "refusal-cached": stripe_probes.refusal_cached,
    "report-names": stripe_sum_probes.report_names,
}

_NOT_NOW: Final = frozenset({401, 408, 429})
_TEST_KEYS: Final = ("sk_test_", "rk_test_")


class Answered(msgspec.Struct):
    """One question, and what came of it."""

    id: str
    asks: str
    why: str
    assumed: str
    answer: dict[str, Any] | None = None
    said: str = ""
    holds: bool | None = None
    """Whether what the product assumes is so; None where either would be fine, or nobody knows."""
    still_open: str | None = None
    """What has not been answered, and why."""


class Horizon(msgspec.Struct):
    """What runs have found out about identifiers, and left for the next one."""

    refused_until_s: int | None = None
    counted_from_s: int | None = None
    kept: list[Kept] = []


class Facts(msgspec.Struct):
    """The document."""

    asked_at: str | None
    api_base: str
    api_version: str
    account: str | None
    questions: list[Answered]
    horizon: Horizon

    @property
    def contradictions(self) -> int:
        """How many assumptions do not hold."""
        return sum(one.holds is False for one in self.questions)


def unasked_all() -> list[Answered]:
    """Every question without an answer."""
    return [Answered(*question) for question in QUESTIONS]


def check_key(key: str) -> None:
    """Only a key of a sandbox may be used to try things.

    Raises:
        ConfigurationError: it is another; nothing was sent.
    """
    if not key.startswith(_TEST_KEYS):
        raise ConfigurationError(
            f"TAILRACE_STRIPE_API_KEY: not a test key ({' or '.join(_TEST_KEYS)}…); the questions "
            "are asked by recording usage, so nothing was sent",
            fix="give the key of a Stripe sandbox",
        )


def earlier(path: Path, api_base: str) -> Facts | None:
    """What earlier runs at the same address have left; None where there were none.

    Raises:
        ConfigurationError: the file is something else.
    """
    try:
        facts = msgspec.json.decode(path.read_bytes(), type=Facts)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, OSError) as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error}", fix="name another file with `--out`"
        ) from error
    return facts if facts.api_base == api_base else None


class Asking:
    """One run over all questions."""

    def __init__(self, settings: StripeSettings, clock: Clock, before: Facts | None) -> None:
        """Asks nothing yet.

        Args:
            settings: how Stripe is reached.
            clock: the time.
            before: what earlier runs have left.
        """
        self._settings = settings
        self._clock = clock
        self.facts = Facts(
            asked_at=wire_text(clock.now_us()),
            api_base=settings.api_base,
            api_version=API_VERSION,
            account=None,
            questions=unasked_all(),
            horizon=Horizon() if before is None else before.horizon,
        )
        self._before = None if before is None else before.account

    async def run(self, wait_s: float, pause_s: float, heard: Callable[[Answered], None]) -> None:
        """Asks; `facts` is whole after each question.

        Args:
            wait_s: how long to wait for what Stripe does after its answer.
            pause_s: between the first two looks.
            heard: is told of each answer.

        Raises:
            StripeUnreadableError: Stripe was not reached, or refuses the key.
        """
        async with StripeSink(self._settings) as sink:
            self.facts.account = await _account(sink)
            if self.facts.account != self._before:
                self.facts.horizon = Horizon()
            lab = Lab(sink, self._clock, wait_s, pause_s)
            known = self.facts.horizon
            lab.kept = known.kept
            lab.refused_until_s, lab.counted_from_s = known.refused_until_s, known.counted_from_s
            for one in self.facts.questions:
                await self._ask(one, lab)
                self.facts.horizon = Horizon(lab.refused_until_s, lab.counted_from_s, lab.kept)
                heard(one)

    async def _ask(self, one: Answered, lab: Lab) -> None:
        try:
            found: Finding = await PROBES[one.id](lab)
        except StillOpenError as error:
            one.still_open = str(error)
        except StripeUnreadableError as error:
            if not _is_refusal(error):
                raise
            one.still_open = str(error)
        else:
            one.answer, one.said, one.holds = found.seen, found.said, found.holds
            one.still_open = found.still


async def _account(sink: StripeSink) -> str | None:
    """Whose sandbox it is; None where the key may not ask that."""
    try:
        return await sink.account_id()
    except StripeUnreadableError as error:
        if not _is_refusal(error):
            raise
        return None


def _is_refusal(error: StripeUnreadableError) -> bool:
    """Whether Stripe answered that this is not possible, and others may be."""
    seen = error.observation
    return isinstance(seen, Answer) and 400 <= seen.status < 500 and seen.status not in _NOT_NOW
