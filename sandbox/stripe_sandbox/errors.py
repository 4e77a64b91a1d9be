"""How Stripe says no: status, body and headers of each refusal, as clients see them."""

from dataclasses import dataclass, field

Body = dict[str, object]


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    body: Body
    headers: dict[str, str] = field(default_factory=dict)
    stored: bool = True
    """Whether the idempotency key keeps it; false for what is decided before execution."""


class RefusedError(Exception):
    """A request that is answered with an error; carries the answer.

    And its code for whoever does not answer as v1 does: v1 leaves some without any.
    """

    def __init__(self, reply: Reply, code: str = "") -> None:
        super().__init__(f"refused with status {reply.status}")
        self.reply = reply
        self.code = code

    @property
    def message(self) -> str:
        """What the answer says to people."""
        detail = self.reply.body["error"]
        return str(detail["message"]) if isinstance(detail, dict) else ""


def _error(kind: str, message: str, code: str | None = None, param: str | None = None) -> Body:
    detail: Body = {"type": kind, "message": message}
    if code is not None:
        detail["code"] = code
    if param is not None:
        detail["param"] = param
    return {"error": detail}


def invalid(
    message: str, *, param: str | None = None, code: str | None = None, stored: bool = False
) -> Reply:
    """400 for a parameter. Most are decided before execution and therefore not stored."""
    body = _error("invalid_request_error", message, code, param)
    return Reply(400, body, {"Stripe-Should-Retry": "false"}, stored)


def missing(param: str) -> Reply:
    """400: a required parameter is not there."""
    return invalid(f"Missing required param: {param}.", param=param, code="parameter_missing")


def unknown(param: str) -> Reply:
    """400: a parameter nobody knows."""
    return invalid(f"Received unknown parameter: {param}", param=param, code="parameter_unknown")


def duplicate(identifier: str) -> Reply:
    """400 without any code: the only sign that the identifier is already held."""
    return invalid(f"An event already exists with identifier {identifier}.", stored=True)


def no_meter(event_name: str) -> Reply:
    """400: nothing active listens to that name; found during execution, therefore stored."""
    return invalid(f"No active meter found for event name: {event_name}", stored=True)


def too_old(earliest_s: int) -> Reply:
    """400: more than 35 times 86,400 seconds back."""
    return invalid(
        "The event timestamp cannot be more than 35 days in past. "
        f"Expected a timestamp greater than or equal to {earliest_s}.",
        param="timestamp",
    )


def too_early(latest_s: int) -> Reply:
    """400: more than 5 minutes ahead."""
    return invalid(
        "The event timestamp cannot be more than 5 minutes in the future. "
        f"Expected a timestamp less than or equal to {latest_s}.",
        param="timestamp",
    )


def not_found(kind: str, identity: str) -> Reply:
    """404: no such object."""
    body = _error(
        "invalid_request_error", f"No such {kind}: '{identity}'", "resource_missing", "id"
    )
    return Reply(404, body, {}, stored=False)


def refused_v2(code: str, message: str, status: int = 400) -> Reply:
    """An error of the newer API, which always has a code."""
    kind = {401: "temporary_session_expired", 404: "not_found"}.get(status, code)
    return Reply(status, _error(kind, message, code), {}, stored=False)


def session_expired() -> Reply:
    """401 of the stream: the token is none, or its quarter of an hour is over."""
    message = "The billing meter event session has expired."
    return refused_v2("billing_meter_event_session_expired", message, 401)


def lane_busy() -> Reply:
    """409 of the newer API: another request for this customer and meter is in flight."""
    message = "Another meter event for this customer and meter is being processed."
    return refused_v2("too_many_concurrent_requests", message, 409)


def unknown_url(method: str, path: str) -> Reply:
    """404: no such endpoint."""
    message = f"Unrecognized request URL ({method}: {path})."
    return Reply(404, _error("invalid_request_error", message), {}, stored=False)


def unauthorized() -> Reply:
    """401: no key, or one that is none of ours."""
    body = _error("invalid_request_error", "Invalid API Key provided.")
    return Reply(401, body, {"WWW-Authenticate": 'Bearer realm="Stripe"'}, stored=False)


def rate_limited(reason: str | None, retry_after_s: int | None = None) -> Reply:
    """429 of the limiter, which stands before keys and execution; never stored."""
    headers = {} if reason is None else {"Stripe-Rate-Limited-Reason": reason}
    if retry_after_s is not None:
        headers["Retry-After"] = str(retry_after_s)
    message = "Request rate limit exceeded. Learn more about rate limits."
    return Reply(429, _error("invalid_request_error", message, "rate_limit"), headers, stored=False)


def lock_timeout() -> Reply:
    """429 from inside execution: the reason header is absent, and the key keeps the answer."""
    message = (
        "This object cannot be accessed right now because another API request is accessing it."
    )
    body = _error("invalid_request_error", message, "lock_timeout")
    return Reply(429, body, {"Stripe-Should-Retry": "true"})


def key_in_use() -> Reply:
    """409: the first request under this key has not ended yet."""
    message = "There is currently another in-progress request using this Idempotency Key."
    body = _error("invalid_request_error", message, "idempotency_key_in_use")
    return Reply(409, body, {"Stripe-Should-Retry": "true"}, stored=False)


def key_reused(key: str) -> Reply:
    """400: the key came back with other parameters."""
    message = (
        "Keys for idempotent requests can only be used with the same parameters they were first "
        f"used with. Try using a key other than '{key}' if you meant a different request."
    )
    return Reply(400, _error("idempotency_error", message), {}, stored=False)


def server_error(status: int, *, stored: bool) -> Reply:
    """5xx of Stripe's own, as JSON."""
    message = "An unknown error occurred."
    return Reply(status, _error("api_error", message), {"Stripe-Should-Retry": "false"}, stored)
