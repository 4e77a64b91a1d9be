"""Kafka Connect over REST: one method for one request, retried where a repeat is harmless.

Every request of this client may be repeated: reads, writes of a whole config, changes of state. So
409 (the group is rebalancing), 5xx and broken connections are retried with jittered, growing waits
until the time allowed has passed; any other 4xx is an answer and is raised at once. Blocking: call
it from a thread where an event loop runs.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import requests

from connectors import names
from connectors.connect_answers import (
    ConnectorStatus,
    Expanded,
    Offsets,
    Plugin,
    Refusal,
    Validation,
    Worker,
)
from connectors.errors import (
    ConnectorUnknownError,
    ConnectRejectedError,
    ConnectUnavailableError,
    SettingsRefusedError,
    StateNotReachedError,
)
from connectors.waiting import Waiting

__all__ = ["ConnectClient", "Waiting", "not_reached"]

T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 95.0
"""Above the 90 s after which a worker gives up on a request itself, so that its answer is seen.
Whoever has less patience in all waits less."""

_CREATED_WITHIN_S = 30.0


class ConnectClient:
    """A Connect cluster, reached through one of its workers.

    Args:
        base_url: address of the REST interface, such as `http://127.0.0.1:8083`.
        session: carries TLS settings and credentials; closed by whoever made it.
        waiting: patience, clock and chance.

    Raises:
        SettingsRefusedError: the address is not one.
    """

    def __init__(self, base_url: str, session: requests.Session, waiting: Waiting) -> None:
        if urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).hostname:
            problem = f"connect_url: {base_url!r} is not an http address, such as http://host:8083"
            raise SettingsRefusedError([problem])
        self._base = base_url.rstrip("/")
        self._session = session
        self.waiting = waiting

    def worker(self) -> Worker:
        """The worker that answers: version and Kafka cluster."""
        return self._read("GET", "/", Worker)

    def plugins(self) -> list[Plugin]:
        """Every plugin the worker can load, transformations and converters too."""
        return self._read("GET", "/connector-plugins?connectorsOnly=false", list[Plugin])

    def connectors(self) -> list[str]:
        """Names of all connectors."""
        return self._read("GET", "/connectors", list[str])

    def status(self, name: str) -> ConnectorStatus:
        """State of a connector and its tasks.

        Raises:
            ConnectorUnknownError: there is no such connector.
        """
        return self._read("GET", _path(name, "/status"), ConnectorStatus, name)

    def statuses(self) -> list[ConnectorStatus]:
        """State of all connectors, by name; of one just made Connect may not know it yet."""
        found = self._read("GET", "/connectors?expand=status", dict[str, Expanded])
        return [found[name].status for name in sorted(found)]

    def config(self, name: str) -> dict[str, str] | None:
        """The config Connect holds, without the name it adds; None when there is no connector."""
        try:
            held = self._read("GET", _path(name, "/config"), dict[str, str], name)
        except ConnectorUnknownError:
            return None
        held.pop("name", None)
        return held

    def offsets(self, name: str) -> Offsets:
        """Positions stored for a connector."""
        return self._read("GET", _path(name, "/offsets"), Offsets, name)

    def validate(self, name: str, config: Mapping[str, str]) -> Validation:
        """Connect's opinion of a config; logs in to the database, sees neither slot nor table."""
        plugin = quote(names.CONNECTOR_CLASS, safe="")
        path = f"/connector-plugins/{plugin}/config/validate"
        return self._read("PUT", path, Validation, name, body={**config, "name": name})

    def create_stopped(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector that does not run yet, so that the guard can look before it does.

        A repeat whose first try had arrived finds the connector there and is content if the
        config is the same.

        Raises:
            ConnectRejectedError: another config is there under this name, or it is invalid.
        """
        wanted = dict(config)

        def is_there() -> bool:
            held = self.config(name)
            if held is not None and held != wanted:
                raise ConnectRejectedError(
                    "POST /connectors", 409, f"{name} exists with another config; apply it instead"
                )
            return held is not None

        body = {"name": name, "config": wanted, "initial_state": "STOPPED"}
        self._call("POST", "/connectors", name, body=body, done_already=is_there)

        # The config is there at once, the status once the worker has read its own record of it.
        def has_status() -> bool | None:
            try:
                self.status(name)
            except ConnectorUnknownError:
                return None
            return True

        if self.waiting.until(has_status, _CREATED_WITHIN_S) is None:
            raise ConnectorUnknownError(name)

    def put_config(self, name: str, config: Mapping[str, str]) -> None:
        """Write a whole config: a running connector restarts, a stopped one stays stopped."""
        self._call("PUT", _path(name, "/config"), name, body=dict(config))

    def stop(self, name: str) -> None:
        """Ask for the tasks to end; config and positions stay. See `await_state`."""
        self._call("PUT", _path(name, "/stop"), name)

    def resume(self, name: str) -> None:
        """Ask for the tasks to run. See `await_state`."""
        self._call("PUT", _path(name, "/resume"), name)

    def restart_failed(self, name: str) -> None:
        """Restart the connector if it failed and those of its tasks that failed."""
        self._call("POST", _path(name, "/restart?includeTasks=true&onlyFailed=true"), name)

    def delete_offsets(self, name: str) -> None:
        """Forget the stored positions; Connect allows it only while the connector is stopped."""
        self._call("DELETE", _path(name, "/offsets"), name)

    def await_state(
        self,
        name: str,
        reached: Callable[[ConnectorStatus], bool],
        *,
        what: str,
        within_s: float,
    ) -> ConnectorStatus:
        """Read the status until it is as wanted; every change of state is asynchronous.

        Raises:
            StateNotReachedError: not within the time; the text holds the last status.
        """
        last: list[ConnectorStatus] = []

        def look() -> ConnectorStatus | None:
            last[:] = [self.status(name)]
            return last[0] if reached(last[0]) else None

        status = self.waiting.until(look, within_s)
        if status is None:
            raise not_reached(name, last[0], f"{what} within {within_s:.0f} s")
        return status

    def stop_and_wait(self, name: str, *, within_s: float = 30.0) -> ConnectorStatus:
        """Stop and wait until every task has ended.

        Raises:
            StateNotReachedError: a task did not end in time; it may hold the slot still.
        """
        self.stop(name)
        return self.await_state(
            name,
            lambda status: status.at_rest,
            what="stopped",
            within_s=within_s,
        )

    def _read(
        self,
        method: str,
        path: str,
        shape: type[T],
        name: str = "",
        body: object = None,
    ) -> T:
        answer = self._call(method, path, name, body=body)
        try:
            return msgspec.json.decode(answer.content, type=shape)
        except msgspec.DecodeError as error:
            raise ConnectUnavailableError(
                f"{method} {self._base}{path}: not an answer of Kafka Connect ({error}); "
                "check the address"
            ) from error

    def _call(
        self,
        method: str,
        path: str,
        name: str,
        *,
        body: object = None,
        done_already: Callable[[], bool] | None = None,
    ) -> requests.Response:
        began = self.waiting.monotonic()
        attempt = 0
        while True:
            answer, trouble = self._once(method, path, body)
            if answer is not None and not _passing(answer):
                return _accepted(answer, f"{method} {path}", name)
            if answer is not None and done_already is not None and done_already():
                return answer
            pause_s = self.waiting.pause_s(attempt)
            if self.waiting.monotonic() + pause_s - began > self.waiting.total_s:
                raise ConnectUnavailableError(
                    f"{method} {self._base}{path}: {trouble}, after {attempt + 1} tries; "
                    "see whether a Connect worker runs there, then repeat"
                )
            self.waiting.sleep(pause_s)
            attempt += 1

    def _once(self, method: str, path: str, body: object) -> tuple[requests.Response | None, str]:
        try:
            answer = self._session.request(
                method,
                self._base + path,
                data=None if body is None else msgspec.json.encode(body),
                headers={"Accept": "application/json", "Content-Type": "application/json"},
                timeout=(
                    min(CONNECT_TIMEOUT_S, self.waiting.total_s),
                    min(READ_TIMEOUT_S, self.waiting.total_s),
                ),
                allow_redirects=False,
            )
        except requests.RequestException as error:
            return None, type(error).__name__
        return answer, f"HTTP {answer.status_code} {_message(answer)}"


def not_reached(name: str, status: ConnectorStatus, what: str) -> StateNotReachedError:
    """The error for a connector that is not in the state asked for."""
    trace = f": {status.cause}" if status.cause else ""
    return StateNotReachedError(
        f"connector {name}: not {what}, it is {status}{trace}; see the worker's log, then repeat"
    )


def _path(name: str, rest: str) -> str:
    return f"/connectors/{quote(name, safe='')}{rest}"


def _passing(answer: requests.Response) -> bool:
    """Whether the same request may get a better answer later."""
    return answer.status_code == 409 or answer.status_code >= 500


def _message(answer: requests.Response) -> str:
    try:
        return msgspec.json.decode(answer.content, type=Refusal).message
    except msgspec.DecodeError:
        return answer.text[:200]


def _accepted(answer: requests.Response, request: str, name: str) -> requests.Response:
    if answer.status_code < 300:
        return answer
    if answer.status_code == 404 and name:
        raise ConnectorUnknownError(name)
    raise ConnectRejectedError(request, answer.status_code, _message(answer))
