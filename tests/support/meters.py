"""Meters at a stand-in, made as anybody with the key would make them."""

import requests

_KEY = {"Authorization": "Bearer sk_test_sandbox"}
_WITHIN_S = 10


def make_meter(stripe_url: str, event_name: str, formula: str) -> None:
    """Archives what Stripe has under the name, and makes another of this formula."""
    meters = f"{stripe_url}/v1/billing/meters"
    there = requests.get(
        meters, {"status": "active", "limit": "100"}, headers=_KEY, timeout=_WITHIN_S
    )
    for meter in there.json()["data"]:
        if meter["event_name"] == event_name:
            _order(f"{meters}/{meter['id']}/deactivate", {})
    fields = {
        "display_name": event_name, "event_name": event_name,
        "default_aggregation[formula]": formula,
    }  # fmt: skip
    _order(meters, fields)


def _order(url: str, fields: dict[str, str]) -> None:
    answer = requests.post(url, fields, headers=_KEY, timeout=_WITHIN_S)
    assert answer.ok, answer.text
