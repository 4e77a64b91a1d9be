"""Events → signed calls of the webhook endpoint, until it takes them: repeated, in any order, late.

In: the events that were made and not delivered yet, and the settings, read before each round.
Out: calls with a `Stripe-Signature`, and a fact for what was taken. At least once, as Stripe does:
a stand-in that is killed between an answer and its fact delivers again.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

import aiohttp
import msgspec

from sandbox.stripe_sandbox import reports
from sandbox.stripe_sandbox.engine import Engine
from sandbox.stripe_sandbox.fact import Delivered, Reported
from sandbox.stripe_sandbox.settings import US_PER_S

ROUND_S: Final = 0.05
RETRY_MS_MAX: Final = 3_600_000
ANSWER_S_MAX: Final = 20.0


def signature(body: bytes, secret: str, now_s: int) -> str:
    """The header `Stripe-Signature` of a call."""
    signed = f"{now_s}.".encode() + body
    return f"t={now_s},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


@dataclass(slots=True)
class _Pending:
    """How far the delivery of an event has come."""

    lost: bool
    """It is never delivered."""
    taken: int = 0
    """How often it was taken."""
    refused: int = 0
    due_ms: int = 0


class Delivery:
    """Delivers while it runs."""

    def __init__(self, engine: Engine, clock: Callable[[], int], seed: int) -> None:
        self._engine = engine
        self._clock = clock
        self._random = Random(seed)  # noqa: S311 - repeatable disorder, not secrets
        self._pending: dict[str, _Pending] = {}
        self.calls = 0
        """Calls that were made."""
        self.lost = 0
        """Events that will never be delivered."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins; needs a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends; a call that is in hand may have been taken."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        limits = aiohttp.ClientTimeout(total=ANSWER_S_MAX)
        async with aiohttp.ClientSession(timeout=limits) as session:
            while True:
                self._engine.advance(self._clock())
                for report in self._next():
                    await self._deliver(session, report)
                await asyncio.sleep(ROUND_S)

    def _next(self) -> list[Reported]:
        """What is due, in the order in which it goes out."""
        settings, state = self._engine.settings, self._engine.state
        if not settings.webhook_url:
            return []
        now_ms = self._clock() // 1_000
        due = []
        for identity, report in state.reports.items():
            if identity in state.delivered:
                continue
            pending = self._pending.get(identity)
            if pending is None:
                lost = self._random.random() < settings.webhook_loss
                self.lost += lost
                pending = self._pending[identity] = _Pending(lost)
            if not pending.lost and pending.due_ms <= now_ms:
                due.append(report)
        if settings.webhook_shuffle:
            self._random.shuffle(due)
        return due

    async def _deliver(self, session: aiohttp.ClientSession, report: Reported) -> None:
        settings, pending = self._engine.settings, self._pending[report.id]
        body = msgspec.json.encode(reports.notification(report))
        now_us = self._clock()
        headers = {
            "Content-Type": "application/json",
            "Stripe-Signature": signature(body, settings.webhook_secret, now_us // US_PER_S),
        }
        self.calls += 1
        if not await _taken(session, settings.webhook_url, body, headers):
            wait_ms = min(RETRY_MS_MAX, settings.webhook_retry_ms * 2 ** min(pending.refused, 20))
            pending.refused += 1
            pending.due_ms = self._clock() // 1_000 + wait_ms
            return
        pending.taken += 1
        if pending.taken >= settings.webhook_copies:
            self._engine.remember([Delivered(report.id, now_us)])


async def _taken(
    session: aiohttp.ClientSession, url: str, body: bytes, headers: dict[str, str]
) -> bool:
    try:
        async with session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
            return 200 <= answer.status < 300
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return False
