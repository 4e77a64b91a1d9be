"""Bugs in the rules of meters: which line judges, what counts, and when a window is closed."""

from dataclasses import dataclass
from typing import Any, Final, cast

from msgspec.structs import replace as changed

from streams.agents.memory import PartitionMemory
from streams.app import FOR_EVER_US
from streams.core import admission, verdict
from streams.core.catalogue import UNKNOWN, Catalogue, MeterVersion, TooFresh, Unknown
from streams.core.event import UsageEvent
from streams.core.fact import Series
from tests.simulation.mutants import Mutant, Patch

_judge = verdict.judge
_judge_by = verdict._judge_by
_at = Catalogue.at
_drop_closed = PartitionMemory.drop_closed


@dataclass(frozen=True, slots=True)
class _AsItCame:
    """A catalogue that is asked for an instant and answers for another."""

    catalogue: Catalogue
    received_us: int

    def at(self, metric: str, _occurred_us: int) -> MeterVersion | Unknown | TooFresh:
        return _at(self.catalogue, metric, self.received_us)


def _judges_by_arrival(patch: Patch) -> None:
    def judge(event: UsageEvent, catalogue: Catalogue, *given: Any, **named: Any) -> Any:
        as_it_came = cast("Any", _AsItCame(catalogue, event.received_at_us))
        return _judge(event, as_it_came, *given, **named)

    patch.setattr(admission, "judge", judge)


def _judges_by_an_old_book(patch: Patch) -> None:
    def at(self: Catalogue, metric: str, occurred_us: int) -> MeterVersion | Unknown:
        lines = self.by_metric.get(metric, ())
        return next((v for v in lines if v.effective_from_us <= occurred_us), UNKNOWN)

    patch.setattr(Catalogue, "at", at)


def _adds_up_counts(patch: Patch) -> None:
    def judge_by(event: UsageEvent, meter: MeterVersion, floor_us: int) -> Any:
        return _judge_by(event, meter._replace(aggregation="sum"), floor_us)

    patch.setattr(verdict, "_judge_by", judge_by)


def _closes_windows_at_their_end(patch: Patch) -> None:
    def drop_closed(self: PartitionMemory, _skew_max_us: Any) -> int:
        return _drop_closed(self, lambda _series: 0)

    patch.setattr(PartitionMemory, "drop_closed", drop_closed)


def _closes_windows_by_the_newest_line(patch: Patch) -> None:
    def drop_closed(self: PartitionMemory, skew_max_us: Any) -> int:
        def newest(series: Series) -> int:
            second = int(skew_max_us(changed(series, catalogue_version=2)))
            return int(skew_max_us(series)) if second == FOR_EVER_US else second

        return _drop_closed(self, newest)

    patch.setattr(PartitionMemory, "drop_closed", drop_closed)


MUTANTS: Final = (
    Mutant(
        "judged_by_arrival",
        "usage is judged by the rules of when it happened, not of when it came",
        _judges_by_arrival,
        ("phantom", "lost", "double"),
    ),
    Mutant(
        "judged_by_an_old_book",
        "who has not read the rules for an hour judges nothing that is newer than that",
        _judges_by_an_old_book,
        ("phantom", "lost", "double"),
        ("ledger_away_as_rules_change",),
    ),
    Mutant(
        "counts_added_up",
        "on a meter that counts, each use is one",
        _adds_up_counts,
        ("double", "phantom"),
    ),
    Mutant(
        "closed_at_its_end",
        "a window is closed a skew cutoff after its end: usage is taken until then",
        _closes_windows_at_their_end,
        ("lost", "unseen", "finding"),
        ("held_back",),
    ),
    Mutant(
        "closed_by_the_newest_line",
        "a window is closed by the skew cutoff of the line that it was judged by",
        _closes_windows_by_the_newest_line,
        ("lost", "unseen", "finding"),
        ("held_back",),
    ),
)
