"""Figures 1, 2 and 3: the mean of numbers."""

from __future__ import annotations

from math import sqrt

import numpy as np
import polars as pl
from duckdb import DuckDBPyConnection
from reproduction import Finding, Reproduction, bars, boxes, frame, perturbed

from mixture_reduction.claims import SURE, at_most
from mixture_reduction.data import numbers, numeric, s_mn
from mixture_reduction.methods import FULL, QUICK, STOPPED, estimated, stopped, unhurried


def mean_by(call: str) -> str:
    """Return the mean of an estimated distribution."""
    return f"list_sum(list_transform({unhurried(call)}, lambda e: e.value * e.estimate))"


SAMPLE_MEAN = "ldp.mean(counts, m(), estimator := 'inv').estimate"  # as in the paper: not the maximum likelihood
MEANS = {
    "SR": ("stochastic_rounding", SAMPLE_MEAN),
    "PM": ("piecewise", SAMPLE_MEAN),
    "PM-EM": ("piecewise", mean_by(STOPPED["EM"])),
    "PM-MR": ("piecewise", mean_by(STOPPED["MR"])),
    "SW-EMS": ("square_wave", mean_by("ldp.ems(counts, m())")),
    "PM, held out": ("piecewise", mean_by("ldp.ibu(counts, m(), stop := 'held_out')")),
    "PM, best": ("piecewise", mean_by("ldp.best(counts, m())")),
}
PUBLISHED_MEANS = ["SR", "PM", "PM-EM", "SW-EMS", "PM-MR"]
HEADLINE = 0.7
NOT_ALGORITHM_3 = ("the authors' script is not algorithm 3: it smooths after every step, merges only near the ends of the range, and "
                   "sets its thresholds by hand for each epsilon and number of people")  # fmt: skip


