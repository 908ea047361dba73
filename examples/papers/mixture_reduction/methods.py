"""The methods of the paper and later ones, as calls over counts, and their errors."""

from __future__ import annotations

from math import exp

import numpy as np
import polars as pl
from duckdb import DuckDBPyConnection
from reproduction import frame

FULL, QUICK = 256, 128  # bins of numbers; the paper's 1,024 take a minute for EM of ten sets of reports at one epsilon
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


def errors(con: DuckDBPyConnection, calls: dict[str, str], p: np.ndarray) -> pl.DataFrame:
    """Return method, run, mean absolute error of all shares and of the largest tenth, and the mean error of these and the rest."""
    top = np.argsort(-p)[: max(1, len(p) // 10)]
    rest = np.setdiff1d(np.arange(len(p)), top)
    rows = [
        {"method": name, "run": run, "mae": np.abs(q - p).mean(), "top": np.abs(q - p)[top].mean(),
         "bias of the top": (q - p)[top].mean(), "bias of the rest": (q - p)[rest].mean()}
        for name, call in calls.items()
        for run, q in enumerate(estimated(con, call))
    ]  # fmt: skip
    return pl.DataFrame(rows)
