"""Workers, as they tell of themselves: addresses → what each counted since its start."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from streams.cli.stack import listed_workers

_TIMEOUT_S: Final = 1.0
_AT_ONCE: Final = 32
_DUPLICATE: Final = "duplicate"


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """One worker; `silent` says why nothing was read of it."""

    address: str
    silent: str = ""
    verdicts: Mapping[str, int] = field(default_factory=dict)

    @property
    def duplicates(self) -> int:
        """Records that were known already, since this worker started."""
        return self.verdicts.get(_DUPLICATE, 0)


def addresses_of(facts: Mapping[str, Any], given: Iterable[str]) -> list[str]:
    """Where workers serve their figures: those given, else those that a sandbox lists."""
    listed = [str(worker.get("metrics_url")) for worker in listed_workers(facts)]
    known = dict.fromkeys(each.rstrip("/") for each in (*given, *listed))
    return [each for each in known if each.startswith(("http://", "https://"))]


def read_workers(addresses: Iterable[str]) -> list[WorkerFigures]:
    """Asks all at the same time; blocks for a second or two, however many are silent."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(_read, addresses))


def _read(address: str) -> WorkerFigures:
    try:
        with urlopen(f"{address}/metrics", timeout=_TIMEOUT_S) as page:  # noqa: S310 - http only
            text = page.read().decode()
        return WorkerFigures(address, verdicts=dict(_verdicts(text)))
    except (OSError, HTTPException, ValueError) as error:
        return WorkerFigures(address, silent=f"{type(error).__name__}: {error}")


def _verdicts(text: str) -> Iterator[tuple[str, int]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "usage_verdicts_total":
                yield sample.labels["verdict"], int(sample.value)
