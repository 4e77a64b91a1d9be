"""Who may change something: the operator secret → a session, and the token of its forms.

A session is a signed cookie and nothing is kept of it here. Its key is made anew at each start, so
a restart signs everybody out.
"""

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streams.adapters.clock import Clock
from streams.cli.errors import ConfigurationError
from streams.console.throttle import Throttle
from streams.core.instant import SECOND_US

COOKIE: Final = "tailrace_session"
SESSION_S: Final = 8 * 3600
SECRET_CHARACTERS_MIN: Final = 16
ACTOR_CHARACTERS_MAX: Final = 80


@dataclass(frozen=True, slots=True)
class Operator:
    """Somebody who knows the secret."""

    actor: str
    """Who they say they are; kept with each reason."""
    form_token: str
    """What every form of theirs carries, and no other site can know."""


@dataclass(frozen=True, slots=True)
class RefusedSignIn:
    """Nobody is signed in."""

    wait_s: float
    """Until the next try is looked at, where this one was not; 0: it was wrong."""


class Operators:
    """Signs people in; without a secret nobody is, and the console only reads."""

    def __init__(self, secret: str | None, clock: Clock, key: bytes | None = None) -> None:
        """Makes the key of its sessions, unless it is given.

        Args:
            secret: what operators know; None for a console that only reads.
            clock: dates sessions.
            key: at least 32 random bytes.
        """
        self._secret = secret
        self._clock = clock
        self._key = key or secrets.token_bytes(32)
        self._throttle = Throttle()

    @property
    def may_act(self) -> bool:
        """Whether anybody can sign in."""
        return self._secret is not None

    def admit(self, given: str, actor: str, address: str) -> str | RefusedSignIn:
        """The session's cookie, or why there is none; tries that fail have to wait for each other.

        Args:
            given: the secret, as somebody typed it.
            actor: who they say they are.
            address: whence they ask.
        """
        wait_s = self._throttle.begin(address, self._clock.elapsed_s())
        if wait_s > 0.0:
            return RefusedSignIn(wait_s)
        cookie = self.sign_in(given, actor)
        if cookie is None:
            return RefusedSignIn(0.0)
        self._throttle.end(address)
        return cookie

    def sign_in(self, given: str, actor: str) -> str | None:
        """The session's cookie; None for a wrong secret or an actor that says nothing."""
        named = actor.strip()
        if self._secret is None or not named or len(named) > ACTOR_CHARACTERS_MAX:
            return None
        if not named.isprintable() or not _same(given, self._secret):
            return None
        ends_s = self._clock.now_us() // SECOND_US + SESSION_S
        name = urlsafe_b64encode(named.encode()).decode()
        body = f"{name}.{ends_s}.{secrets.token_hex(8)}"
        return f"{body}.{self._sign('session', body)}"

    def operator(self, cookie: str | None) -> Operator | None:
        """Whose session it is; None for none, a forged one, or one that is over."""
        body, _, signature = (cookie or "").rpartition(".")
        if self._secret is None or not _same(signature, self._sign("session", body)):
            return None
        name, ends_s, _ = body.split(".")
        if self._clock.now_us() // SECOND_US >= int(ends_s):
            return None
        return Operator(urlsafe_b64decode(name).decode(), self._sign("form", body))

    def is_own_form(self, operator: Operator, token: str) -> bool:
        """Whether a form came from a page of this very session."""
        return _same(token, operator.form_token)

    def _sign(self, purpose: str, body: str) -> str:
        return hmac.new(self._key, f"{purpose}:{body}".encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def read_secret(path: Path) -> str:
    """The operator secret of a file that nobody else can read.

    Raises:
        ConfigurationError: it cannot be read, others can read it, or it is too short.
    """
    make = f"`(umask 077; openssl rand -hex 32 > {path})`"
    try:
        others = path.stat().st_mode & 0o077
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--secret-file: {path}: {error}", fix=make) from error
    if others:
        raise ConfigurationError(
            f"--secret-file: {path} can be read by others than its owner", fix=f"`chmod 600 {path}`"
        )
    if len(text) < SECRET_CHARACTERS_MIN:
        raise ConfigurationError(
            f"--secret-file: {path} holds fewer than {SECRET_CHARACTERS_MIN} characters", fix=make
        )
    return text
