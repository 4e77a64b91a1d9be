"""The control API from outside: orders and questions → what a running stand-in answers, over HTTP.

For whoever has to break Stripe on purpose or to know what really was recorded: the demo, the tests.
Each call blocks for as long as the stand-in takes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import requests

ORDER_WITHIN_S = 5.0
ORACLE_WITHIN_S = 30.0
"""It lists everything that was ever recorded."""


class OrderRefusedError(Exception):
    """The stand-in does not know such an order; the text is its own."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """A running stand-in, by the API base that the workers use."""

    url: str

    def arm(self, **fault: object) -> Mapping[str, Any]:
        """Orders a fault; the answer names it.

        Args:
            fault: the fields of `faults.FaultSpec`; `kind` at least.

        Raises:
            OrderRefusedError: there is no such fault.
            requests.RequestException: nobody answers.
        """
        body = msgspec.json.encode(fault)
        return self._answer("POST", "faults", data=body)

    def faults(self, within_s: float = ORDER_WITHIN_S) -> list[Mapping[str, Any]]:
        """Every fault that is ordered now, with how often it struck.

        Raises:
            requests.RequestException: nobody answers.
        """
        return list(self._answer("GET", "faults", within_s=within_s)["faults"])

    def clear_faults(self) -> None:
        """Ends all faults, and releases the requests that one of them holds.

        Raises:
            requests.RequestException: nobody answers.
        """
        self._answer("DELETE", "faults")

    def change_settings(self, **changes: object) -> None:
        """Has it behave otherwise from now on.

        Args:
            changes: fields of `settings.Settings`.

        Raises:
            OrderRefusedError: there is no such setting.
            requests.RequestException: nobody answers.
        """
        self._answer("POST", "settings", data=msgspec.json.encode(changes))

    def oracle(self) -> list[Mapping[str, Any]]:
        """Every meter event it recorded, whatever it answered to the sender.

        Raises:
            requests.RequestException: nobody answers.
        """
        return list(self._answer("GET", "oracle", within_s=ORACLE_WITHIN_S)["events"])

    def request_counts(self) -> Mapping[str, int]:
        """How many requests it saw, by `METHOD path`, and how it answered, by `status N`.

        Raises:
            requests.RequestException: nobody answers.
        """
        return self._answer("GET", "requests")

    def subscribe(self, **order: object) -> None:
        """Orders a subscription: what invoices a customer gets, and when they become final.

        Args:
            order: the fields of `control.SubscriptionOrder`.

        Raises:
            OrderRefusedError: there is no such subscription.
            requests.RequestException: nobody answers.
        """
        self._answer("POST", "subscriptions", data=msgspec.json.encode(order))

    def invoice_lines(self) -> list[Mapping[str, Any]]:
        """Every line of every invoice, as its own clock has them now.

        Raises:
            requests.RequestException: nobody answers.
        """
        return list(self._answer("GET", "invoices", within_s=ORACLE_WITHIN_S)["lines"])

    def _answer(
        self, method: str, what: str, *, data: bytes | None = None, within_s: float = ORDER_WITHIN_S
    ) -> Mapping[str, Any]:
        url = f"{self.url}/_sandbox/{what}"
        answer = requests.request(method, url, data=data, timeout=within_s)
        if answer.status_code == requests.codes.bad_request:
            raise OrderRefusedError(answer.json()["error"])
        answer.raise_for_status()
        told: Mapping[str, Any] = msgspec.json.decode(answer.content)
        return told
