"""Figure 10: conditional means of key-value pairs."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
import polars as pl
from duckdb import DuckDBPyConnection
from reproduction import Finding, Reproduction, frame, lines

from ldpsql import flights_file
from mixture_reduction import pckv
from mixture_reduction.claims import bounded, ratio_of_means


def key_value(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 10: the mean delay of carriers with few or many flights, one pair for each person."""
    rows = frame(con, f"SELECT carrier, least(120, greatest(-60, arr_delay))::INTEGER AS delay FROM read_parquet('{flights_file()}') "
                      "WHERE arr_delay IS NOT NULL USING SAMPLE 43000")  # fmt: skip
    con.register("sampled", rows)
    true_rows = frame(
        con, "SELECT carrier, avg(delay) AS mean, count(*) / sum(count(*)) OVER () AS f FROM sampled GROUP BY carrier"
    )
    truth = {carrier: (average, share) for carrier, average, share in true_rows.iter_rows()}
    rows = pl.concat([pair_errors(con, truth, epsilon, KEY_VALUE, 20 if full else 3) for epsilon in EPSILONS])
    more = pl.concat(
        [
            pair_errors(con, truth, 1.2 * epsilon, INVERTED, 20 if full else 3).with_columns(epsilon=pl.lit(float(epsilon)))
            for epsilon in EPSILONS
        ]
    )
    for label, part in (("rare, f below .07", pl.col("f") < 0.07), ("frequent, f above .1", pl.col("f") > 0.1)):
        chosen = rows.filter(part)
        paper.picture(f"Figure 10: key-value, {label}", "Squared error of the conditional mean, in units of half the range.",
                      lines(chosen, "epsilon", "squared error", "method", log=True))  # fmt: skip
        by_key(paper, f"fig. 10, {label}", chosen, more.filter(part))
    text = ", ".join(
        "in {} bins the density spends {:.2f} and pckv_pm {:.2f}".format(bins, *pckv.spent(2, 2, bins)) for bins in (4, 16)
    )
    paper.findings.append(
        Finding("fig. 10, PCKV-PM in bins, padding 2, epsilon 2", "V-C adds up a density in bins", text, "beyond the paper",
                "a bin wider than the window is not full of it; pckv_pm raises the same window until all of epsilon is spent")
    )  # fmt: skip


def pair_errors(
    con: DuckDBPyConnection, truth: dict[str, tuple[float, float]], epsilon: float, called: dict[str, list[str]], runs: int
) -> pl.DataFrame:
    """Return the squared error of the mean of each key, in each run and by each method.

    PCKV-PM is drawn by the law of its reports: in SQL, the steps of EM and MR would be those of one run at a time.
    """
    errors = []
    for mechanism, estimators in called.items():
        spec = f"ldp.{mechanism}({epsilon:g}, {sorted(truth)}, low := {LOW}, high := {HIGH})"
        con.execute(f"CREATE OR REPLACE MACRO kv() AS {spec}")
        con.execute("CREATE OR REPLACE TABLE counted AS SELECT run, ldp.counts(report) AS counts FROM (SELECT run, "
                    "ldp.perturb([{'key': carrier, 'value': delay}], kv()) AS report "
                    f"FROM sampled, range({runs}) t(run)) GROUP BY run")  # fmt: skip
        for estimator in estimators:
            estimates = frame(
                con,
                f"SELECT run, unnest(ldp.key_value(counts, kv(), estimator := '{estimator}'), recursive := true) FROM counted",
            )
            for r in estimates.iter_rows(named=True):
                average, share = truth.get(r["key"], (0.0, 0.0))
                if share >= LEAST:
                    errors.append({"method": f"{mechanism}, {estimator}", "run": r["run"], "epsilon": float(epsilon), "f": share,
                                  "squared error": ((min(HIGH, max(LOW, r["mean"])) - average) / HALF) ** 2})  # fmt: skip
    for carrier, (_, share) in truth.items():
        if share >= LEAST:
            delays = frame(con, f"SELECT delay FROM sampled WHERE carrier = '{carrier}'")["delay"].to_numpy()
            fits = pckv.bin_errors((delays - LOW) / HALF - 1, round(len(delays) / share), epsilon, runs)
            errors += [
                {"method": f"pckv_pm_ue, {name}", "run": run, "epsilon": float(epsilon), "f": share, "squared error": error}
                for name, each in fits.items() for run, error in enumerate(each.tolist())
            ]  # fmt: skip
    return pl.DataFrame(errors)


