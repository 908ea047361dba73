"""The methods of the paper and later ones, as calls over counts, and their errors."""

from __future__ import annotations

from math import exp

import numpy as np
import polars as pl
from duckdb import DuckDBPyConnection
from reproduction import frame

from ldpsql import Likelihood, certify
from ldpsql.inference.counting import table_likelihood
from ldpsql.registry.registry import registry

FULL, QUICK = 1024, 128  # bins of numbers: the paper's, and those of a quick run
BASELINES = {"unbiased": "ldp.inv(counts, m())", "NormSub": "ldp.inv_p(counts, m())",
             "BaseCut": "ldp.base_cut(counts, m(), rule := 'total')",
             "IIW": "ldp.iiw(counts, m(), iterations := 100)"}  # fmt: skip
# EM and every fit of MR stop by one rule: when the log-likelihood moves by less than 0.001 e^epsilon.
STOPPED = {"EM": "ldp.ibu(counts, m(), stop := 'paper', tolerance := {tolerance})",
           "MR": "ldp.em_mr(counts, m(), tolerance := {tolerance})"}  # fmt: skip
MAXIMUM = {"certified maximum": "ldp.ibu(counts, m())"}  # where EM ends that runs until its error is level, as in figure 6
# In the authors' scripts only MR stops so early; EM for k-RR runs on to 0.000001 or 1,400 steps, for OLH to 0.0001 e^epsilon.
LATER = {"krr": "ldp.ibu(counts, m(), stop := 'paper', tolerance := 1e-6, max_iterations := 1400)",
         "olh": "ldp.ibu(counts, m(), stop := 'paper', tolerance := {tenth})"}  # fmt: skip
SMOOTHED = {"EMS": "ldp.ems(counts, m())"}
FIVE = {"EM after 5 steps": "ldp.ibu(counts, m(), stop := 5)"}
RAW = "raw reports"  # their shares, as if they were not perturbed
OBSERVED = {"krr": {RAW: "ldp.observed(counts, m())"}, "olh": {}}  # hashes are no values
RUNS = 100  # of a full run, as in the paper; its authors' scripts have 10
HOURS = 10  # that one call may take
BEYOND = {"held out": "ldp.ibu(counts, m(), stop := 'held_out')",
          "empirical Bayes": "ldp.empirical_bayes(counts, m())", "best": "ldp.best(counts, m())",
          "BaseCut, two deviations": "ldp.base_cut(counts, m())", "IIW, limit": "ldp.iiw(counts, m())"}  # fmt: skip


def stopped(calls: dict[str, str], epsilon: float) -> dict[str, str]:
    """Fill in the paper's tolerance for an epsilon."""
    tolerance = min(0.5, 1e-3 * exp(epsilon))
    return {name: call.format(tolerance=tolerance, tenth=tolerance / 10) for name, call in calls.items()}


def unhurried(call: str) -> str:
    """Return a call that may take hours; without a deadline, an estimate ends after a minute and a second for each run."""
    return f"{call.removesuffix(')')}, deadline := {HOURS * 3600})"


def estimated(con: DuckDBPyConnection, call: str) -> np.ndarray:
    """Return the estimates, one row for each run."""
    rows = frame(con, f"SELECT list_transform({unhurried(call)}, lambda e: e.estimate) AS q FROM counted ORDER BY run")
    return np.array(rows["q"].to_list())


def drawn(mechanism: str, values: np.ndarray, bins: int, runs: int) -> tuple[Likelihood, np.ndarray]:
    """Let everybody report their number in [-1, 1] in each of ``runs`` runs.

    Returns:
        the likelihood of the reports of every run, and the mean of their readings, shape (runs,), NaN if they have none.

    """
    numeric = registry().mechanism(f"{mechanism[:-1]}, low=-1, high=1, bins={bins})")
    channel, places = certify(numeric).channel, np.minimum((values + 1) / 2 * bins, bins - 1).astype(np.int32)
    counts = np.array([np.bincount(channel.draw(places), minlength=channel.outputs) for _ in range(runs)], dtype=np.float64)
    reports, readings = table_likelihood(numeric, counts), numeric.readings()
    return reports, np.full(runs, np.nan) if readings is None else reports.shares @ (2 * readings - 1)


def shares(values: np.ndarray, bins: int) -> np.ndarray:
    """Return the shares of the bins of [-1, 1]."""
    return np.histogram(values, bins, (-1, 1))[0] / len(values)


def fitted(reports: Likelihood, call: str) -> np.ndarray:
    """Return the estimates of a call of SQL, one row for each run."""
    text = unhurried(call).replace("counts, m(), ", "").replace(" := ", "=").removeprefix("ldp.")
    return registry().estimator(text).fit(reports).theta


def errors(con: DuckDBPyConnection, calls: dict[str, str], p: np.ndarray) -> pl.DataFrame:
    """Return method, run, mean absolute error of all shares and of the largest tenth, and the mean error of these."""
    top = np.argsort(-p)[: max(1, len(p) // 10)]
    rows = [
        {"method": name, "run": run, "mae": np.abs(q - p).mean(), "top": np.abs(q - p)[top].mean(),
         "bias of the top": (q - p)[top].mean()}
        for name, call in calls.items()
        for run, q in enumerate(estimated(con, call))
    ]  # fmt: skip
    return pl.DataFrame(rows)
