"""Plans for data like an example: `ldpsql.recommend(like=...)` and ``ldpsql plan --like``."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import ldpsql
from ldpsql.errors import InvalidParameter, WrongType
from ldpsql.estimates.recommending import example_of
from tests.commands import run

ON_A_LINE = ("mean", "distribution", "ranges", "quantiles")
COMPARED = ("hierarchy", "square_wave")


def triangle(steps: int) -> list[int]:
    """Whole numbers from 0, whose frequencies rise to the middle and fall: no two neighbours differ much."""
    return [x for x in range(steps) for _ in range(min(x, steps - 1 - x) + 1)]


SMOOTH = triangle(60)
SPIKED = SMOOTH + [23] * len(SMOOTH)  # half of all people have one value


def recommended(like: Any, question: str = "ranges", reports: int = 50_000, **options: Any) -> pl.DataFrame:
    return ldpsql.recommend(question, reports, like=like, epsilons=["1"], mechanisms=COMPARED, **options)


def test_a_smooth_example_and_one_with_a_spike_have_different_recommendations() -> None:
    """Smoothing a spike away costs several times the error of the hierarchy, and saves half of it where there is no spike."""
    assert recommended(SMOOTH)["mechanism"].to_list() == ["square_wave", "hierarchy"]
    assert recommended(SPIKED)["mechanism"].to_list() == ["hierarchy", "square_wave"]
    assert recommended(SMOOTH)["recommended"].to_list() == [True, False]


@pytest.mark.parametrize("question", ON_A_LINE)
def test_every_question_is_answered_for_an_example_and_again_the_same(question: str) -> None:
    rows = recommended(SPIKED, question)
    assert set(rows["mechanism"]) == set(COMPARED)
    assert rows["error"].is_between(0, 60, closed="none").all()
    assert rows.equals(recommended(SPIKED, question))


def test_a_mechanism_that_tells_only_the_mean_is_no_candidate_for_other_questions_of_an_even_example() -> None:
    for question in ON_A_LINE:
        rows = ldpsql.recommend(question, 40_000, like=list(range(100)), epsilons=["1"])
        assert ("stochastic_rounding" in set(rows["mechanism"])) == (question == "mean")


@pytest.mark.parametrize("question", ["distribution", "ranges", "quantiles"])
def test_an_estimate_that_learns_nothing_is_not_recommended_for_an_even_example(question: str) -> None:
    """At epsilon 0.5, that of `hybrid` is nearly that with which it begins: equal shares."""
    rows = ldpsql.recommend(question, 40_000, like=list(range(100)), epsilons=["0.5"])
    errors = dict(rows["mechanism", "error"].iter_rows())
    assert errors["hybrid"] > 1.5 * errors["square_wave"] == 1.5 * rows["error"][0]


def test_with_very_many_reports_only_the_error_of_smoothing_is_left() -> None:
    errors = dict(recommended(SPIKED, reports=10**12)["mechanism", "error"].iter_rows())
    assert errors["hierarchy"] < 1e-3 < errors["square_wave"]


def test_errors_are_in_the_unit_of_the_example_but_for_shares() -> None:
    """The same shares of as many steps, ten times as long; days of dates; minutes of timestamps as seconds."""
    longer = [10 * x for x in SPIKED]
    dates = [date(2024, 1, 1) + timedelta(days=x) for x in SPIKED]
    minutes = [datetime(2024, 1, 1) + timedelta(minutes=x) for x in SPIKED]  # a TIMESTAMP has no zone
    for question in ON_A_LINE:
        errors = recommended(SPIKED, question)["error"].to_numpy()
        factor = 1 if question == "ranges" else 10
        assert recommended(longer, question, values=60)["error"].to_numpy() == pytest.approx(factor * errors)
        assert recommended(dates, question)["error"].to_numpy() == pytest.approx(errors)
        factor = 1 if question == "ranges" else 60
        assert recommended(minutes, question, values=60)["error"].to_numpy() == pytest.approx(factor * errors)


def test_the_error_of_a_mean_is_that_of_the_law_of_reports_of_the_example() -> None:
    """Of k-RR over 0 and 1: the variance of the share of reports of 1, over the square of the slope."""
    like, n = [0] * 9 + [1], 1000
    (row,) = ldpsql.recommend("mean", n, like=like, epsilons=[1], mechanisms=["krr"]).to_dicts()
    keep = np.e / (np.e + 1)
    one = 0.1 * keep + 0.9 * (1 - keep)
    assert row["error"] == pytest.approx(np.sqrt(one * (1 - one) / n) / (2 * keep - 1), rel=1e-6)


@pytest.mark.parametrize(
    ("values", "steps", "length"),
    [
        ([17, 90, 20, None], 74, 1.0),
        ([Decimal("0.50"), Decimal("3.25")], 1024, 2.75 / 1023),
        ([1.0, 3.0], 3, 1.0),
        ([0, 10**6], 1024, 10**6 / 1023),
        ([date(2024, 2, 28), date(2024, 3, 1)], 3, 1.0),
        ([datetime(2024, 1, 1), datetime(2024, 1, 1, 1)], 1024, 3600 / 1023),
    ],
)
def test_an_example_has_a_step_for_each_whole_number_or_day_and_else_1024(
    values: list[object], steps: int, length: float
) -> None:
    example = example_of(pa.array(values))
    assert len(example.shares) == steps
    assert example.step == pytest.approx(length)
    assert example.shares.sum() == pytest.approx(1)
    assert example.shares[0] > 0 < example.shares[-1]


@pytest.mark.parametrize(
    ("like", "options", "message"),
    [
        (["a", "b"], {}, "not a column of numbers"),
        ([True, False], {}, "not a column of numbers"),
        ([3, 3, None], {}, "no two different finite values"),
        (pa.array([None], pa.int64()), {}, "no two different finite values"),
        (pa.array([], pa.float64()), {}, "no two different finite values"),
        (pa.array([1.0, float("nan")]), {}, "no two different finite values"),
        (pa.array([1.0, float("inf")]), {}, "no two different finite values"),
        (pa.array([-1e308, 1e308]), {}, "no two different finite values"),
        ([1, 2, 3], {"values": 1}, "2 to 1,024 steps"),
        ([1, 2, 3], {"values": 2000}, "2 to 1,024 steps"),
        ([1, 2, 3, 4], {"question": "rectangles", "width": 2}, "rectangles have two"),
    ],
)
def test_what_is_no_example_is_refused(like: object, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        recommended(like, **options)


def test_a_plan_in_python_needs_values_or_an_example_and_names_of_mechanisms() -> None:
    with pytest.raises(InvalidParameter, match="size of the domain"):
        ldpsql.recommend("mean", 100)
    with pytest.raises(InvalidParameter, match="by their names"):
        ldpsql.recommend("mean", 100, 10, mechanisms=["square_wave", "krr(1, [1, 2])"])
    with pytest.raises(WrongType):
        ldpsql.recommend("mean", 100, like=[1, "a"])


def test_the_command_line_reads_an_example_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "census.parquet"
    pl.DataFrame({"age": SPIKED}).write_parquet(file)
    call = ("plan", "-n", "50000", "-q", "mean", "--epsilon", "1", "-m", "hierarchy", "-m", "square_wave", "--format", "json")
    done = run(*call, "--like", str(file), "--column", "age")
    assert json.loads(done.stdout) == recommended(SPIKED, "mean").to_dicts()
    assert "in the unit of the values" in done.stderr
    for options, message in (
        (("--like", str(file)), "one column of a file"),
        (("--like", str(file), "-c", "age", "-c", "age"), "one column of a file"),
        (("--like", str(file), "-c", "agee"), "[LDP201]"),
        (("--like", str(tmp_path / "none.parquet"), "-c", "age"), "[LDP520]"),
        (("--like", str(file), "-c", "age", "--table", "age"), "a plan of several columns takes"),
    ):
        refused = run(*call, *options)
        assert refused.returncode
        assert message in refused.stderr
    refused = run("plan", "-n", "100", "-k", "5", "--like", str(file), "-c", "age")
    assert "only a plan by question takes an example" in refused.stderr
