"""What Stripe leaves open, or what somebody wants otherwise: data that the rules read."""

from typing import Final, Literal

import msgspec

US_PER_S: Final = 1_000_000


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """What Stripe leaves open, or what a test wants otherwise. All can be changed while it runs."""

    identifier_window_s: int = 86_400
    """How long an identifier is held. Stripe promises *at least* 24 hours."""
    key_window_s: int = 86_400
    """How long an idempotency key keeps its answer."""
    rate_limit: int = 1_000
    """Calls per second before the limiter refuses; 25 is Stripe's own sandbox."""
    summary_lag_s: int = 0
    """How long a recorded event stays invisible in the summaries."""
    unknown_customer_prefix: str = "cus_unknown_"
    """Such customers do not exist: their events are answered with success and never counted."""
    store_validation_errors: bool = False
    """Whether refusals of parameters are kept under the key, too."""
    auto_create_meters: bool = False
    """Whether a name nobody listens to gets a sum meter instead of a refusal."""
    asynchronous_validation: bool = False
    """Whether everything that is wrong with a meter event is only found after it was accepted."""
    rejected_frees_identifier: bool = False
    """Whether what was refused afterwards lets its identifier go. Nobody says so."""
    report_lag_s: int = 0
    """How long after the ten seconds of a validation its report is made; -10: while they last."""
    samples_max: int = 10
    """How many errors of a code a report names; it counts them all."""
    sample_shape: Literal["key_as_identifier", "key", "identifier"] = "key_as_identifier"
    """How a sample names its request: Stripe's texts do not agree."""
    read_allowance: int = 0
    """How many reads are answered before the limiter refuses them; 0: all are."""
    webhook_url: str = ""
    """Where events are delivered; empty: nowhere, they are only in the list."""
    webhook_secret: str = "whsec_sandbox"  # noqa: S105 - there is nothing to keep secret here
    """What deliveries are signed with."""
    webhook_retry_ms: int = 1_000
    """Pause after a first refused delivery; doubles from then on, up to an hour."""
    webhook_copies: int = 1
    """How often each event is delivered although it was taken."""
    webhook_shuffle: bool = False
    """Whether deliveries go out in any order."""
    webhook_loss: float = 0.0
    """Chance that an event is never delivered: only the list tells of it."""

    def unknown_customer(self, customer: str) -> bool:
        """Whether the customer does not exist."""
        prefix = self.unknown_customer_prefix
        return prefix != "" and customer.startswith(prefix)
