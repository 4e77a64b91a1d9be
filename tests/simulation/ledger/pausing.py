"""What operators order: `00.01.00_14_pre_pauses.sql`. A pause keeps lanes from being lent."""

from tests.simulation.ledger.rows import Lane
from tests.simulation.ledger.work_list import WorkList


class Pausing(WorkList):
    """`ledger.pause_v1`, `resume_v1`, and what they concern."""

    def pause(self, scope: str, subject: str) -> bool:
        """Whether it changed anything."""
        changed = (scope, subject) not in self.tables.pauses
        self.tables.pauses[scope, subject] = None
        self.note("paused", scope, subject)
        return changed

    def resume(self, scope: str, subject: str) -> bool:
        """Whether there was anything to resume."""
        self.note("resumed", scope, subject)
        return self.tables.pauses.pop((scope, subject), self) is None

    def is_paused(self, lane: Lane) -> bool:
        """Whether a pause concerns a lane."""
        return any(self.concerns(scope, subject, lane) for scope, subject in self.tables.pauses)

    def concerns(self, scope: str, subject: str, lane: Lane) -> bool:
        """A tenant by the customers it was ever mapped to, a meter by the names it ever had."""
        if scope == "meter":
            names = {m.event_name for m in self.meters.values() if m.metric == subject}
            return lane.event_name in names
        mapped = self.tables.customers.get(subject, ())
        return scope == "all" or any(customer == lane.customer for _, customer in mapped)
