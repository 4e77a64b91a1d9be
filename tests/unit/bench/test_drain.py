"""Goals of draining: by the median, in full, and beside those of the contenders."""

from dataclasses import replace

from tests.bench.drain import Drained, Spent, goals


def run(seconds: float, limit: int | None = None, *wrong: str) -> Drained:
    spent = Spent(seconds, publisher_s=2.0, stand_in_s=1.0, ledger_s=1.0)
    return Drained(5_000, spent, limit, wrong)


def test_the_median_of_the_runs_decides_and_counts_for_as_many_as_the_goal() -> None:
    reached = goals([run(3.0), run(4.9), run(8.0)])
    assert list(reached) == ["drain"]
    assert (reached["drain"].figure, reached["drain"].met) == ("6.00 s / 9.80 s / 16.00 s", True)
    assert not goals([run(3.0), run(5.0), run(8.0)])["drain"].met


def test_what_was_saved_up_does_not_count_to_the_rate() -> None:
    assert goals([run(10.0, 500)])["P5"].figure == "0.97 / 0.97 / 0.97, at most 0.00 % 429"
    assert goals([run(10.8, 500)])["P5"].met
    assert not goals([run(10.9, 500)])["P5"].met


def test_one_run_that_the_limiter_refused_too_often_fails_the_rate() -> None:
    runs = [replace(run(10.0, 500), limited=share) for share in (0.0, 0.0, 0.0009)]
    assert goals(runs)["P5"].met
    runs[0] = replace(runs[0], limited=0.001)
    assert goals(runs)["P5"].figure.endswith("at most 0.10 % 429")
    assert not goals(runs)["P5"].met


def test_one_run_that_was_not_exact_fails_its_goal_alone() -> None:
    reached = goals([run(1.0), run(1.0, None, "1 window is not settled"), run(10.0, 500)])
    assert not reached["drain"].met
    assert reached["P5"].met


def test_a_line_tells_whose_the_cpu_is() -> None:
    line = run(4.0).line()
    assert "1,250 /s" in line
    assert "publisher  400  ledger  200  stand-in  200 (25 % of all)  429 0.00 %  exact" in line
