"""The invariants of the design, what looks for a breach of each, and the bugs that prove it looks.

`python -m tests.simulation.invariants` prints the table. A check is a name of `oracle.Violation`; a
planted bug is named where one of these checks notices it. What no seed can show is said under
`elsewhere`: the drills and tests that do.
"""

import sys
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Invariant:
    """One of them."""

    name: str
    rule: str
    checks: tuple[str, ...]
    mutants: tuple[str, ...]
    elsewhere: str = ""


INVARIANTS: Final = (
    Invariant(
        "I1",
        "every committed identity has exactly one verdict class, minute by minute",
        ("identity_lost", "identity_phantom", "identity_differs", "output_lost", "audit"),
        (
            "ids_not_written", "marked_before_outputs", "packed_record_after_the_batch",
            "packed_log_taken_as_whole", "source_taken_as_whole", "expiry_by_the_clock",
            "position_before_facts", "altered_records_counted", "audit_by_one_snapshot",
            "oldest_ids_lost", "grown_without_memory", "grown_from_too_early",
            "grown_without_waiting", "grown_with_half_a_memory", "canary_of_before_refused",
        ),
    ),
    Invariant(
        "I2",
        "nothing of a rolled-back transaction appears",
        ("phantom", "double", "identity_phantom"),
        ("rolled_back_sent",),
    ),
    Invariant(
        "I3",
        "Stripe has what is settled, the ledger what levels and decisions say, per cell",
        ("lost", "double", "phantom", "settled", "ledger"),
        (
            "any_duplicate_is_success", "level_without_count", "entry_without_identity",
            "identifier_per_try", "rejection_ignored", "merged_under_way",
            "acknowledged_beyond_what_was_told", "told_before_acknowledged", "counts_added_up",
            "level_without_shard", "one_level_for_all_shards", "cut_beside_another_shard",
        ),
    ),
    Invariant(
        "I4",
        "replay, another owner or an empty state changes no amount; anything else is refused",
        ("replay", "finding", "unseen", "review_phantom", "lost", "double"),
        (
            "offset_before_settling", "two_owners_without_guard", "level_without_birth",
            "rule_book_of_its_own", "judged_by_arrival", "judged_by_an_old_book",
            "closed_at_its_end", "closed_by_the_newest_line",
        ),
    ),
    Invariant(
        "I5",
        "an attempt is written before its first byte",
        ("unattempted",),
        ("attempt_written_afterwards",),
    ),
    Invariant(
        "I6",
        "nothing is sent past its fence or lease without proof",
        ("stale_fence", "stale_lease", "double"),
        (
            "no_fence", "lease_unchecked", "lease_checked_before_its_turn", "doubt_forgotten",
            "timeout_as_unsent", "proof_beside_the_sum",
        ),
    ),
    Invariant(
        "I7",
        "an applied offset means that every record up to it is settled",
        ("lost", "double", "identity_lost", "identity_phantom", "replay"),
        ("offset_before_settling", "offset_not_in_the_batch"),
    ),
    Invariant(
        "I8",
        "entries and meter events never change; supersession adds",
        ("changed",),
        ("entry_rewritten",),
    ),
    Invariant(
        "I9",
        "corrections net exactly, on invoices or as carry",
        ("lost", "double", "phantom", "overtaken", "carried"),
        (
            "corrected_twice", "negative_overtakes", "carried_without_trace",
            "carried_by_window_alone",
        ),
    ),
    Invariant(
        "I10",
        "one tenant's poison or throttling delays no other",
        (),
        (),
        "drills poison, record-skipped, killer-record and stripe-throttles: others are settled "
        "while one waits",
    ),
    Invariant(
        "I11",
        "beyond the cutoff nothing is published without an approval",
        ("silent", "phantom", "double"),
        ("late_counted",),
    ),
    Invariant(
        "I12",
        "a conflict is never silent",
        ("silent",),
        ("conflict_counted", "conflict_dropped"),
    ),
    Invariant(
        "I13",
        "what is decided or sent again counts once",
        ("double", "phantom"),
        ("approved_twice", "doubt_sent_again", "resent_beside_an_adoption"),
        "people of the simulation decide everything twice; the second must be refused",
    ),
    Invariant(
        "I14",
        "everything is drained after heal, and no worker ends without being told to",
        ("stuck", "ended", "given_up"),
        ("one_idempotency_key", "dead_in_an_outage"),
        "that held states are alerted before their deadline: drill month-end",
    ),
    Invariant(
        "I15",
        "usage is billed to the customer of its window",
        ("misattributed",),
        ("payer_of_the_moment",),
    ),
    Invariant(
        "I16",
        "usage is billed before its invoice closes, or carried by name",
        ("unbilled", "carried", "double", "phantom", "settled"),
        ("sent_past_its_deadline", "grace_forgotten", "doubt_carried"),
    ),
    Invariant(
        "I17",
        "every record is at home",
        ("homeless", "identity_phantom", "stuck"),
        ("another_partitioner", "keyed_to_another_shard", "growth_overlooked"),
        "of a topic that grew: drill partitions-grown",
    ),
    Invariant(
        "I18",
        "a ledger, log or source that goes back in time is noticed before anything is sent",
        ("unnoticed", "false_alarm", "lost", "identity_lost", "double"),
        (
            "went_back_unchecked", "confirmed_on_one_machine", "believed_without_memory",
            "positions_outside_the_ledger", "offsets_of_any_log", "adopted_without_doubt",
            "told_before_acknowledged", "slept_and_knows_all", "note_overwritten",
        ),
        "a source that went back: drills service-restored, slot-advanced, offsets-wiped",
    ),
    Invariant(
        "D10",
        "what people decide is an entry of its own, apart from readings of the log",
        ("lost", "finding"),
        ("decision_inside_the_level",),
    ),
    Invariant(
        "D10",
        "what is more than one person may decide alone, two logins have decided",
        ("four_eyes", "lost", "silent", "identity_phantom"),
        (
            "service_limit_ignored", "one_person_suffices", "small_ones_apart",
            "agreed_with_oneself", "one_login_twice",
        ),
    ),
    Invariant(
        "D8",
        "what is paused waits, and is lent again when it is resumed",
        ("unpaused", "stuck"),
        ("lent_in_a_pause", "pause_by_present_payer", "pause_by_present_name"),
    ),
)  # fmt: skip


def table() -> str:
    """For people, in Markdown."""
    rows = ["| | invariant | looked for as | planted bugs | elsewhere |", "|---|---|---|---|---|"]
    for one in INVARIANTS:
        checks, mutants = ", ".join(one.checks) or "-", ", ".join(one.mutants) or "-"
        rows.append(f"| {one.name} | {one.rule} | {checks} | {mutants} | {one.elsewhere} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
