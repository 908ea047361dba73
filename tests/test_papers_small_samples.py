"""Each verdict on the page of small samples follows from measurements: a changed one turns it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

PAPERS = Path(__file__).parents[1] / "examples" / "papers"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the script as ``python examples/papers`` does."""
    monkeypatch.syspath_prepend(str(PAPERS))
    return import_module("small_samples")


PARTS = {"EM": (0.004, 0.020), "Proposal": (0.009, 0.010), "ObfDat": (0.02, 0.0009), "Uniform": (0.03, 0.0)}


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "agrees"),
        ({"Proposal": (0.003, 0.010)}, "differs"),  # less bias
        ({"Proposal": (0.009, 0.021)}, "differs"),  # more variance
        ({"ObfDat": (0.02, 0.01)}, "differs"),
        ({"Uniform": (0.03, 0.001)}, "differs"),
    ],
)
def test_figures_13_to_15_want_bias_for_variance_at_every_setting(
    small: Any, changed: dict[str, tuple[float, float]], verdict: str
) -> None:
    settings = [(0.0, PARTS), (20.0, PARTS | changed)]
    rows = [{"N4": at, "method": name, "bias": b, "variance": v} for at, part in settings for name, (b, v) in part.items()]
    assert small.decomposed("fig. 13", "census", pl.DataFrame(rows), "N4").verdict == verdict


def test_bias_and_variance_part_the_mean_squared_error(small: Any) -> None:
    """Three runs of two values: with the noise of the mean put back, both add up to the mean squared error."""
    p, q = np.array([0.7, 0.3]), np.array([[0.5, 0.5], [0.9, 0.1], [0.6, 0.4]])
    with import_module("reproduction").connect() as con:
        con.register("drawn", pl.DataFrame({"run": range(3), "method": ["EM"] * 3, "q": q.tolist()}))
        con.execute("CREATE TABLE estimates AS SELECT * FROM drawn")
        con.execute("CREATE TABLE truth AS SELECT ?::DOUBLE[] AS p", [p.tolist()])
        ((_, bias, variance),) = small.bias_and_variance(con).rows()
    assert variance == pytest.approx(q.var(axis=0, ddof=1).sum())
    assert bias == pytest.approx(((q.mean(axis=0) - p) ** 2).sum() - variance / 3)


def test_a_claim_is_tried_with_other_methods_in_place_and_a_larger_epsilon(small: Any) -> None:
    """Raw reports worse than EM pass for the inversions if one is far worse than the other; five steps do not pass for EM."""
    error = {"EM": 1.0, "EM after 5 steps": 4.0, "Proposal": 0.5, "ObfDat": 3.0, "MatInv norm": 2.0, "MatInv proj": 5.0}

    def rows(factor: float) -> pl.DataFrame:
        runs = {name: factor * mean * np.array([1.01, 0.99, 1.0]) for name, mean in error.items()}
        each = [(run, name, e, e, 0.0) for name, own in runs.items() for run, e in enumerate(own.tolist())]
        return pl.DataFrame(each, schema=["run", "method", "squared_error", "js_divergence", "N4"], orient="row")

    findings = small.tested(
        lambda frame: small.compare("fig. 5", "census", frame, "N4"), (rows(1),), small.mutated((rows(1),), (rows(0.5),))
    )
    assert [(f.paper.split()[0], f.verdict) for f in findings] == 2 * [("Proposal", "agrees"), ("inversions", "agrees")]
    assert "it does not hold with EM in place of Proposal" in findings[0].why
    assert "it also holds with EM after 5 steps" in findings[0].why
    assert "raw reports" not in findings[0].why  # this claim has no inversions
    assert "it does not hold with EM after 5 steps, raw reports in place of the inversions" in findings[1].why


def test_bias_for_variance_does_not_hold_with_em_in_place_of_the_proposal(small: Any) -> None:
    """The variance of Proposal is the smaller one whatever stands for EM, and EM for Proposal is never so."""
    settings = pl.DataFrame([
        {"N4": 0.0, "method": name, "bias": bias, "variance": variance}
        for name, (bias, variance) in (PARTS | {"EM after 5 steps": (0.001, 0.03)}).items()
    ])  # fmt: skip
    (finding,) = small.tested(
        lambda parts: [small.decomposed("fig. 13", "census", parts, "N4")], (settings,), small.mutated((settings,), (settings,))
    )
    assert (finding.verdict, finding.why) == (
        "agrees", "bias squared and summed; it also holds with EM after 5 steps; it does not hold with EM in place of Proposal",
    )  # fmt: skip


