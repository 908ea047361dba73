"""Murakami, Hino, Sakuma, "Toward distribution estimation under local differential privacy with small samples", PETS 2018.

Figures 5 (few users), 6 (more users), 7 (20,000 users with epsilon .1) and 10 (which method is best where). The paper's census is
that of 1990; here the same cross of age, sex, income and marital status comes from the UCI Adult census, which knows two of the
five classes of income, so the cells of the others stay empty; and the cross of grade, branch, gender, race and Hispanic origin of
the US military.
"""

from __future__ import annotations

from math import log

import numpy as np
import polars as pl
from duckdb import DuckDBPyConnection
from reproduction import Finding, Reproduction, frame, lines, run, shared

SQL = """\
SET VARIABLE m = MAP {
    1: ldp.krr(0.1, range(400)), 2: ldp.krr(2, range(400)), 3: ldp.krr(5.991464547107, range(400)), 4: ldp.krr(32, range(400))
};

SELECT run, ldp.ibu_mixed(report, level, getvariable('m'), estimator := 'corrected_em') FROM reports GROUP BY run;"""

METHODS = {"Uniform": "uniform", "ObfDat": "observed", "MatInv norm": "inv_n", "MatInv proj": "inv_p", "EM": "ibu",
           "Proposal": "corrected_em"}  # fmt: skip
BEYOND = {"empirical Bayes": "empirical_bayes", "best": "best"}

CENSUS = """\
SELECT CASE WHEN age = 0 THEN 0 WHEN age <= 12 THEN 1 WHEN age <= 19 THEN 2 WHEN age <= 29 THEN 3 WHEN age <= 39 THEN 4
            WHEN age <= 49 THEN 5 WHEN age <= 64 THEN 6 ELSE 7 END * 50
     + CASE sex WHEN 'Male' THEN 0 ELSE 25 END
     + CASE income WHEN '>50K' THEN 4 ELSE 3 END * 5
     + CASE marital_status WHEN 'Widowed' THEN 1 WHEN 'Divorced' THEN 2 WHEN 'Separated' THEN 3 WHEN 'Never-married' THEN 4
            ELSE 0 END AS value, count(*) AS n
FROM read_parquet('{path}') GROUP BY value"""

MILITARY = """\
WITH ranked AS (SELECT n, dense_rank() OVER (ORDER BY grade) - 1 AS grade, dense_rank() OVER (ORDER BY branch) - 1 AS branch,
    dense_rank() OVER (ORDER BY gender) - 1 AS gender, dense_rank() OVER (ORDER BY race) - 1 AS race,
    dense_rank() OVER (ORDER BY hisp) - 1 AS hisp FROM read_csv('{path}'))
SELECT (((grade * 4 + branch) * 2 + gender) * 2 + hisp) * (SELECT max(race) + 1 FROM ranked) + race AS value, sum(n)::BIGINT AS n
FROM ranked GROUP BY value"""

SOURCES = {"census": (CENSUS, "adult_census_income.parquet", 400), "military": (MILITARY, "us_military_counts.csv", None)}


def reproduce(full: bool) -> Reproduction:
    """Run all parts."""
    paper = Reproduction(
        "Small samples",
        "Murakami, Hino and Sakuma, Toward distribution estimation under local differential privacy with small samples, 2018.",
        SQL,
    )
    return run(paper, [few, more, strict, winners], full)


def population(con: DuckDBPyConnection, source: str) -> np.ndarray:
    """Return the shares of all cells of a cross; those of nobody are zero."""
    query, file, size = SOURCES[source]
    rows = frame(con, query.format(path=shared(file)))
    counts = np.zeros(size or int(rows["value"].max()) + 1)  # type: ignore[arg-type]
    counts[rows["value"].to_numpy()] = rows["n"].to_numpy()
    return counts / counts.sum()


def simulated(con: DuckDBPyConnection, p: np.ndarray, users: tuple[int, int, int, int], runs: int) -> None:
    """Let ``users`` of each level of privacy report once in each of ``runs`` runs; keep the reports in a table.

    Nobody may report in the clear here, so the paper's epsilon of infinity (N4) is 32: one report in 10^11 differs.
    """
    k = len(p)
    levels = {1: 0.1, 2: 2, 3: round(log(k), 12), 4: 32}
    con.execute("SET VARIABLE m = MAP {" + ", ".join(f"{i}: ldp.krr({e}, range({k}))" for i, e in levels.items()) + "}")
    level = np.tile(np.repeat([1, 2, 3, 4], users), runs)
    drawn = pl.DataFrame(
        {"run": np.repeat(np.arange(runs), sum(users)), "level": level,
         "value": np.random.default_rng().choice(k, len(level), p=p)}
    )  # fmt: skip
    con.register("drawn", drawn)
    con.execute("CREATE OR REPLACE TABLE reports AS SELECT run, level, ldp.perturb_mixed(value, level, getvariable('m')) AS report "
                "FROM drawn")  # fmt: skip
    con.execute("CREATE OR REPLACE TABLE truth AS SELECT ?::DOUBLE[] AS p", [p.tolist()])


