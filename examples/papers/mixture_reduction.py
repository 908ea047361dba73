"""Ye, Wang, Zhang, Feng, "Revisiting EM-based estimation for locally differentially private protocols", NDSS 2025.

The paper's San Francisco compensation file is not at hand: destinations of the shipped flights stand for its categories. Income
is the IRS statistics of 2013 where that file is there; the cross of state and income class has 306 cells, about the paper's 300.
"""

from __future__ import annotations

from math import exp
from time import process_time

import altair as alt
import numpy as np
import polars as pl
from duckdb import DuckDBPyConnection
from reproduction import SHARED, Finding, Reproduction, boxes, frame, lines, people, perturbed, run, shared

from ldpsql.demo import flights_file

SQL = """\
CREATE MACRO m() AS ldp.olh(1, range(306));

CREATE TABLE reports AS SELECT run, ldp.perturb(value, m()) AS report FROM people, range(100) t(run);

SELECT run, ldp.em_mr(report, m()), ldp.ibu(report, m()), ldp.empirical_bayes(report, m()) FROM reports GROUP BY run;"""

FULL, QUICK = 1024, 128  # bins of numbers; the paper's number, and a coarser one for a look


def reproduce(full: bool) -> Reproduction:
    """Run all parts."""
    paper = Reproduction(
        "Mixture reduction",
        "Ye, Wang, Zhang and Feng, Revisiting EM-based estimation for locally differentially private protocols, 2025.",
        SQL,
    )
    return run(paper, [frequencies, uniform, mean, densities, convergence, runtimes, key_value], full)


# --- data ---


def s_mn(n: int) -> np.ndarray:
    """Draw from the paper's S-MN: N(.7, .2) with weight .6 and N(.2, .1) with weight .4, clipped to [-1, 1]."""
    source = np.random.default_rng()
    first = source.random(n) < 0.6
    return np.clip(np.where(first, source.normal(0.7, 0.2, n), source.normal(0.2, 0.1, n)), -1, 1)


def income(con: DuckDBPyConnection) -> np.ndarray:
    """Return total incomes scaled to [-1, 1]."""
    path = shared("irs2013_agi_sample.parquet")
    capped = frame(con, f"SELECT a02650_capped AS income FROM read_parquet('{path}')")["income"].to_numpy()
    return capped / 100_000 - 1


def destinations(con: DuckDBPyConnection) -> list[int]:
    """Return how many of the shipped flights went to each airport."""
    return frame(con, f"SELECT dest, count(*) AS n FROM read_parquet('{flights_file()}') GROUP BY dest ORDER BY dest")[
        "n"
    ].to_list()


def places(con: DuckDBPyConnection) -> list[int]:
    """Return 300,000 returns spread over the 306 cells of state and income class."""
    path = shared("irs2013_agi_sample.parquet")
    rows = frame(con, f"SELECT state, agi_stub, sum(n02650)::DOUBLE AS n FROM read_parquet('{path}') GROUP BY ALL ORDER BY ALL")
    share = rows["n"].to_numpy() / rows["n"].sum()
    return np.random.default_rng().multinomial(300_000, share).tolist()


# --- frequencies: figures 4, 7 and 8 ---

BASELINES = {"unbiased": "ldp.inv_counts(counts, m())", "NormSub": "ldp.inv_p_counts(counts, m())",
             "BaseCut": "ldp.base_cut_counts(counts, m())", "IIW": "ldp.iiw_counts(counts, m())"}  # fmt: skip
EM = "ldp.ibu_counts(counts, m(), stop := 'paper', tolerance := {tolerance})"
REDUCED = "ldp.em_mr_counts(counts, m())"
BEYOND = {"certified maximum": "ldp.ibu_counts(counts, m())", "empirical Bayes": "ldp.empirical_bayes_counts(counts, m())",
          "best": "ldp.best_counts(counts, m())"}  # fmt: skip


def estimated(con: DuckDBPyConnection, call: str) -> list[np.ndarray]:
    """Return the estimate of every run."""
    rows = frame(con, f"SELECT list_transform({call}, lambda e: e.estimate) AS q FROM counted ORDER BY run")
    return [np.array(q) for q in rows["q"].to_list()]


