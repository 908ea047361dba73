"""A raw column by a perturbed one: the time of its sums, coverage, bias and mean squared error, and coverage of regressions.

The plain query groups by the group and the report and has the same sums, as SQL without ldpsql would write them. The tables are
public ones, whose groups hold from 1 % to more than half of the people. Files that are absent are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

import ldpsql
from benchmarks.figures import Figure, at_least, at_most, cpu_clock, in_turns, public_file
from ldpsql.errors import NotApplicable

ROWS, GROUPS = 5_000_000, 100
EPSILONS = (0.5, 1, 2, 4)
RARE, LEAST, PEOPLE = 0.05, 0.01, 50_000
CENSUS = "adult_census_income.parquet"
TABLES = (
    (CENSUS, "race", "hours_per_week"),
    (CENSUS, "marital_status", "age"),
    (CENSUS, "workclass", "hours_per_week"),
    (CENSUS, "occupation", "age"),
    ("ecommerce_clothing_key_rating.parquet", "key", "rating"),
    ("us_military_counts.csv", "race", "rank"),
)
REGRESSIONS = (  # the perturbed column, the outcome as SQL, and the raw regressor
    (CENSUS, "race", "hours_per_week", "age"),
    (CENSUS, "race", "(income LIKE '%>%')", "age"),
    ("irs2013_agi_sample.parquet", "agi_stub", "ln(n02650 + 1)", "a02650_capped / 10000"),
    ("irs2013_agi_sample.parquet", "agi_stub", "(n02650 > 1000)", "(state < 'M')"),
    ("us_military_counts.csv", "branch", "rank", "(gender = 'female')"),
    ("us_military_counts.csv", "branch", "(grade <> 'enlisted')", "(gender = 'female')"),
)
M = "ldp.krr(1.0, ['A', 'B', 'C', 'D'])"
PRODUCTS = ("1", "y", "y * y", "y * y * y", "y * y * y * y")
PLAIN = ", ".join([*(f"sum({product})" for product in (*PRODUCTS[:3], *PRODUCTS)), "count(*)", "count(*)", "min(y)", "max(y)"])


def times(rows: int) -> list[Figure]:
    """Return the processor time of the sums, and of the whole answer, against that of the plain query."""
    with ldpsql.connect() as con:
        con.execute(
            f"CREATE TABLE t AS SELECT (i % {GROUPS})::INTEGER AS g, ['A', 'B', 'C', 'D'][1 + (hash(i) % 4)::INTEGER] AS x, "
            f"(hash(i + 1) % 1000)::DOUBLE AS y FROM range({rows}) AS t(i)"
        )
        queries = (
            f"SELECT g, x, {PLAIN} FROM t GROUP BY g, x",
            "SELECT g, ldp.sums(x, y) FROM t GROUP BY g, x",
            f"FROM ldp.outcome(t, x, {M}, y, by := g)",
        )
        plain, sums, answer = in_turns(*(lambda q=q: con.sql(q).fetchall() for q in queries), repeats=3, clock=cpu_clock)
    what = f"{rows:,} rows, {GROUPS} groups, K=4"
    return [
        at_most(f"{what}: ldp.sums / plain GROUP BY with the same sums, CPU", sums / plain, 1.6),
        at_most(f"{what}: FROM ldp.outcome / plain GROUP BY with the same sums, CPU", answer / plain, 2.5),
    ]


def fitted(x: np.ndarray, y: np.ndarray, logistic: bool) -> np.ndarray:
    """Return the coefficients of the regression of the raw columns."""
    b = np.zeros(x.shape[1])
    for _ in range(30 if logistic else 1):
        mean = 1 / (1 + np.exp(-x @ b)) if logistic else x @ b
        spread = mean * (1 - mean) if logistic else np.ones(len(x))
        b = b + np.linalg.solve((x.T * spread) @ x, x.T @ (y - mean))
    return b


def regressions(many: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield a name, and how far each coefficient of each draw is from that of the raw columns, in stated errors.

    It is NaN if the regression was refused.
    """
    for file, v, y, x in REGRESSIONS:
        path = public_file(file)
        if path is None:
            continue
        whole = pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)
        if "n" in whole.columns:
            whole = whole[np.random.default_rng(36).choice(np.repeat(np.arange(len(whole)), whole["n"].to_numpy()), PEOPLE)]
        rows = whole.select(pl.col(v).cast(pl.String).alias("v"), *pl.sql_expr([f"{y} AS y", f"{x} AS x"])).drop_nulls()
        rows = rows.with_columns(pl.col("y", "x").cast(pl.Float64)).filter(pl.len().over("v") >= LEAST * pl.len())
        values, logistic = sorted(rows["v"].unique()), y.startswith("(")
        columns = [np.ones(len(rows)), *((rows["v"] == value).cast(pl.Float64) for value in values[1:]), rows["x"]]
        truth = fitted(np.column_stack(columns), rows["y"].to_numpy(), logistic)
        options: dict[str, Any] = {"outcome": "y", "regressors": ["x"], "family": "logistic" if logistic else "linear"}
        for epsilon in (1, 2):
            away, m = [], f"krr({epsilon}, {values!r})"
            for _ in range(many):
                drawn = rows.sample(len(rows), with_replacement=True)
                drawn = drawn.with_columns(v=ldpsql.perturb(drawn["v"], m))
                try:
                    fit = ldpsql.estimate(drawn, m, column="v", question="regression", **options).to_polars()
                except NotApplicable:  # the corrected score of a logistic regression may have no root
                    away.append(np.full(len(truth), np.nan))
                    continue
                away.append((fit["estimate"].to_numpy() - truth) / fit["std_error"].to_numpy())
            yield f"{y} on {v} and {x}, epsilon {epsilon}", np.array(away)


