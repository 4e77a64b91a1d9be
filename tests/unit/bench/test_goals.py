"""Goals of the measures: what decides, and that an amount that is wrong misses them."""

from dataclasses import replace

import pytest

from tests.bench import facts, latency, recovery, replayed, scaling, state
from tests.bench.costs import COPY, LOOK_UP, SETTLE, Cost, Spent, cost
from tests.bench.latency import Load
from tests.bench.oracle import Tally
from tests.bench.recovery import MILLION, Recovered, Start
from tests.bench.replayed import Replay
from tests.bench.scaling import Run
from tests.bench.state import GOAL_IDS, Answers, Stored

NEAR, FAR = Cost(1.0, 2.0, 1.0, 1.0), Cost(1.5, 2.5, 1.2, 30.0)
STORED = Stored(
    ids=GOAL_IDS, levels=9, bytes_on_disk=31 * GOAL_IDS, near=NEAR, far=FAR, answers=Answers()
)


def test_state_counts_everything_on_disk_and_compares_both_ends() -> None:
    reached = state.goals(STORED)
    assert [goal.met for goal in reached.values()] == [True, True, True]
    assert [goal.why for goal in reached.values()] == [""] * 3
    assert not state.goals(replace(STORED, bytes_on_disk=33 * GOAL_IDS))["P3"].met
    dear = replace(STORED, far=replace(FAR, look_up_us=1.6))
    assert not state.goals(dear)["P3_cost"].met


def test_a_fresh_id_that_costs_too_much_says_which_part_of_it_grew() -> None:
    missed = state.goals(replace(STORED, far=replace(FAR, files_us=9.0)))["P3_cost"]
    assert "RocksDB's files 1.00" in missed.why
    assert "RocksDB's files 9.00" in missed.why


def test_the_files_of_an_id_are_paid_where_they_are_written_and_a_copy_is_no_fresh_id() -> None:
    filed = Spent({LOOK_UP: 0.0, SETTLE: 0.0, COPY: 0.0}, files_s=0.0, fresh=0, copies=0)
    began = Spent({LOOK_UP: 1.0, SETTLE: 1.0, COPY: 1.0}, files_s=0.0, fresh=1_000, copies=10)
    ended = Spent({LOOK_UP: 1.5, SETTLE: 2.0, COPY: 1.5}, files_s=4.0, fresh=2_000, copies=60)
    taken = cost(began, ended, filed)
    assert taken == Cost(500.0, 1_000.0, 2_000.0, 10_000.0)
    assert taken.total_us == 3_500.0


@pytest.mark.parametrize("answers", [Answers(1, 0), Answers(0, 1)])
def test_one_wrong_answer_of_a_table_voids_all_of_state(answers: Answers) -> None:
    reached = state.goals(replace(STORED, answers=Answers() + answers))
    assert [goal.met for goal in reached.values()] == [False, False, False]


def test_state_of_another_size_says_so() -> None:
    assert "3 M ids" in state.goals(replace(STORED, ids=3_000_000))["P3"].why


def starts(*seconds: float) -> tuple[Start, ...]:
    return tuple(Start(s, s, 100.0) for s in seconds)


def test_recovery_is_told_by_the_million_and_beyond_what_faust_takes() -> None:
    found = Recovered(2 * MILLION, (1.0, 1.0, 9.0), starts(1.9, 2.0, 9.0), starts(8.9, 9.0), 0, ())
    reached = recovery.goals(found)
    assert reached["P4"].figure.startswith("3.95 s / 3.98 s / 4.00 s")
    assert reached["P4_warm"].figure.startswith("0.90 s / 1.00 s / 8.00 s")
    assert all(goal.met for goal in reached.values())
    assert not any(g.met for g in recovery.goals(replace(found, wrong=("a total",))).values())
    assert not recovery.goals(replace(found, ids=MILLION))["P4"].met


def test_a_start_that_takes_too_long_says_which_threads_took_it() -> None:
    slow = Start(9.0, 9.0, 100.0, {"python": 3.0, "rocksdb:low": 1.0})
    found = Recovered(MILLION, (1.0,), starts(1.5), (slow,), 60 * MILLION, ())
    reached = recovery.goals(found)
    assert reached["P4"].why == "by thread: python 75%, rocksdb:low 25%"
    assert reached["P4_warm"].why == ""
    assert recovery.sizes(found) == {
        "admit_log_bytes_an_id": 60.0, "recovery_s_a_million": 8.0, "recovery_rss_mb": 100.0,
        "warm_restart_s": 1.5,
    }  # fmt: skip


def round_of(single_us: float, *wrong: str) -> facts.Round:
    return facts.Round(batched_us=10.0, single_us=single_us, plain_us=70.0, wrong=wrong)


def test_a_round_of_facts_that_is_not_exact_fails_the_goal() -> None:
    assert facts.goals([round_of(100), round_of(200), round_of(300)])["P6"].met
    assert not facts.goals([round_of(100), round_of(199), round_of(300)])["P6"].met
    missed = facts.goals([round_of(300), round_of(300, "2 tenants differ")])["P6"]
    assert (missed.met, missed.why) == (False, "2 tenants differ")