def by_key(paper: Reproduction, figure: str, rows: pl.DataFrame, more: pl.DataFrame) -> None:
    """Compare MR with the better PCKV, with the maximum of the likelihood, and empirical Bayes with the inversion.

    ``more`` are the errors at 1.2 times each epsilon.
    """

    def runs(rows: pl.DataFrame, method: str, epsilon: float) -> np.ndarray:
        one = rows.filter((pl.col("method") == method) & (pl.col("epsilon") == epsilon))
        return one.group_by("run").agg(pl.col("squared error").mean()).sort("run")["squared error"].to_numpy()

    def ratio(
        rows: pl.DataFrame, method: str, others: Sequence[str], epsilons: Sequence[float]
    ) -> tuple[tuple[float, float], str]:
        parts = [
            ratio_of_means(runs(rows, method, e), min((runs(rows, other, e) for other in others), key=lambda one: one.mean()))
            for e in epsilons
        ]
        shown = ", ".join(f"epsilon {e:g}: {mean:.2f}" for e, (mean, _) in zip(epsilons, parts, strict=True))
        return (sum(mean for mean, _ in parts) / len(parts), sqrt(sum(error**2 for _, error in parts)) / len(parts)), shown

    def judged(
        rows: pl.DataFrame, mr: str, name: str, claim: str, others: Sequence[str], epsilons: Sequence[float], most: float
    ) -> Finding:
        of_all, shown = ratio(rows, mr, others, epsilons)
        return bounded(f"{figure}{name}", f"MR {claim}", of_all, most, OWN_KEY_VALUE, shown)

    for claim in CLAIMS:
        mutants = {mutant: judged(rows, mutant, *claim) for mutant in IN_PLACE} | {"epsilon x 1.2": judged(more, MR, *claim)}
        paper.findings.append(judged(rows, MR, *claim).against(mutants, EM))
    for method, text in BEYOND.items():
        _, shown = ratio(rows, method, PUBLISHED, EPSILONS)
        paper.findings.append(Finding(f"{figure}: {text} / better PCKV", "no such method", shown, "beyond the paper"))


EPSILONS = (0.25, 0.5, 1, 2)
LOW, HIGH = -60, 120  # minutes
HALF = (HIGH - LOW) / 2
LEAST = 0.02  # share of a key
OWN_KEY_VALUE = ("squared errors of means have heavy tails. Appendix D names two epsilons without saying how they share the budget, which is "
                 "derived here; the authors' script draws from another mechanism, tuned by hand for its data")  # fmt: skip
EM, MR = "pckv_pm_ue, EM", "pckv_pm_ue, MR"
IN_PLACE = (EM, "pckv_pm_ue, EM after 5 steps", "pckv_ue, ibu", "pckv_pm_ue, inversion")  # of MR
PUBLISHED = ("pckv_ue, inv", "pckv_grr, inv")
CLAIMS = (
    (", epsilon 0.25 and 0.5: MR / better PCKV", "about half the better published PCKV", PUBLISHED, (0.25, 0.5), 0.65),
    (", epsilon 1 and 2: MR / better PCKV", "below the better published PCKV", PUBLISHED, (1, 2), 1.0),
    (": MR / EM", "better than EM", (EM,), EPSILONS, 1.0),
)
INVERTED = {"pckv_ue": ["inv"], "pckv_grr": ["inv"]}
KEY_VALUE = {"pckv_ue": ["inv", "ibu"], "pckv_grr": ["inv"], "pckv_pm": ["ibu", "em_mr"]}
BEYOND = {"pckv_pm_ue, certified maximum": "PCKV-PM, certified maximum", "pckv_pm, ibu": "pckv_pm, certified maximum",
          "pckv_pm, em_mr": "pckv_pm, MR", "pckv_ue, ibu": "PCKV-UE, ibu"}  # fmt: skip