def tables() -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield tables with a column ``v`` to be perturbed and a raw column ``y``; values of less than 1 % are left out."""
    for file, v, y in TABLES:
        path = public_file(file)
        if path is not None:
            whole = pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)
            if "n" in whole.columns:  # a table of counts
                rows = np.repeat(np.arange(len(whole)), whole["n"].to_numpy())
                whole = whole[np.random.default_rng(36).choice(rows, PEOPLE)]
            own = whole.select(v=pl.col(v).cast(pl.String), y=pl.col(y).cast(pl.Float64)).drop_nulls()
            yield f"{y} by {v}", own.filter(pl.len().over("v") >= LEAST * pl.len())


def draws(frame: pl.DataFrame, epsilon: float, many: int) -> np.ndarray:
    """Return for each draw and value estimate, error and interval of ``inv`` and the estimate of ``bayes``."""
    values = sorted(frame["v"].unique())
    with ldpsql.connect() as con:
        con.register("people", frame)
        con.execute("CREATE TABLE t AS FROM people")
        con.execute(f"CREATE MACRO m() AS ldp.krr({epsilon}, {values!r})")
        out = []
        for _ in range(many):
            # A sample of the rows with replacement: intervals are about the population that rows are a sample of.
            con.execute(
                "CREATE OR REPLACE TEMP TABLE drawn AS SELECT ldp.perturb(t.v, m()) AS x, t.y FROM "
                f"(SELECT 1 + floor(random() * {len(frame)})::BIGINT AS i FROM range({len(frame)})) "
                "JOIN (SELECT row_number() OVER () AS i, v, y FROM t) AS t USING (i)"
            )
            sums = "(SELECT ldp.sums(x, y) AS s FROM drawn GROUP BY x)"
            each = []
            for estimator in ("inv", "empirical_bayes"):
                call = f"ldp.outcome(s, m(), estimator := '{estimator}')"
                rows = con.execute(f"SELECT unnest({call}, recursive := true) FROM {sums}").fetchall()
                each.append([[np.nan if cell is None else cell for cell in row[1:5]] for row in rows])
            out.append(each)
    return np.array(out, dtype=np.float64)


def figures(quick: bool) -> list[Figure]:
    """Return the times, and coverage, bias and errors over all tables and epsilons."""
    out, many = times(ROWS if quick else 10 * ROWS), 3 if quick else 12
    fits: list[np.ndarray] = []
    for name, away in regressions(2 if quick else 17):
        known = np.isfinite(away)
        out.append(Figure(f"refused regressions: {name}", 1 - float(known[:, 0].mean()), "share"))
        out.append(Figure(f"coverage of coefficients: {name}", float((np.abs(away[known]) <= 1.96).mean()), "share"))
        fits.append(away[known])
    if fits:
        inside = np.abs(np.concatenate(fits)) <= 1.96
        out.append(at_least(f"coverage of {len(inside)} coefficients", float(inside.mean()), 0.92, "share"))
        out.append(at_most(f"coverage of {len(inside)} coefficients", float(inside.mean()), 0.98, "share"))
    held, biases, gains, sure = [], [], [], []
    for name, frame in tables():
        truth = dict(frame.group_by("v").agg(pl.col("y").mean()).iter_rows())
        shares = dict(frame.group_by("v").agg(pl.len() / len(frame)).iter_rows())
        values = sorted(truth)
        target, share = (np.array([of[value] for value in values]) for of in (truth, shares))
        for epsilon in EPSILONS:
            drawn = draws(frame, epsilon, many)
            inverted = drawn[:, 0]
            inside = (inverted[:, :, 2] <= target) & (target <= inverted[:, :, 3])
            held.append(inside.mean())
            known = np.isfinite(inverted[:, :, 1]) & np.isfinite(inverted[:, :, 0])
            z = np.where(known, (inverted[:, :, 0] - target) / inverted[:, :, 1], np.nan)
            common = share >= RARE
            biases.append(z[:, common].ravel())
            rare = share < RARE
            # The inversion has no estimate if it finds no people, and an infinite error if it may have found none.
            for found, ratios in (
                (np.isfinite(inverted[:, :, 0]), gains),
                (np.broadcast_to(known.all(axis=0), known.shape), sure),
            ):
                if (found & rare).any():
                    own, other = (((drawn[:, i, :, 0] - target) ** 2)[found & rare].mean() for i in (1, 0))
                    ratios.append(own / other)
            if rare.any():
                out.append(Figure(f"{name}, epsilon {epsilon:g}: squared error of bayes / inv, groups below 5 %", gains[-1]))
            out.append(Figure(f"{name}, epsilon {epsilon:g}: coverage of {inside.size} intervals", held[-1], "share"))
    if not held:
        return out
    bias = abs(float(np.nanmean(np.concatenate(biases))))
    return [
        *out,
        at_least("coverage of all intervals", float(np.mean(held)), 0.93, "share"),
        at_most("coverage of all intervals", float(np.mean(held)), 0.97, "share"),
        at_most("bias of inv, groups of 5 % and more, in errors", bias, 0.1),
        at_most("squared error of bayes / inv, groups below 5 %, geometric mean", float(np.exp(np.mean(np.log(gains)))), 0.7),
        Figure("the same where the error of inv is finite in all draws", float(np.exp(np.mean(np.log(sure))))),
    ]


def check() -> Iterator[Figure]:
    """Yield the processor time of the sums of a million rows against that of the plain query."""
    yield times(1_000_000)[0]