LOAD = Load((100.0,) * 980 + (999.0,) * 20, 200.0, 0.5, {"commit to log": 90.0}, ())


def test_latency_goals_are_percentiles_of_a_load_that_was_there() -> None:
    reached = latency.goals(LOAD, 200, [(1.0, 0.9)] * 100, [(0.5, 0.5)] * 100)
    assert [goal.met for goal in reached.values()] == [True, True]
    slow = replace(LOAD, latencies_ms=(100.0,) * 980 + (1_001.0,) * 20)
    for worse in (slow, replace(LOAD, written_per_s=180.0), replace(LOAD, wrong=("1 missing",))):
        assert not latency.goals(worse, 200, [(1.0, 0.9)] * 100, [(0.5, 0.5)] * 100)["P7"].met
    missed = latency.goals(LOAD, 200, [(1.5, 0.6)] * 100, [(0.5, 0.5)] * 100)["P7_record"]
    assert (missed.met, missed.why) == (
        False, "p95 of statement and commit: 1.50 and 0.60 against 0.50 and 0.50 ms",
    )  # fmt: skip


def test_an_amount_that_is_missing_doubled_or_anothers_is_named() -> None:
    sent = [{"customer": "cus_bench_0", "value": "1"}, {"customer": "cus_bench_1", "value": "2"}]
    expected = {1: 0, 2: 1}
    assert latency.differences(sent, expected, 2) == ()
    assert "1 missing" in latency.differences(sent[:1], expected, 2)[0]
    assert "doubled" in latency.differences([*sent, sent[0]], expected, 2)[0]
    assert len(latency.differences(sent, expected, 3)) == 0
    assert len(latency.differences([sent[0] | {"customer": "x"}, sent[1]], expected, 2)) == 2


def run(workers: int, *cpu_s: float, wrong: tuple[str, ...] = ()) -> Run:
    return Run(workers, 1_000, cpu_s, 1.0, wrong)


def test_scaling_compares_all_workers_of_a_run_with_the_one_of_its_round() -> None:
    runs = [run(1, 1.0), run(2, 0.5, 0.6), run(1, 2.0), run(2, 1.1, 1.1)]
    reached = scaling.goals(runs, {1: 1.0, 2: 1.25})
    assert reached["P8"].figure.startswith("2: 0.91 / 0.91 / 0.91")
    assert reached["P8"].met
    assert "0.80 beside 1" in reached["P8"].why
    assert not reached["P8_replay"].met
    assert not scaling.goals([run(1, 1.0), run(2, 0.6, 0.6)], {1: 1.0})["P8"].met
    assert not scaling.goals([run(1, 1.0), run(2, 0.5, 0.5, wrong=("x",))], {1: 1.0})["P8"].met


REPLAY = Replay(records=1_000, cpu_s=1.25, wall_s=1.0, calls=0, wrong=())


def test_a_replay_is_held_against_the_worker_of_its_round_and_counts_only_if_exact() -> None:
    alone = replace(run(1, 1.0), replay=REPLAY)
    reached = scaling.goals([alone], {1: 1.0})["P8_replay"]
    assert (reached.met, reached.figure) == (
        True, "0.80x / 0.80x / 0.80x in records per CPU-second, 0 calls",
    )  # fmt: skip
    slow = replace(alone, replay=replace(REPLAY, cpu_s=1.26))
    wrong = replace(alone, replay=replace(REPLAY, cpu_s=0.1, wrong=("differences: 1",)))
    for worse in (slow, wrong, replace(alone, wrong=("a total",))):
        assert not scaling.goals([worse], {1: 1.0})["P8_replay"].met
    assert scaling.goals([wrong], {1: 1.0})["P8_replay"].figure.startswith("DNF")


DOCUMENT = {
    "records": 10, "differing": 0, "partly": 0, "equal": 3, "untold": [],
    "figures": [
        {"metric": "m", "verdict": "accepted", "events": 5},
        {"metric": "n", "verdict": "accepted", "events": 2},
        {"metric": "m", "verdict": "review late", "events": 1},
        {"metric": "", "verdict": "dead malformed", "events": 1},
    ],
}  # fmt: skip
TALLY = Tally(records=10, accepted=7, duplicates=1, late=1, malformed=1)


def test_a_replay_is_exact_if_it_read_all_and_comes_to_what_the_oracle_says() -> None:
    assert replayed.differences(DOCUMENT, TALLY, 0) == ()
    assert replayed.differences(DOCUMENT, TALLY, 2) == ("Stripe calls: 2, must be 0",)
    for change in (
        {"records": 9}, {"differing": 1}, {"partly": 1}, {"equal": 0}, {"untold": [3]},
        {"figures": DOCUMENT["figures"][1:]},  # type: ignore[index]
    ):  # fmt: skip
        assert len(replayed.differences({**DOCUMENT, **change}, TALLY, 0)) == 1, change
