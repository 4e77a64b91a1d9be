"""Bugs between a service's transaction and the log."""

from typing import Final

from streams.core import envelope
from streams.engine.partitioner import home_partition
from tests.simulation.connect import Connect
from tests.simulation.mutants import Mutant, Patch
from tests.simulation.mutants.layers import take_from_anywhere
from tests.simulation.service import Service, Transaction


def _takes_records_as_they_come(patch: Patch) -> None:
    for check in ("altered_usage", "altered_correction", "altered_timeless"):
        patch.setattr(envelope, check, lambda *_: None)


def _sends_what_is_rolled_back(patch: Patch) -> None:
    end = Service.end

    def ended(self: Service, transaction: Transaction, *, commit: bool) -> None:
        end(self, transaction, commit=commit)
        if not commit:
            self.outbox += transaction.rows
            self.written.ring()

    patch.setattr(Service, "end", ended)


def _partitions_otherwise_later(patch: Patch) -> None:
    start, lives = Connect.start, 0

    def started(self: Connect) -> None:
        nonlocal lives
        lives += 1
        start(self)

    patch.setattr(Connect, "start", started)

    def home(key: bytes, partitions: int) -> int:
        return (home_partition(key, partitions) + (lives > 1)) % partitions

    patch.setattr("tests.simulation.connect.home_partition", home)


MUTANTS: Final = (
    Mutant(
        "altered_records_counted",
        "a record whose fields are not those that were recorded counts nothing",
        _takes_records_as_they_come,
        ("double", "phantom", "identity_phantom"),
        ("records_altered",),
    ),
    Mutant(
        "rolled_back_sent",
        "what a service has rolled back is nowhere",
        _sends_what_is_rolled_back,
        ("phantom", "double", "identity_phantom"),
    ),
    Mutant(
        "another_partitioner",
        "a record is read only where the ids of its tenant are known",
        _partitions_otherwise_later,
        ("identity_phantom", "homeless"),
        ("connect_killed", "all_emitted_again"),
        ("a record that is not at home holds its partition",),
        take_from_anywhere,
    ),
)