def test_all_runs_together_give_the_estimates_of_sql(small: Any) -> None:
    """Two runs of twelve users at four levels, the last of which reports exactly.

    The proposal is left out: it simulates reports in the order of the pairs of level and report, which is not the same in both.
    """
    with import_module("reproduction").connect() as con:
        small.simulated(con, np.array([0.4, 0.3, 0.2, 0.1]), (3, 4, 3, 2), 1)
        places = ((run, n, level) for run in (0, 1) for n, level in enumerate([1, 2, 3, 4] * 3))
        values = [(run, level, f"v{(level * n + run * n // 2) % 4:04d}") for run, n, level in places]
        con.register("chosen", pl.DataFrame(values, schema=["run", "level", "report"], orient="row"))
        con.execute("CREATE OR REPLACE TABLE reports AS SELECT * FROM chosen")
        methods = small.METHODS | small.PRINTED
        small.errors(con, methods)
        together = dict(con.execute("SELECT method || run, q FROM estimates").fetchall())
        for method in methods.keys() - {"Proposal"}:
            name, _, options = methods[method].partition("(")
            options = f", {options.rstrip(')').replace('=', ' := ')}" if options else ""
            call = f"ldp.{name}({{level: level, report: report}}, getvariable('m'){options})"
            sql = f"SELECT run, list_transform({call}, lambda e: e.estimate) FROM reports GROUP BY run"
            for run, shares in con.execute(sql).fetchall():
                assert together[f"{method}{run}"] == pytest.approx(shares, abs=1e-6), method


def test_the_corrections_are_compared_with_em_in_the_same_runs(small: Any) -> None:
    """Four values, two epsilons and three runs; the text has the ratio of the mean errors."""
    p, users = np.array([0.4, 0.3, 0.2, 0.1]), {1.0: 30, 2.0: 10}
    squared = small.errors_of(p, users, 3)
    assert list(squared) == ["EM", "our default", "(24) as printed", "Proposal"]
    assert all(own.shape == (3,) and (own < 2).all() for own in squared.values())
    finding = small.corrected("K = 4", users, {"EM": np.array([0.1, 0.3]), "Proposal": np.array([0.05, 0.25])})
    assert finding.figure == "corrected EM, K = 4, 30 users at epsilon 1, 10 users at epsilon 2"
    assert "Proposal 0.750 (" in finding.ours


def regions(changed: dict[str, float]) -> pl.DataFrame:
    both = {"EM": {"variance": 2.0, "most": 0.3, "zero": 0.2}, "Proposal": {"variance": 1.0, "most": 0.2, "zero": 0.0}}
    rows = [{"i": i, "share": 0.1, "method": name, **values} for name, values in both.items() for i in range(15)]
    return pl.DataFrame([rows[0] | changed, *rows[1:]] if "variance" in changed else [row | changed for row in rows])


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [({}, "agrees"), ({"variance": 0.9}, "differs"), ({"most": 0.12}, "differs"), ({"zero": 0.0}, "differs")],
)
def test_figure_12_wants_less_variance_in_every_region(small: Any, changed: dict[str, float], verdict: str) -> None:
    assert small.in_regions("census", regions(changed)).verdict == verdict


CELLS = [(0, 30, "Uniform"), (1000, 0, "Uniform"), (1000, 30, "Proposal"), (1000, 60, "Proposal"), (1000, 500, "EM")]


@pytest.mark.parametrize(
    ("changed", "turned"),
    [
        ({}, set()),
        ({(1000, 60): {"p": 0.2}}, {"fig. 8, census"}),
        ({(1000, 30): {"Proposal": 1.2}}, {"fig. 8, census"}),
        ({at: {"r": 0.5} for at in ((1000, 0), (1000, 30), (1000, 60))}, {"fig. 9, census"}),
        ({(1000, 0): {"best": "EM"}}, {"fig. 10, census, N3 = 0"}),
        ({(1000, 60): {"best": "EM"}}, {"fig. 10, census, N3 = 30 and 60"}),
        ({(1000, 500): {"Proposal": 1.2}}, {"fig. 10, census, N3 = 500"}),
    ],
)
def test_figures_8_to_10_are_each_turned_by_their_own_measurement(
    small: Any, changed: dict[tuple[int, int], dict[str, object]], turned: set[str]
) -> None:
    rows = [
        {"N2": n2, "N3": n3, "best": best, "EM": 1.0, "Proposal": 0.8 if n3 < 500 else 1.0, "r": 0.98, "p": 1e-6}
        | changed.get((n2, n3), {})
        for n2, n3, best in CELLS
    ]
    verdicts = {finding.figure: finding.verdict for finding in small.over_em("census", pl.DataFrame(rows))}
    assert verdicts == {figure: "differs" if figure in turned else "agrees" for figure in verdicts}
    assert turned <= set(verdicts)


def test_proposition_1_holds_for_em_too_and_a_wrong_first_order_turns_it(small: Any) -> None:
    errors = {n: (*small.squared_errors(n), small.first_order(n)) for n in (20, 40, 80)}
    assert small.second_order(errors).verdict == "does not tell"
    first = {n: (b + b / n**0.5, proposal, b) for n, (_, proposal, b) in errors.items()}
    assert small.second_order(first).verdict == "agrees"
    wrong = {n: (em, proposal, 0.9 * b) for n, (em, proposal, b) in errors.items()}
    assert small.second_order(wrong).verdict == "differs"


def test_the_errors_of_proposition_1_are_near_the_first_order_and_not_at_it(small: Any) -> None:
    em, proposal = small.squared_errors(20)
    assert 0 < em - small.first_order(20) < 0.2 * em
    assert 0 < proposal - em < 0.3 * em


def test_every_figure_and_table_of_the_paper_is_listed(small: Any) -> None:
    assert set(small.CONTENTS) == {f"fig. {i}" for i in range(1, 16)} | {"table 1", "table 2"}
    assert all(small.CONTENTS[label] for label in ("fig. 11", "table 1", "table 2"))