def mae(con: DuckDBPyConnection, calls: dict[str, str], p: np.ndarray) -> pl.DataFrame:
    """Return method, run, mean absolute error over all values and over the most frequent tenth."""
    top = np.argsort(-p)[: max(1, len(p) // 10)]
    found = [
        {"method": name, "run": run, "mae": np.abs(q - p).mean(), "top": np.abs(q - p)[top].mean()}
        for name, call in calls.items()
        for run, q in enumerate(estimated(con, call))
    ]
    return pl.DataFrame(found)


def frequency(con: DuckDBPyConnection, counts: list[int], mechanism: str, epsilon: float, runs: int) -> pl.DataFrame:
    """Return the errors of all methods for one mechanism and epsilon."""
    people(con, counts)
    perturbed(con, f"ldp.{mechanism}({epsilon}, range({len(counts)}))", runs)
    calls = BASELINES | {"EM": EM.format(tolerance=min(0.5, 1e-3 * exp(epsilon))), "MR": REDUCED} | BEYOND
    return mae(con, calls, np.array(counts) / sum(counts)).with_columns(epsilon=pl.lit(float(epsilon)))


def judged(paper: Reproduction, figure: str, rows: pl.DataFrame) -> None:
    """Compare MR with EM and with the unbiased estimate at each epsilon, then what came after."""
    mean = rows.group_by("method", "epsilon").agg(pl.col("mae").mean()).pivot(on="method", values="mae").sort("epsilon")

    def ratios(name: str, to: str) -> list[float]:
        return (mean[name] / mean[to]).to_list()

    def text(values: list[float]) -> str:
        return ", ".join(f"epsilon {e:g}: {v:.2f}" for e, v in zip(mean["epsilon"], values, strict=True))

    to_em, to_unbiased = ratios("MR", "EM"), ratios("MR", "unbiased")
    paper.findings.append(
        Finding.checked(f"{figure}: MR / EM", "MAE falls by 10 to 30 %", text(to_em), max(to_em) <= 0.9,
                        "" if max(to_em) <= 0.9 else "the paper's EM started from an estimate and stopped early; ours is uniform-started")
    )  # fmt: skip
    paper.findings.append(
        Finding.checked(f"{figure}: MR / unbiased", "about half", text(to_unbiased), max(to_unbiased) <= 0.75)
    )
    for name in BEYOND:
        paper.findings.append(Finding(f"{figure}: {name} / EM", "no such method", text(ratios(name, "EM")), "beyond the paper"))


def frequencies(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 4: k-RR and OLH, all values and the frequent ones."""
    sources = {"flights": destinations}
    if (SHARED / "irs2013_agi_sample.parquet").is_file():
        sources["income"] = places
    for source, load in sources.items():
        counts = load(con)
        for mechanism in ("krr", "olh"):
            rows = pl.concat([frequency(con, counts, mechanism, e, 100 if full else 3) for e in (0.5, 1, 2)])
            judged(paper, f"fig. 4, {source}, {mechanism}", rows)
            charts = [boxes(rows, "epsilon", column, "method") for column in ("mae", "top")]
            paper.picture(f"Figure 4: {source}, {mechanism}", "Mean absolute error: all values, and the frequent tenth.",
                          alt.vconcat(*charts))  # fmt: skip


def uniform(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 7: everybody alike, 50,000 people and 100 values."""
    rows = pl.concat([frequency(con, [500] * 100, "krr", e, 100 if full else 3) for e in (0.5, 1, 2)])
    judged(paper, "fig. 7, uniform, krr", rows)
    paper.picture(
        "Figure 7: the uniform distribution", "k-RR, 50,000 people, 100 values.", boxes(rows, "epsilon", "mae", "method")
    )


# --- numbers: figures 2, 3, 5 and 9 ---


def numbers(con: DuckDBPyConnection, values: np.ndarray, bins: int) -> None:
    """Make the tables ``people`` (value) and ``truth`` (one row: p, the shares of the bins)."""
    con.register("given", pl.DataFrame({"value": values}))
    con.execute("CREATE OR REPLACE TABLE people AS SELECT value FROM given")
    counts, _ = np.histogram(values, bins, (-1, 1))
    con.execute("CREATE OR REPLACE TABLE truth AS SELECT ?::DOUBLE[] AS p", [(counts / counts.sum()).tolist()])


MEANS = {
    "SR": ("stochastic_rounding", "ldp.mean_counts(counts, m()).estimate"),
    "PM": ("piecewise", "ldp.mean_counts(counts, m()).estimate"),
    "PM-EM": (
        "piecewise",
        "list_sum(list_transform(ldp.ibu_counts(counts, m(), stop := 100), lambda e: e.value * e.estimate))",
    ),
    "PM-MR": ("piecewise", "list_sum(list_transform(ldp.em_mr_counts(counts, m()), lambda e: e.value * e.estimate))"),
    "SW-EMS": ("square_wave", "list_sum(list_transform(ldp.ems_counts(counts, m()), lambda e: e.value * e.estimate))"),
}


def mean(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figures 2 and 3: the mean of S-MN and of incomes."""
    sources = {"S-MN, n = 2,000": s_mn(2000), "S-MN, n = 43,000": s_mn(43_000)}
    if (SHARED / "irs2013_agi_sample.parquet").is_file():
        sources["income"] = income(con)
    for source, values in sources.items():
        numbers(con, values, bins := FULL if full else QUICK)
        found = []
        for epsilon in (0.5, 1, 2, 3) if full else (0.5, 1.5):
            for method, (mechanism, call) in MEANS.items():
                perturbed(con, f"ldp.{mechanism}({epsilon}, -1, 1, bins := {bins})", 100 if full else 5)
                rows = frame(con, f"SELECT run, {call} - {values.mean()} AS error FROM counted")
                found.append(rows.with_columns(method=pl.lit(method), epsilon=pl.lit(float(epsilon))))
        rows = pl.concat(found)
        error = (
            rows.group_by("method", "epsilon")
            .agg(pl.col("error").abs().mean())
            .pivot(on="method", values="error")
            .sort("epsilon")
        )
        text = "; ".join(
            f"epsilon {r['epsilon']:g}: " + ", ".join(f"{name} {r[name]:.3f}" for name in MEANS)
            for r in error.iter_rows(named=True)
        )
        best = (error["PM-MR"] <= 1.02 * error.select(pl.min_horizontal(*MEANS)).to_series()).all()
        paper.findings.append(Finding.checked(f"fig. 2, {source}: MAE of the mean", "PM-MR smallest everywhere", text, best))
        paper.picture(
            f"Figure 3: errors of the mean, {source}", "Estimate minus truth.", boxes(rows, "epsilon", "error", "method")
        )


def densities(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figures 5 and 9: the whole distribution in 1024 bins, over mechanisms and numbers of people."""
    calls = {"EM": "ldp.ibu_counts(counts, m(), stop := 10000)", "MR": REDUCED, "EMS": "ldp.ems_counts(counts, m())",
             "held out": "ldp.ibu_counts(counts, m(), stop := 'held_out')", "best": "ldp.best_counts(counts, m())"}  # fmt: skip
    if not full:
        calls["EM"] = "ldp.ibu_counts(counts, m(), stop := 1000)"
    for mechanism in ("laplace", "piecewise", "square_wave"):
        found = []
        for n in (1000, 10_000, 43_000, 300_000) if full else (1000, 43_000):
            numbers(con, s_mn(n), bins := FULL if full else QUICK)
            perturbed(con, f"ldp.{mechanism}(1, -1, 1, bins := {bins})", 20 if full else 2)
            for name, call in calls.items():
                con.execute(
                    f"CREATE OR REPLACE TABLE estimates AS SELECT run, list_transform({call}, lambda e: e.estimate) AS q FROM counted"
                )
                rows = frame(con, "SELECT run, ldp.wasserstein(p, q) AS distance FROM estimates, truth")
                found.append(rows.with_columns(method=pl.lit(name), n=pl.lit(float(n))))
        rows = pl.concat(found)
        mean = rows.group_by("method", "n").agg(pl.col("distance").mean()).pivot(on="method", values="distance").sort("n")
        text = "; ".join(
            f"n {r['n']:.0f}: " + ", ".join(f"{c} {r[c] / r['EM']:.2f}" for c in calls) for r in mean.iter_rows(named=True)
        )
        paper.findings.append(
            Finding.checked(f"fig. 5 and 9, {mechanism}: Wasserstein / EM", "MR 10 to 20 % below EM, less for more people", text,
                            (mean["MR"] <= 0.95 * mean["EM"]).all())
        )  # fmt: skip
        paper.picture(
            f"Figures 5 and 9: {mechanism}",
            "Wasserstein distance to S-MN, epsilon 1.",
            lines(rows, "n", "distance", "method", log=True),
        )


# --- convergence and time: figure 6 and table II ---


def convergence(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 6: how far EM is from the maximum after so many steps."""
    people(con, places(con))
    steps = [1, 10, 100, 1000, 10_000] if full else [1, 10, 100, 1000]
    found = []
    for epsilon in (0.75, 3):
        perturbed(con, f"ldp.olh({epsilon}, range(306))", 1)
        for step in steps:
            gap = frame(
                con, f"SELECT ldp.diagnose_counts(counts, m(), estimator := 'ibu(stop={step})').gap AS gap FROM counted"
            )["gap"][0]
            found.append({"epsilon": f"epsilon {epsilon}", "steps": step, "gap": gap})
        told = frame(con, "SELECT unnest(ldp.diagnose_counts(counts, m())) FROM counted")
        paper.findings.append(
            Finding(f"fig. 6, epsilon {epsilon}", "EM needs 1,000 to 20,000 steps to look settled",
                    f"gap {found[-1]['gap']:.1e} after {steps[-1]:,} steps; {told['iterations'][0]} Newton steps reach {told['gap'][0]:.1e}",
                    "beyond the paper", "a level line is not a maximum; the gap bounds what is missing")
        )  # fmt: skip
    chart = lines(pl.DataFrame(found), "steps", "gap", "epsilon", log=True)
    paper.picture("Figure 6: convergence of EM", "Certified gap after so many steps, OLH, 306 values, 300,000 people.", chart)


PUBLISHED = {0.75: 15_684, 1: 6_482, 2: 1_126, 3: 154}  # OLH-EM on Income, seconds


def runtimes(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Table II: OLH with 300,000 people, private seeds as in the paper, to a certified gap."""
    people(con, places(con))
    for epsilon, published in PUBLISHED.items() if full else [(1, PUBLISHED[1])]:
        perturbed(con, f"ldp.olh({epsilon}, range(306), seeds := 'private')", 1)
        start = process_time()
        told = frame(con, "SELECT unnest(ldp.diagnose_counts(counts, m())) FROM counted")
        seconds = process_time() - start
        paper.findings.append(
            Finding(f"table II, OLH-EM, epsilon {epsilon}", f"{published:,} s", f"{seconds:.1f} CPU s, reading and errors included, "
                    f"gap {told['gap'][0]:.0e}", "beyond the paper", "the same likelihood; bits, sampled curvature, Newton steps")
        )  # fmt: skip


# --- key-value: figure 10 ---


def key_value(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 10: the mean delay of carriers that few or many flights have, one pair a person."""
    rows = frame(con, f"SELECT carrier, least(120, greatest(-60, arr_delay))::INTEGER AS delay FROM read_parquet('{flights_file()}') "
                      "WHERE arr_delay IS NOT NULL USING SAMPLE 60000")  # fmt: skip
    con.register("sampled", rows)
    truth = dict(frame(con, "SELECT carrier, avg(delay) AS mean FROM sampled GROUP BY carrier").iter_rows())
    carriers = sorted(truth)
    found = []
    for mechanism, estimators in {
        "pckv_ue": ["unbiased", "ibu"],
        "pckv_grr": ["unbiased", "ibu"],
        "pckv_pm": ["ibu", "em_mr"],
    }.items():
        for epsilon in (0.5, 1, 2):
            con.execute(f"CREATE OR REPLACE MACRO kv() AS ldp.{mechanism}({epsilon}, {carriers}, low := -60, high := 120)")
            con.execute(f"CREATE OR REPLACE TABLE kv_reports AS SELECT run, ldp.perturb([{{'key': carrier, 'value': delay}}], kv()) AS report "
                        f"FROM sampled, range({20 if full else 2}) t(run)")  # fmt: skip
            for estimator in estimators:
                told = frame(con, f"SELECT unnest(ldp.key_value(report, kv(), estimator := '{estimator}'), recursive := true) "
                                  "FROM kv_reports GROUP BY run")  # fmt: skip
                error = np.mean([(r["mean"] - truth[r["key"]]) ** 2 for r in told.iter_rows(named=True) if r["key"] in truth])
                found.append({"method": f"{mechanism}, {estimator}", "epsilon": epsilon, "squared error of the mean": error})
    paper.picture("Figure 10: key-value", "Mean over carriers, minutes squared.",
                  lines(pl.DataFrame(found), "epsilon", "squared error of the mean", "method", log=True))  # fmt: skip
    by = {(f["method"], f["epsilon"]): f["squared error of the mean"] for f in found}
    ratios = [by["pckv_pm, em_mr", e] / by["pckv_ue, unbiased", e] for e in (0.5, 1, 2)]
    paper.findings.append(
        Finding.checked("fig. 10", "mixture reduction halves the error at small epsilon",
                        ", ".join(f"{r:.2f}" for r in ratios), ratios[0] <= 0.6)
    )  # fmt: skip
