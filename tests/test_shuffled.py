"""Shuffled reports: the central bound is above every attack, and agrees with what others have published."""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Charge, Shuffled, shuffled
from ldpsql.bulk import charging
from ldpsql.errors import InvalidParameter, NotPrivate, SourceRefused
from ldpsql.functions import registry
from ldpsql.ledger import Ledger, Policy, Release
from ldpsql.mechanisms import TOTAL
from ldpsql.privacy.shuffling import Kinds, central, divergence


def mechanism(spec: str) -> ldpsql.Mechanism:
    return registry().mechanism(spec)


def krr(epsilon: float, size: int) -> ldpsql.Mechanism:
    return registry().mechanism({"mechanism": "krr", "epsilon": str(epsilon), "domain": [f"v{i}" for i in range(size)]})


def test_the_bound_agrees_with_published_figures() -> None:
    """The code of Wang et al. (amplificationUB, 25 halvings) and of Feldman et al. (numericalanalysis, steps of 100 and 1)."""
    figures = central(ldpsql.certify(krr(4, 1000)).channel, 10**6, 1e-8)
    assert figures.epsilon == pytest.approx(0.009665608, rel=0.01)
    assert figures.at_least > 0.99 * figures.epsilon  # the bound of k-ary randomised response can hardly be improved
    for epsilon, reports, delta, stronger, low, high in (
        (4.0, 10**6, 1e-8, 0.045294523, 0.064106620, 0.065096794),
        (1.0, 10**4, 1e-6, 0.043206483, 0.053005194, 0.055561594),
    ):
        p = exp(epsilon)
        of_any = Kinds((p / (p + 1), 1 / (p + 1)), (1 / (p + 1), p / (p + 1)), (1 / (p + 1), 1 / (p + 1)))
        bounds = [divergence(of_any, at, reports, up=True) for at in (0.99 * stronger, 1.005 * stronger)]
        assert bounds[1] <= delta < bounds[0]
        clones = of_any._replace(rest=(1 / p / 2, 1 / p / 2))
        assert divergence(clones, high, reports, up=True) <= delta < divergence(clones, low, reports, up=False)


@pytest.mark.parametrize("size", [2, 10])
def test_more_reports_never_reveal_more(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldpsql.privacy.shuffling._MOST_COINS", 300)  # from there on the law of fewer is taken
    bounds = [shuffled(krr(2, size), reports=reports, delta=1e-9).epsilon for reports in (10, 100, 300, 1000, 10**4)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] <= 2
    assert bounds[-1] < (0.12 if size == 10 else 0.16)


@pytest.mark.parametrize("spec", ["krr(1, ['no', 'yes'])", "krr(4, ['no', 'yes'])", "stochastic_rounding(0.3, 0, 1, 16)"])
def test_of_two_reports_the_bound_is_almost_what_an_attacker_reaches_who_knows_all_others(spec: str) -> None:
    few, many = (shuffled(mechanism(spec), reports=reports, delta=1e-6) for reports in (1000, 10**6))
    assert few.epsilon_at_least <= few.epsilon < 1.006 * few.epsilon_at_least
    assert many.epsilon_at_least <= many.epsilon < 1.015 * many.epsilon_at_least


def test_every_mechanism_has_a_bound_of_at_most_its_local_epsilon(con: DuckDBPyConnection) -> None:
    for spec in ("pckv_grr(1, ['a', 'b'])", "pem(2, 4)", "rappor(1, ['a', 'b'])", "planar_geometric(1, 4, 4)"):
        bound = shuffled(mechanism(spec), reports=10_000, delta=1e-8)
        assert 0 < bound.epsilon < bound.local_epsilon
        assert bound.epsilon_at_least <= bound.epsilon
    (row,) = con.execute("SELECT ldp.shuffled(ldp.krr(1, ['a', 'b']), reports := 1000, delta := 1e-6)").fetchone() or ({},)
    assert row["epsilon"] == shuffled(krr(1, 2), reports=1000, delta=1e-6).epsilon
    assert row["local_epsilon"] == pytest.approx(1)


def test_numbers_that_mean_nothing_are_refused() -> None:
    for reports in (0, 1, 10**11):
        with pytest.raises(InvalidParameter, match="reports"):
            shuffled(krr(1, 2), reports=reports, delta=1e-6)
    for delta in (0.0, 1.0, 1e-15, float("nan"), "1e-6"):
        with pytest.raises(InvalidParameter, match="delta"):
            shuffled(krr(1, 2), reports=100, delta=delta)  # type: ignore[arg-type]


def test_a_report_that_rules_a_value_out_has_no_bound() -> None:
    half = TOTAL // 2
    with pytest.raises(NotPrivate, match="rules a value out"):
        central(ldpsql.DenseChannel(np.array([[half, half, 0], [half, 0, half]], np.uint64)), 100, 1e-6)


def test_the_ledger_notes_the_central_epsilon_of_a_shuffled_run_and_charges_the_local_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charging, "central_of", lambda one, reports, delta: Shuffled(one.name, reports, delta, 0.25, 0.2, 1.0))
    ledger, con = Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=8)), duckdb.connect()
    con.execute("CREATE TABLE people AS SELECT i % 2 AS x, i AS id FROM range(200) t(i)")
    krr, charge = "krr(epsilon=1, domain=[0, 1], outside='as:0')", Charge(ledger, "people", shuffled_delta=1e-6)
    ldpsql.perturb_copy(con, "people", tmp_path / "a.parquet", {"x": krr}, charge=charge)
    ldpsql.perturb_table(con, "people", "plain", {"x": krr}, charge=Charge(ledger, "people"))
    first, second = ledger.history()
    assert first["shuffled"] == "(0.25, 1e-06) of 200 reports"
    assert (second["shuffled"], first["claim"], first["epsilon"]) == ("", second["claim"], "1")
    ledger.check()
    one = "in random order have a central epsilon"
    with pytest.raises(InvalidParameter, match=one):
        ldpsql.perturb_copy(con, "people", tmp_path / "b.parquet", {"x": krr}, charge=charge, order="keep")
    with pytest.raises(InvalidParameter, match=one):
        ldpsql.perturb_copy(con, "people", tmp_path / "b.parquet", {"x": krr}, charge=charge, keep=["id"])
    with pytest.raises(InvalidParameter, match="perturb_copy and perturb_table"):
        ldpsql.perturb([0, 1], krr, charge=charge)
    by_user = Ledger.open(tmp_path / "users", Policy(epsilon_budget=8, privacy_unit="x"))
    with pytest.raises(InvalidParameter, match="more than one report"):
        ldpsql.perturb_table(con, "people", "b", {"id": krr}, charge=Charge(by_user, "people", user="x", shuffled_delta=1e-6))
    assert len(ledger.history()) == 2
    assert by_user.history() == []


def test_rows_that_leave_after_the_charge_are_no_shuffled_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, con = Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=8)), duckdb.connect()
    con.execute("CREATE TABLE people AS SELECT i % 2 AS x FROM range(2000) t(i)")
    charge_first = Ledger.charge

    def then_delete(*arguments: Any, **options: Any) -> Release:
        release = charge_first(*arguments, **options)
        con.execute("DELETE FROM people WHERE rowid > 5")
        return release

    monkeypatch.setattr(Ledger, "charge", then_delete)
    charge = Charge(ledger, "people", shuffled_delta=1e-6)
    with pytest.raises(SourceRefused, match="changed while it was read"):
        ldpsql.perturb_table(con, "people", "reports", {"x": "krr(epsilon=1, domain=[0, 1])"}, charge=charge)
    assert ledger.history()[-1]["state"] == "returned"
