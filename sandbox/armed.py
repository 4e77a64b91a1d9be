"""The stand-in's address → the faults that are armed at it, for people; and how they are cleared.

An armed fault looks like an outage of Stripe's to everything else, and the part itself is ready.
"""

from __future__ import annotations

import msgspec
import requests

from sandbox.stripe_sandbox.client import StandIn

_WITHIN_S = 2.0


def told(stripe_url: str) -> list[str]:
    """A line for each fault that strikes still, and the command that ends them; none for none."""
    try:
        listed = StandIn(stripe_url).faults(_WITHIN_S)
    except (requests.RequestException, msgspec.DecodeError) as error:
        return [f"  stripe: its armed faults are not known ({type(error).__name__})"]
    armed = [fault for fault in listed if not fault["spent"]]
    lines = [
        f"  stripe: FAULT {fault['kind']} is armed, it struck {fault['struck']} times"
        for fault in armed
    ]
    end = f"    end all of them: `curl -X DELETE {stripe_url}/_sandbox/faults`"
    return [*lines, end] if armed else []