def errors(con: DuckDBPyConnection, methods: dict[str, str]) -> pl.DataFrame:
    """Return run, method, squared error and Jensen-Shannon divergence of every estimate."""
    found = []
    for label, estimator in methods.items():
        con.execute(
            "CREATE OR REPLACE TABLE estimates AS SELECT run, list_transform("
            f"ldp.ibu_mixed(report, level, getvariable('m'), estimator := '{estimator}'), lambda e: e.estimate) AS q "
            "FROM reports GROUP BY run"
        )
        found.append(
            frame(con, f"SELECT run, '{label}' AS method, len(p) * ldp.mse(p, q) AS squared_error, "
                       "ldp.js_divergence(p, q) AS js_divergence FROM estimates, truth")
        )  # fmt: skip
    return pl.concat(found)


def means(rows: pl.DataFrame) -> dict[str, float]:
    """Return the mean squared error of every method."""
    return dict(rows.group_by("method").agg(pl.col("squared_error").mean()).iter_rows())


def sweep(con: DuckDBPyConnection, paper: Reproduction, source: str, figure: str, axis: str,
          settings: dict[int, tuple[int, int, int, int]], runs: int) -> pl.DataFrame:  # fmt: skip
    """Run all methods over the settings of a figure and draw both distances."""
    p, parts = population(con, source), []
    for at, users in settings.items():
        simulated(con, p, users, runs)
        parts.append(errors(con, METHODS | BEYOND).with_columns(pl.lit(float(at)).alias(axis)))
    rows = pl.concat(parts)
    for measure in ("squared_error", "js_divergence"):
        paper.picture(f"{figure}, {source}: {measure.replace('_', ' ')}", f"Mean of {runs} runs, K = {len(p)}.",
                      lines(rows, axis, measure, "method", log=True))  # fmt: skip
    return rows


def compare(paper: Reproduction, figure: str, source: str, rows: pl.DataFrame, axis: str) -> None:
    """Judge what the paper says of the methods, at each setting."""
    by = {at[0]: means(part) for at, part in rows.group_by(axis, maintain_order=True)}
    ratios = {at: mean["Proposal"] / mean["EM"] for at, mean in by.items()}
    text = ", ".join(f"{axis} {at:.0f}: {ratio:.2f}" for at, ratio in ratios.items())
    paper.findings.append(
        Finding.checked(f"{figure}, {source}: MSE", "Proposal below EM, most at small N4 or N", f"Proposal / EM {text}",
                        max(ratios.values()) <= 1.02)
    )  # fmt: skip
    inverted = all(mean["MatInv norm"] > mean["EM"] for mean in by.values())
    paper.findings.append(
        Finding.checked(f"{figure}, {source}: MSE", "inversions far above EM",
                        ", ".join(f"{mean['MatInv norm'] / mean['EM']:.1f} x" for mean in by.values()), inverted)
    )  # fmt: skip
    for name in BEYOND:
        text = ", ".join(f"{at:.0f}: {mean[name] / mean['EM']:.2f}" for at, mean in by.items())
        paper.findings.append(Finding(f"{figure}, {source}: MSE", "no such method", f"{name} / EM {text}", "beyond the paper"))


def few(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 5: (N1, N2, N3) = (500, 500, 50), N4 from 0 to 50."""
    settings = {n: (500, 500, 50, n) for n in (range(0, 51, 10) if full else (0, 20, 50))}
    for source in SOURCES:
        rows = sweep(con, paper, source, "fig. 5", "N4", settings, 100 if full else 3)
        compare(paper, "fig. 5", source, rows, "N4")


def more(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 6: N grows, N1 : N2 : N3 : N4 = 10 : 10 : 1 : 1."""
    settings = {22 * n: (10 * n, 10 * n, n, n) for n in ((5, 10, 20, 30, 50, 100, 200) if full else (10, 50, 200))}
    rows = sweep(con, paper, "census", "fig. 6", "N", settings, 100 if full else 3)
    compare(paper, "fig. 6", "census", rows, "N")


def strict(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 7: N1 = 20,000 users with epsilon .1 hardly help."""
    p, runs, mean = population(con, "census"), 100 if full else 5, {}
    for n1 in (500, 20_000):
        simulated(con, p, (n1, 500, 50, 20), runs)
        mean[n1] = means(errors(con, {"EM": "ibu", "Proposal": "corrected_em"}))
    text = ", ".join(f"{name} {mean[20_000][name] / mean[500][name]:.2f}" for name in ("EM", "Proposal"))
    paper.findings.append(
        Finding.checked("fig. 7", "MSE falls only slightly from N1 = 500 to 20,000", f"ratio: {text}",
                        all(0.4 <= mean[20_000][name] / mean[500][name] <= 1.3 for name in mean[500]))
    )  # fmt: skip


def winners(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 10: the method with the smallest MSE, N1 = N4 = 0, over N2 and N3."""
    p, cells = population(con, "census"), []
    for n2 in (0, 500, 1000, 2000) if full else (0, 1000):
        for n3 in (0, 30, 60, 100, 500) if full else (0, 60, 500):
            if n2 + n3:
                simulated(con, p, (0, n2, n3, 0), 100 if full else 3)
                mean = means(errors(con, METHODS))
                cells.append((n2, n3, min(mean, key=lambda name: mean[name])))
    paper.findings.append(
        Finding.checked("fig. 10", "Uniform or ObfDat best where N3 = 0; Proposal best about N3 = 30 to 60",
                        "; ".join(f"N2 {a}, N3 {b}: {name}" for a, b, name in cells),
                        any(name == "Proposal" for _, n3, name in cells if n3))
    )  # fmt: skip
