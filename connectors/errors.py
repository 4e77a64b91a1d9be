"""Everything capture may raise, in one tree.

    CaptureError
    ├── SettingsRefusedError         settings of a source break rules; every problem is listed
    ├── ConfigRefusedError           the linter or Connect's own validation refuses a config
    ├── CaptureUnsafeError           the slot guard refuses to let rows flow
    ├── SourceUnavailableError       the database of the source does not answer
    ├── SourceUnknownError           the source has never been registered
    ├── SourceChangedError           the name belongs to another cluster or timeline
    ├── RepairRefusedError           the repair run cannot start or cannot go on
    │   └── NothingToRepairError     the guard refuses nothing
    └── ConnectError
        ├── ConnectUnavailableError  no usable answer after every retry
        ├── ConnectRejectedError     Connect answered, and the answer is no
        ├── ConnectorUnknownError    Connect knows no connector of that name
        └── StateNotReachedError     a state asked for did not come in time

The text of each error names what was seen and what to do: an operator reads it as it stands,
without a traceback.
"""

from collections.abc import Iterable


class CaptureError(Exception):
    """Capture cannot go on; the text says why and what to do."""


class SettingsRefusedError(CaptureError):
    """Settings of a source break rules; `problems` holds one line for each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(_listed("source settings refused:", self.problems))


class ConfigRefusedError(CaptureError):
    """A connector config is unsafe or invalid and was not sent; each problem is one line."""

    def __init__(self, name: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        head = f"connector {name}: config refused, nothing was changed:"
        super().__init__(_listed(head, self.problems))


class CaptureUnsafeError(CaptureError):
    """The slot guard refuses to let rows flow; the connector is left stopped."""

    def __init__(self, name: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        head = f"connector {name}: stopped, rows could be lost:"
        super().__init__(_listed(head, self.problems))


class SourceUnavailableError(CaptureError):
    """The database of a source does not answer; nothing was changed."""


class SourceUnknownError(CaptureError):
    """The source has never been registered."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"source {name}: not registered; register it once from its own database, "
            "before its connector starts for the first time"
        )


class SourceChangedError(CaptureError):
    """The name is registered for another cluster or timeline; the text names the way out."""


class RepairRefusedError(CaptureError):
    """The repair run cannot start or go on; the connector stays stopped, repeat the run."""


class NothingToRepairError(RepairRefusedError):
    """The guard refuses nothing; nothing was touched."""


class ConnectError(CaptureError):
    """Kafka Connect did not do what was asked."""


class ConnectUnavailableError(ConnectError):
    """No usable answer after every retry: see whether a Connect worker runs, then repeat."""


class ConnectRejectedError(ConnectError):
    """Connect answered and the answer is no; the same request would get the same answer."""

    def __init__(self, request: str, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(f"Connect refused {request} with HTTP {status}: {message}")


class ConnectorUnknownError(ConnectError):
    """Connect knows no connector of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"connector {name}: unknown to Connect; apply its config first")


class StateNotReachedError(ConnectError):
    """A connector did not reach the state asked for in time; the text holds the last state seen."""


def _listed(head: str, problems: Iterable[str]) -> str:
    return "\n".join((head, *(f"  {problem}" for problem in problems)))
