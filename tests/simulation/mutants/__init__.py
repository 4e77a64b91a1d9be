"""Planted bugs: each switches one rule off, and the simulation has to notice.

A `Mutant` is a value. Write a function `plant(patch)` that changes the product (or the model of
what SQL guarantees) with `patch.setattr(owner, "name", replacement)`; pytest's monkeypatch, undone
after each seed. Patch where a name is looked up: `streams.agents.facts.collect`, not its origin.
Plant before the world is made, so both classes and instances of it follow. Then give:

- `name`: what the bug is, in a few words with underscores; it is what summaries show;
- `rule`: the rule that is switched off, in one line;
- `caught_by`: names of `oracle.Violation` that count as noticing. Other violations do not: a
  mutant that only breaks the run has not shown what its rule is for. The names: lost, double,
  phantom, misattributed (amounts at Stripe); identity_lost, identity_phantom, identity_differs
  (cells against the registry); silent, review_phantom (parked items); unseen (lost, and no reading
  is held for it), output_lost, ledger, settled, unattempted, stale_fence, stale_lease, overtaken (a
  negative amount before what stood in front of it), unnoticed (lent by a ledger that went back),
  false_alarm (halted for none), given_up (dead in an outage), unbilled (left for a closed invoice),
  carried (from an open one, twice, or without its trace), changed (an entry), homeless, audit,
  finding, replay, stuck, ended, four_eyes (let through by one person), unpaused (lent in a pause);
  harness is a crash;
- `faults`: names in `faults.FAULTS` or `faults.AIMED` that strike in each of its seeds, which tell
  the brief story and meet no other fault, so that few seeds suffice;
- `layers_off` and `layers`: other rules that would hide the bug, in words and as a function that
  switches them off (`layers.py`): the ledger's position hides facts that were marked too early.

Add it to the tuple `MUTANTS` of the module of its part (capturing, admission, judging, sharding,
rebuilding, telling, publishing, invoicing, deciding, ordering, growing).
`python -m tests.simulation --mutant NAME [--seeds N]` tries one and prints the first seed that
notices; `--mutants` tries all and writes the table into the summary. A survivor fails. So does one
whose seeds break anything without the bug. A seed that is noticed with only the layers off does not
count: it is not the rule that was shown. `--brief --forced FAULT,FAULT --seeds N` lives through
them without it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

Patch = pytest.MonkeyPatch


def _none(_patch: Patch) -> None:
    """No layer hides it."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug."""

    name: str
    rule: str
    plant: Callable[[Patch], None]
    caught_by: tuple[str, ...]
    faults: tuple[str, ...] = ()
    layers_off: tuple[str, ...] = ()
    layers: Callable[[Patch], None] = _none


def every() -> Iterator[Mutant]:
    """All mutants, by their parts."""
    # Here, because the parts need the class above.
    from tests.simulation.mutants import (  # noqa: PLC0415
        admission,
        capturing,
        deciding,
        growing,
        invoicing,
        judging,
        ordering,
        publishing,
        rebuilding,
        sharding,
        telling,
    )

    for part in (
        capturing, admission, judging, sharding, rebuilding, telling, publishing, invoicing,
        deciding, ordering, growing,
    ):  # fmt: skip
        yield from part.MUTANTS


SEEDS_MAX: Final = 500
"""A mutant that survives so many seeds fails the suite."""
