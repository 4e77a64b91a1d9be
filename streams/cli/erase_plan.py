"""What lies where → the plan of an erasure: what is replaced, kept, expires, and is not ours."""

import shlex
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from streams import topics
from streams.cli.document import instant_text
from streams.cli.erase_read import Found

_MS_US: Final = 1_000


class Line(NamedTuple):
    """One kind of thing in one store."""

    store: str
    what: str
    rows: int | None
    """None: nobody counts them by tenant."""
    bytes: int | None
    becomes: str
    """replaced, kept, expires, or not ours."""
    why: str
    gone_by_us: int | None = None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        fields = self._asdict()
        gone_by_us = fields.pop("gone_by_us")
        return {**fields, "gone_by": instant_text(gone_by_us)}


class Blocker(NamedTuple):
    """Something that has to be settled first."""

    what: str
    number: int
    next: str


def plan_of(found: Found) -> list[Line]:
    """Every store, in the order of the journey."""
    return [*_source(found), *_topics(found), *_ledger(found), *_outside(found)]


def _source(found: Found) -> Iterator[Line]:
    store, source = f"database of {found.source_name}", found.source
    yield Line(
        store, "outbox: attributes, trace ids, words of corrections", int(source["outbox_rows"]),
        int(source["outbox_bytes"]), "replaced", "bytes are those of the whole rows",
    )  # fmt: skip
    yield Line(
        store, "corrections: reason, who stands for it",
        int(source["correction_rows"]) + int(source["conflict_rows"]), None, "replaced",
        "each then says when it was erased, and under which receipt",
    )  # fmt: skip
    why = (
        "without key and content the same usage could be billed twice, and no audit could prove it"
    )
    if source["addresses"]:
        why += f"; {source['addresses']} keys have an @: are they addresses of persons?"
    yield Line(store, "registry: key, content, amount, times", int(source["recorded"]), None,
               "kept", why)  # fmt: skip


_IN_TOPIC: Final = {
    topics.EVENTS: "whole records, as they were recorded",
    topics.ACCEPTED: "whole records, with their window",
    topics.REVIEW: "whole records that a person decides on",
    topics.DEAD_LETTER: "records that could not be used, and requests given up",
    topics.ADMIT_LOG: "ids, levels, and what the ledger had yet to be told",
}


def _topics(found: Found) -> Iterator[Line]:
    for name, what in _IN_TOPIC.items():
        if name not in found.lifetimes:
            yield Line(name, what, None, None, "kept", "the broker has no topic of this name")
            continue
        lives_ms = found.lifetimes[name]
        if lives_ms is None:
            why = "its settings keep records for ever: `tailrace topics check`"
            yield Line(name, what, None, None, "kept", why)
        else:
            why = "by its settings; no record of a topic can be changed"
            gone_by_us = found.now_us + lives_ms * _MS_US
            yield Line(name, what, None, None, "expires", why, gone_by_us)
    yield Line(
        "workers' disks", "ids and digests, levels with the tenant's name", None, None, "kept",
        f"ids are forgotten after {found.horizon_h} h and more, those of late usage never; words "
        "are there only until the ledger has them",
    )  # fmt: skip


def _ledger(found: Found) -> Iterator[Line]:
    held = found.ledger
    yield Line(
        "ledger", "review items and dead letters: the record", int(held["records"]),
        int(held["record_bytes"]), "replaced", "what names and counts it is left",
    )  # fmt: skip
    yield Line(
        "ledger", "corrections by the service: reason, who stands for it", int(held["entries"]),
        None, "replaced", "amount, key and target stay",
    )  # fmt: skip
    yield Line(
        "ledger", "levels", int(held["levels"]), None, "kept", "sums: no event stands in them"
    )
    yield Line(
        "ledger", "entries, with their requests and answers", int(held["amounts"]), None, "kept",
        "what was billed; identities are hashes",
    )  # fmt: skip
    yield Line(
        "ledger", "decisions, corrections by people, the log of what was done",
        int(held["decisions"]), None, "kept",
        "in your own people's words, who answer for them: `tailrace ledger log`",
    )  # fmt: skip
    if held["named"]:
        yield Line(
            "ledger", "unreadable dead letters with the tenant's name in them", int(held["named"]),
            None, "kept", "nobody says whose they are: `tailrace dead list`, `held name`",
        )  # fmt: skip


def _outside(found: Found) -> Iterator[Line]:
    yield Line(
        "archive", "files of all tenants", int(found.archive["days"]), int(found.archive["bytes"]),
        "kept", "keys, hashes, amounts and times, no attributes: no file changes, and `archive "
        "check` says so",
    )  # fmt: skip
    yield Line(
        "exports", "accepted events with their attributes", None, None, "not ours",
        "wherever `tailrace export --out` wrote them: export the days again, which leaves out what "
        "is erased, and delete files that it keeps",
    )  # fmt: skip
    yield Line(
        "backups", "of both databases, their WAL, replicas, brokers' disks", None, None, "not ours",
        "what was replaced is in them until they are rotated; in a restored one, erase again",
    )  # fmt: skip
    named = ", ".join(found.customers)
    yield Line(
        "Stripe", f"customer {named}" if named else "no customer is mapped", len(found.customers),
        None, "not ours", "sums, dates, and what you told it of the customer: delete it there "
        "(`DELETE /v1/customers/ID`) once the last invoice is paid; that ends its subscriptions",
    )  # fmt: skip


def blockers_of(found: Found) -> list[Blocker]:
    """What has to be settled first, each with what to type."""
    tenant = shlex.quote(found.tenant)
    steps = {
        "unproven_identities": "`tailrace audit` seals their minutes once these are over",
        "parked_items": f"decide on them: `tailrace review list --tenant {tenant}`, `tailrace dead "
        f"list --tenant {tenant}`",
        "open_windows": f"they close by themselves: `tailrace windows list --tenant {tenant}`; one "
        "that is held needs `tailrace findings list`",
        "unsent_entries": "workers send them; without a customer `tailrace customers map "
        f"{tenant} cus_…`, too late for their invoice `tailrace carry list`",
        "unsettled_requests": "workers settle them, and `tailrace reconcile` those in doubt",
        "open_proposals": f"decide on them: `tailrace correct list --tenant {tenant}`",
    }
    return [Blocker(what, number, steps[what]) for what, number in found.blockers]