def mean(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figures 2 and 3: the mean of S-MN and of incomes."""
    runs = 100 if full else 30
    for source, values in numeric(con).items():
        numbers(con, values, bins := FULL if full else QUICK)
        tables = []
        for epsilon in (0.1, 0.5, 1, 1.5, 2, 3) if full else (0.5, 1.5):
            for mechanism in ("stochastic_rounding", "piecewise", "square_wave"):
                perturbed(con, f"ldp.{mechanism}({epsilon}, -1, 1, bins := {bins})", runs)
                for method, call in stopped(
                    {name: call for name, (drawn, call) in MEANS.items() if drawn == mechanism}, epsilon
                ).items():
                    part = f"WHERE run < {3 if full else 2}" if method == "PM, best" else ""
                    rows = frame(con, f"SELECT run, {call} - {values.mean()} AS error FROM counted {part}")
                    tables.append(rows.with_columns(method=pl.lit(method), epsilon=pl.lit(float(epsilon))))
        rows = pl.concat(tables)
        by_mean(paper, source, rows)
        paper.picture(
            f"Figure 3: errors of the mean, {source}", "Estimate minus truth.", boxes(rows, "epsilon", "error", "method")
        )


def below(rows: pl.DataFrame, method: str, other: str) -> float:
    """Return by how many standard errors the mean absolute error of ``other`` is below that of ``method``."""
    by_run = rows.with_columns(pl.col("error").abs()).pivot(on="method", index="run", values="error")
    difference = (by_run[method] - by_run[other]).drop_nulls().to_numpy()
    return float(difference.mean() / (difference.std(ddof=1) / sqrt(len(difference))))


def fall(rows: pl.DataFrame, method: str, other: str) -> tuple[float, float]:
    """Return by how much the mean absolute error of ``other`` is below that of ``method``, as a share, and its standard error."""
    absolute = [rows.filter(pl.col("method") == name)["error"].abs().to_numpy() for name in (method, other)]
    high, low = (errors.mean() for errors in absolute)
    relative = sum((errors.std(ddof=1) / errors.mean()) ** 2 / len(errors) for errors in absolute)
    return float(1 - low / high), float(low / high * sqrt(relative))


def by_mean(paper: Reproduction, source: str, rows: pl.DataFrame) -> None:
    """Check figure 2, the mean absolute error, and figure 3, bias and spread."""
    error = (
        rows.group_by("method", "epsilon").agg(pl.col("error").abs().mean()).pivot(on="method", values="error").sort("epsilon")
    )

    def text(names: list[str]) -> str:
        return "; ".join(
            f"epsilon {r['epsilon']:g}: " + ", ".join(f"{name} {r[name]:.4f}" for name in names)
            for r in error.iter_rows(named=True)
        )

    ahead = [below(part, name, "PM-MR") for _, part in rows.group_by("epsilon") for name in PUBLISHED_MEANS if name != "PM-MR"]
    paper.findings.append(
        Finding.checked(f"fig. 2, {source}: MAE of the mean", "PM-MR smallest everywhere", text(PUBLISHED_MEANS), min(ahead) > 2,
                        "smallest: by more than two standard errors of the difference of a run; " + NOT_ALGORITHM_3)
    )  # fmt: skip
    falls = [fall(part, "PM", "PM-MR") for _, part in rows.group_by("epsilon", maintain_order=True)]
    paper.findings.append(
        Finding.checked(f"fig. 2, {source}: MAE of the mean, PM-MR against PM", "70 % less with few people or epsilon below 2",
                        ", ".join(f"{100 * less:.0f} % less (standard error {100 * sure:.0f})" for less, sure in falls),
                        any(less >= HEADLINE - 2 * sure for less, sure in falls), NOT_ALGORITHM_3, "at one epsilon at least")
    )  # fmt: skip
    paper.findings.append(
        Finding(f"fig. 2, {source}: MAE of the mean", "no such method", text(["PM, held out", "PM, best"]), "beyond the paper")
    )
    moved = rows.filter(pl.col("epsilon") == 1.5)
    each = moved.group_by("method").agg(bias=pl.col("error").mean(), sd=pl.col("error").std(), n=pl.len())
    by = {r["method"]: r for r in each.iter_rows(named=True)}
    spreads = ", ".join(f"{name} {by[name]['bias']:+.4f} and {by[name]['sd']:.4f}" for name in PUBLISHED_MEANS)
    sure = {name: abs(r["bias"]) / (r["sd"] / sqrt(r["n"])) for name, r in by.items()}
    paper.findings.append(
        Finding.checked(f"fig. 3, {source}, epsilon 1.5", "SR and PM unbiased, PM-EM and SW-EMS biased", f"bias and spread: {spreads}",
                        max(sure["SR"], sure["PM"]) < 4 < min(sure["PM-EM"], sure["SW-EMS"]),
                        "biased: more than four standard errors from zero. Stopped by this rule, EM has come to keep the mean; smoothing has not")
    )  # fmt: skip
    paper.findings.append(
        Finding.checked(f"fig. 3, {source}, epsilon 1.5", "PM-MR less biased than PM-EM, less spread than PM", spreads,
                        clearly_less(moved, "PM-MR", "PM-EM") and by["PM-MR"]["sd"] < by["PM"]["sd"], NOT_ALGORITHM_3)
    )  # fmt: skip


def clearly_less(rows: pl.DataFrame, method: str, other: str) -> bool:
    """Return whether a method's bias is smaller than another's by more than two standard errors, run by run."""
    errors = rows.pivot(on="method", index="run", values="error")
    one, more = (errors[name].to_numpy() for name in (method, other))
    nearer = np.sign(more.mean()) * (more - one)
    return nearer.mean() > SURE * nearer.std(ddof=1) / sqrt(len(nearer)) and abs(one.mean()) < abs(more.mean())


def small_sample(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 1: 2,000 reports of the piecewise mechanism at epsilon .5, and what the fitted mixture expects of them."""
    values, runs = s_mn(2000), 100 if full else 20
    numbers(con, values, QUICK)
    perturbed(con, f"ldp.piecewise(0.5, -1, 1, bins := {QUICK})", runs)
    table = con.sql("SELECT list(probability ORDER BY report, value) FROM ldp.channel(m())").fetchall()[0][0]
    channel = np.array(table).reshape(-1, QUICK)
    p = np.array(frame(con, "SELECT p FROM truth")["p"][0])
    counts = np.array([[one.get(place, 0) for place in range(len(channel))] for (one,) in con.sql(
        "SELECT counts FROM counted ORDER BY run").fetchall()])  # fmt: skip
    theta = estimated(con, stopped(STOPPED, 0.5)["MR"])
    expected, observed, fitted = channel @ p, counts / counts.sum(axis=1, keepdims=True), theta @ channel.T
    by_mixture(paper, np.abs(observed - expected).sum(axis=1) / 2, np.abs(fitted - expected).sum(axis=1) / 2)
    panels = {"(a) values": p, "(b) reports": observed[0], "(c) expected reports": expected, "(d) fitted mixture": fitted[0]}
    rows = [pl.DataFrame({"panel": name, "value": np.arange(len(share)), "share": share}) for name, share in panels.items()]
    paper.picture("Figure 1: a small sample", "2,000 reports, epsilon .5.", bars(pl.concat(rows)))


def by_mixture(paper: Reproduction, observed: np.ndarray, fitted: np.ndarray) -> None:
    """Check that the mixture is nearer to the expected law of the reports than the reports are, run by run."""
    text = f"total variation to the expected law: reports {observed.mean():.3f}, mixture {fitted.mean():.3f}"
    paper.findings.append(
        at_most("fig. 1, piecewise, epsilon 0.5", "the mixture fills what 2,000 reports leave out", (fitted / observed).tolist(),
                0.5, text=text)
    )  # fmt: skip
