"""Collecting in two phases: who reports how, what is charged, and intervals that hold although the first reports chose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import ldpsql
from ldpsql.errors import BudgetExceeded, InvalidDomain, InvalidParameter, LdpError, MissingValue, OutsideDomain, UnknownName
from ldpsql.functions import registry
from tests import seeds

GENERAL = "piecewise(2, 0, 5, step=1)"
MARKS = [0] * 300 + [1] * 150 + [2] * 40 + [5] * 10


def phases(column: Any = MARKS, first: str = GENERAL, second: str = "optimal_mean", **options: Any) -> ldpsql.TwoPhases:
    return ldpsql.two_phases(column, first, second, **options)


def test_everybody_reports_once_and_a_random_part_of_the_people_reports_first() -> None:
    once = phases(share=0.3, estimator="ems")
    levels = once.reports.field("level").to_pylist()
    assert len(levels) == len(MARKS)
    assert levels.count("first") == 150
    assert levels != sorted(levels)
    assert [mechanism.name for mechanism in once.mechanisms.values()] == ["piecewise", "optimal_mean"]
    assert ldpsql.certify(once.mechanisms["second"]).epsilon <= 2


def test_the_prior_of_the_second_mechanism_is_the_estimate_from_the_first_reports() -> None:
    once = phases(share=0.3, estimator="ems")
    own = once.reports.field("report").filter(np.array(once.reports.field("level")) == "first")
    prior = np.array([float(share) for share in once.mechanisms["second"].prior])  # type: ignore[attr-defined]
    assert prior == pytest.approx(ldpsql.estimate(own, GENERAL, "ems").estimate)


@pytest.mark.slow
def test_intervals_of_means_hold_although_the_first_reports_chose_the_mechanism() -> None:
    """One in 10^6 such sets of runs has so few intervals that hold, or such errors on average."""
    runs, rng = 60, seeds.generator(__name__)
    shares = np.array([6, 3, 1, 0, 0, 1]) / 11
    truth, inside, errors = float(shares @ np.arange(6)), 0, []
    for _ in range(runs):
        mean = phases(rng.choice(6, 1000, p=shares), estimator="ems").mean()
        inside += mean.low <= truth <= mean.high
        errors.append((mean.estimate - truth) / mean.std_error)
    assert binom.cdf(inside, runs, 0.945) > 1e-6
    assert abs(np.mean(errors)) < 4.9 / np.sqrt(runs)
    assert 0.6 < np.std(errors) < 1.5


def test_shares_come_from_both_phases_also_under_the_mechanism_with_the_least_loss() -> None:
    cities = ["Lima"] * 4000 + ["Oslo"] * 3000 + ["Rome"] * 3000
    both = phases(cities, "krr(3, ['Lima', 'Oslo', 'Rome'])", "optimal", loss=[[0, 1, 2], [1, 0, 1], [2, 1, 0]])
    estimate = both.estimate()
    assert both.mechanisms["second"].name == "optimal"
    assert estimate.diagnosis.reports == len(cities)
    assert np.abs(estimate.estimate - [0.4, 0.3, 0.3]).max() < 4.9 * estimate.std_error.max()


def test_the_first_mechanism_draws_both_phases_if_the_estimate_leaves_nothing_to_report() -> None:
    both = phases(["a"] * 500, "krr(1, ['a', 'b'])", "optimal")
    assert both.mechanisms["second"] == both.mechanisms["first"]


def test_all_rows_pay_once_before_the_first_phase_and_no_other_release_of_them_is_a_second_budget(tmp_path: Path) -> None:
    ledger = ldpsql.Ledger.open(tmp_path / "people.ledger", ldpsql.Policy(epsilon_budget=2))
    charge = ldpsql.Charge(ledger, "marks")
    assert phases(charge=charge, estimator="ems").mechanisms["second"].name == "optimal_mean"
    assert [(entry["users"], entry["epsilon"], entry["state"]) for entry in ledger.history()] == [(500, "2", "published")]
    with pytest.raises(BudgetExceeded):
        ldpsql.perturb(MARKS, "krr(0.1, [0, 1, 2, 3, 4, 5])", charge=charge)


def test_a_budget_below_the_cost_of_a_report_ends_before_the_first_phase(tmp_path: Path) -> None:
    ledger = ldpsql.Ledger.open(tmp_path / "people.ledger", ldpsql.Policy(epsilon_budget=1.9))
    with pytest.raises(BudgetExceeded):
        phases(charge=ldpsql.Charge(ledger, "marks"), estimator="ems")
    assert ledger.history() == []


def test_the_first_mechanism_draws_both_phases_if_reports_of_the_second_would_cost_more() -> None:
    """The epsilon of `blahut_arimoto` depends on its prior: 1.46 for equal shares, and up to 2 for this estimate."""
    general, options = "truncated_geometric(1.6, 0, 5)", {"domain": list(range(6)), "beta": 1, "columns": 6}
    both = phases([0] * 300 + [1, 2, 3, 4] * 25 + [5] * 300, general, "blahut_arimoto", **options)
    own = both.reports.field("report").filter(np.array(both.reports.field("level")) == "first")
    prior = np.maximum(ldpsql.estimate(own, general).estimate, 0).tolist()
    made = ldpsql.certify(registry().mechanism({"mechanism": "blahut_arimoto", "prior": prior, **options}))
    assert made.epsilon > 1.6
    assert both.mechanisms["second"] == both.mechanisms["first"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"second": "krr"}, InvalidParameter),
        ({"second": "unheard"}, UnknownName),
        ({"second": "optimal"}, InvalidParameter),
        ({"first": "olh(1, ['a', 'b'])", "column": ["a", "b"] * 9, "second": "optimal"}, InvalidParameter),
        ({"second": "optimal", "domain": [0, 1]}, InvalidDomain),
        ({"share": 0}, InvalidParameter),
        ({"share": "most"}, InvalidParameter),
        ({"column": [1, 2, 3]}, InvalidParameter),
        ({"column": []}, InvalidParameter),
        ({"column": [*MARKS, None]}, MissingValue),
        ({"column": [*MARKS, 6]}, OutsideDomain),
        ({"speed": 3}, LdpError),
        ({"estimator": "unheard"}, UnknownName),
        ({"epsilon": 2.5}, InvalidParameter),
        ({"first": "krr(1, ['a', 'b'])", "column": ["a", "b"] * 9, "second": "optimal", "loss": [[1]]}, InvalidParameter),
    ],
)
def test_what_the_second_phase_could_not_draw_is_refused_before_anything_is_charged(
    arguments: dict[str, Any], error: type[LdpError], tmp_path: Path
) -> None:
    ledger = ldpsql.Ledger.open(tmp_path / "people.ledger", ldpsql.Policy(epsilon_budget=2))
    with pytest.raises(error):
        phases(**arguments, charge=ldpsql.Charge(ledger, "people"))
    assert ledger.history() == []
