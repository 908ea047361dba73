"""Murakami, Hino, Sakuma, "Toward distribution estimation under local differential privacy with small samples", PETS 2018.

Figures 5 (few users), 6 (more users), 7 (20,000 users with epsilon .1) and 10 (which method is best where). The paper's census is
that of 1990. Here the same cross of age, sex, income and marital status comes from the UCI Adult census, which has two of the
five classes of income, so the cells of the others stay empty; and there is the cross of grade, branch, gender, race and Hispanic
origin of the US military.
"""

from __future__ import annotations

from math import log

import numpy as np
import polars as pl
from duckdb import DuckDBPyConnection
from reproduction import Finding, Reproduction, away, frame, lines, names, run, shared

SQL = """\
SET VARIABLE m = MAP {
    1: ldp.krr(0.1, ['a', 'b', 'c']), 2: ldp.krr(2, ['a', 'b', 'c']), 3: ldp.krr(1.098612288668, ['a', 'b', 'c']), 4: ldp.krr('infinity', ['a', 'b', 'c'])
};

SELECT run, ldp.ibu_mixed(report, level, getvariable('m'), estimator := 'corrected_em') FROM reports GROUP BY run;"""

METHODS = {"Uniform": "uniform", "ObfDat": "observed", "MatInv norm": "inv_n", "MatInv proj": "inv_p", "EM": "ibu",
           "Proposal": "corrected_em"}  # fmt: skip
BEYOND = {"held out": "ibu(stop=''held_out'')", "empirical Bayes": "empirical_bayes",
          "(24) as printed": "corrected_em(correction=''printed'')"}  # fmt: skip

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
    """Return the shares of all cells of a cross; empty cells have zero."""
    query, file, size = SOURCES[source]
    rows = frame(con, query.format(path=shared(file)))
    counts = np.zeros(size or int(rows["value"].max()) + 1)  # type: ignore[arg-type]
    counts[rows["value"].to_numpy()] = rows["n"].to_numpy()
    return counts / counts.sum()


def simulated(con: DuckDBPyConnection, p: np.ndarray, users: tuple[int, int, int, int], runs: int) -> None:
    """Let ``users`` of each level of privacy report once in each of ``runs`` runs; keep the reports in a table.

    The last level, whose epsilon is infinite (N4), reports in the clear.
    """
    k = len(p)
    levels = {1: "0.1", 2: "2", 3: str(round(log(k), 12)), 4: "infinity"}
    written = [f"{i}: ldp.krr('{e}', {names(k)})" for i, e in levels.items()]
    con.execute(f"SET VARIABLE m = MAP {{{', '.join(written)}}}")
    con.execute(f"SET VARIABLE private = MAP {{{', '.join(written[:3])}}}")
    level = np.tile(np.repeat([1, 2, 3, 4], users), runs)
    drawn = pl.DataFrame(
        {"run": np.repeat(np.arange(runs), sum(users)), "level": level,
         "value": np.random.default_rng().choice(k, len(level), p=p)}
    )  # fmt: skip
    con.register("drawn", drawn)
    con.execute("CREATE OR REPLACE TABLE reports AS "
                "SELECT run, level, ldp.perturb_mixed(name_of(value), level, getvariable('private')) AS report "
                "FROM drawn WHERE level < 4 UNION ALL SELECT run, level, name_of(value) FROM drawn WHERE level = 4")  # fmt: skip
    con.execute("CREATE OR REPLACE TABLE truth AS SELECT ?::DOUBLE[] AS p", [p.tolist()])


def errors(con: DuckDBPyConnection, methods: dict[str, str]) -> pl.DataFrame:
    """Return run, method, squared error and Jensen-Shannon divergence of every estimate."""
    tables = []
    for label, estimator in methods.items():
        con.execute(
            "CREATE OR REPLACE TABLE estimates AS SELECT run, list_transform("
            f"ldp.ibu_mixed(report, level, getvariable('m'), estimator := '{estimator}'), lambda e: e.estimate) AS q "
            "FROM reports GROUP BY run"
        )
        tables.append(
            frame(con, f"SELECT run, '{label}' AS method, len(p) * ldp.mse(p, q) AS squared_error, "
                       "ldp.js_divergence(p, q) AS js_divergence FROM estimates, truth")
        )  # fmt: skip
    return pl.concat(tables)


def means(rows: pl.DataFrame) -> dict[str, float]:
    """Return the mean squared error of every method."""
    return dict(rows.group_by("method").agg(pl.col("squared_error").mean()).iter_rows())


def paired(rows: pl.DataFrame, measure: str) -> tuple[float, float]:
    """Return Proposal's mean over EM's, and by how many standard errors of the difference in a run Proposal is worse."""
    both = rows.pivot(on="method", index="run", values=measure).sort("run")
    a, b = both["Proposal"].to_numpy(), both["EM"].to_numpy()
    return float(a.mean() / b.mean()), away(a - b)


def sweep(con: DuckDBPyConnection, paper: Reproduction, source: str, figure: str, axis: str,
          settings: dict[int, tuple[int, int, int, int]], full: bool) -> pl.DataFrame:  # fmt: skip
    """Run all methods over the settings of a figure, draw both distances, and list their means and deviations."""
    p, parts, runs = population(con, source), [], 100 if full else 12
    for at, users in settings.items():
        simulated(con, p, users, runs)
        rows = errors(con, METHODS | BEYOND)
        if full or not parts:  # best takes a second a run
            con.execute(f"DELETE FROM reports WHERE run >= {20 if full else 3}")
            rows = pl.concat([rows, errors(con, {"best": "best"})])
        parts.append(rows.with_columns(pl.lit(float(at)).alias(axis)))
    rows = pl.concat(parts)
    for measure in ("squared_error", "js_divergence"):
        label = measure.replace("_", " ")
        paper.picture(f"{figure}, {source}: {label}", f"Mean of {runs} runs, K = {len(p)}.",
                      lines(rows, axis, measure, "method", log=True))  # fmt: skip
        paper.table(f"{figure}, {source}: {label}", "Mean and, in brackets, standard deviation of a run.",
                    with_deviations(rows, axis, measure))  # fmt: skip
    return rows


def with_deviations(rows: pl.DataFrame, axis: str, measure: str) -> pl.DataFrame:
    """Return one row for each method and one column for each setting: mean (standard deviation)."""
    summary = rows.group_by("method", axis, maintain_order=True).agg(
        mean=pl.col(measure).mean(), deviation=pl.col(measure).std()
    )
    cells = [f"{r['mean']:.4f} ({r['deviation']:.4f})" for r in summary.iter_rows(named=True)]
    settings = [f"{axis} = {at:.0f}" for at in summary[axis]]
    return summary.select("method", at=pl.Series(settings), cell=pl.Series(cells)).pivot(on="at", index="method", values="cell")


WINS = 2  # standard errors of the difference in a run, in every setting


def compare(paper: Reproduction, figure: str, source: str, rows: pl.DataFrame, axis: str) -> None:
    """Check the paper's claims about the methods, at each setting."""
    by = {at[0]: part for at, part in rows.group_by(axis, maintain_order=True)}
    for measure, label in (("squared_error", "MSE"), ("js_divergence", "JS divergence")):
        differences = {at: paired(part, measure) for at, part in by.items()}
        text = ", ".join(f"{axis} {at:.0f}: {ratio:.2f} ({away:+.1f})" for at, (ratio, away) in differences.items())
        agrees = max(away for _, away in differences.values()) < -WINS
        paper.findings.append(
            Finding.checked(f"{figure}, {source}: {label}", "Proposal below EM, above all at small N4 or N",
                            f"Proposal / EM (standard errors of the difference) {text}", agrees, WHY_NOT[label])
        )  # fmt: skip
        ratios = [_over_em(part, measure, "MatInv norm", "MatInv proj") for part in by.values()]
        paper.findings.append(
            Finding.checked(f"{figure}, {source}: {label}", "inversions not better than EM, projected far worse",
                            "norm and proj / EM: " + "; ".join(f"{a:.1f} and {b:.1f}" for a, b in ratios),
                            all(a > 0.95 and b > a for a, b in ratios),
                            "where N is very small, nearly equal shares are best, and the clipped inverse has them")
        )  # fmt: skip
    for name, why in MEANT.items():
        tried = {at: part for at, part in by.items() if name in part["method"]}
        alike = {
            at: part.filter(pl.col("run") <= part.filter(pl.col("method") == name)["run"].max()) for at, part in tried.items()
        }
        text = ", ".join(f"{at:.0f}: {_over_em(part, 'squared_error', name)[0]:.2f}" for at, part in alike.items())
        paper.findings.append(
            Finding(f"{figure}, {source}: MSE", "no such method", f"{name} / EM at {axis} {text}", "beyond the paper", why)
        )


def _over_em(rows: pl.DataFrame, measure: str, *names: str) -> list[float]:
    mean = dict(rows.group_by("method").agg(pl.col(measure).mean()).iter_rows())
    return [mean[name] / mean["EM"] for name in names]


WHY_NOT = {
    "MSE": "the correction moves weight from large shares to those that EM leaves at zero, which costs most where few are large: "
           "the largest is 18 % of the military, 9 % of the census",
    "JS divergence": "the correction moves weight to cells that EM leaves at zero, which this distance minds where they are empty: "
                     "291 of 400 cells of the census, whose cross knows two of five incomes, and 77 of 336 of the military",
}  # fmt: skip
MEANT = {
    "held out": "the reports themselves choose where to stop",
    "empirical Bayes": "it starts from the inversion, which those with epsilon 0.1 drown: not for mixed levels",
    "(24) as printed": "the second derivative of the score without its factor 2, which finite differences confirm",
    "best": "the mean of those that predict held-out reports best",
}


def few(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 5: (N1, N2, N3) = (500, 500, 50), N4 from 0 to 50."""
    settings = {n: (500, 500, 50, n) for n in (range(0, 51, 10) if full else (0, 20, 50))}
    for source in SOURCES:
        rows = sweep(con, paper, source, "fig. 5", "N4", settings, full)
        compare(paper, "fig. 5", source, rows, "N4")
        certificate_of_mixed(con, paper, f"fig. 5, {source}")


def certificate_of_mixed(con: DuckDBPyConnection, paper: Reproduction, figure: str) -> None:
    """Add what is certified about the maximum over mixed levels, for one run."""
    diagnosis = frame(
        con, "SELECT unnest(ldp.diagnose_mixed(report, level, getvariable('m'))), count(*) AS n FROM reports WHERE run = 0"
    )
    missing = diagnosis["gap"][0] * diagnosis["n"][0]
    paper.findings.append(
        Finding(f"{figure}, certificate", "none", f"at most {missing:.1e} of log-likelihood missing, unique: {diagnosis['unique'][0]}",
                "beyond the paper", "n times the gap bounds what any distribution could still gain")
    )  # fmt: skip


def more(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 6: N grows, N1 : N2 : N3 : N4 = 10 : 10 : 1 : 1."""
    settings = {22 * n: (10 * n, 10 * n, n, n) for n in ((5, 10, 20, 30, 50, 100, 200) if full else (5, 50, 200))}
    for source in SOURCES if full else ["census"]:
        rows = sweep(con, paper, source, "fig. 6", "N", settings, full)
        compare(paper, "fig. 6", source, rows, "N")
        least = means(rows.filter((pl.col("N") == min(settings)) & pl.col("method").is_in(list(METHODS))))
        best = min(least, key=lambda name: least[name])
        paper.findings.append(
            Finding.checked(f"fig. 6, {source}: MSE, N = {min(settings)}", "Uniform or ObfDat smallest where N is very small", best,
                            best in ("Uniform", "ObfDat"), "another census, whose people crowd in 109 of its 400 cells")
        )  # fmt: skip


def strict(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 7: N1 = 20,000 users with epsilon .1 hardly help."""
    runs = 100 if full else 12
    for source in SOURCES:
        p, mean = population(con, source), {}
        for n4 in (0, 20, 50) if full else (20,):
            for n1 in (500, 20_000):
                simulated(con, p, (n1, 500, 50, n4), runs)
                mean[n1, n4] = means(errors(con, {"EM": "ibu", "Proposal": "corrected_em"}))
            ratio = {name: mean[20_000, n4][name] / mean[500, n4][name] for name in ("EM", "Proposal")}
            paper.findings.append(
                Finding.checked(f"fig. 7, {source}, N4 = {n4}: MSE", "only slightly less, or no less, than with N1 = 500",
                                "N1 20,000 / 500: " + ", ".join(f"{name} {value:.2f}" for name, value in ratio.items()),
                                all(0.7 < value < 1.4 for value in ratio.values()), note="forty times as many reports")
            )  # fmt: skip


def winners(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 10: the method with the smallest MSE, N1 = N4 = 0, over N2 and N3."""
    for source in SOURCES:
        p, cells = population(con, source), []
        for n2 in (0, 500, 1000, 2000) if full else (0, 1000):
            for n3 in (0, 30, 60, 100, 200, 500) if full else (0, 30, 60, 500):
                if n2 + n3:
                    simulated(con, p, (0, n2, n3, 0), 100 if full else 12)
                    mean = means(errors(con, METHODS))
                    best = min(mean, key=lambda name: mean[name])
                    cells.append({"N2": n2, "N3": n3, "best": best, "EM": mean["EM"], "Proposal": mean["Proposal"]})
        table = pl.DataFrame(cells)
        paper.table(f"fig. 10, {source}: the best method", "Smallest MSE of the six.",
                    table.with_columns(pl.col("N3").cast(str)).pivot(on="N3", index="N2", values="best"))  # fmt: skip
        for label, part, claim, expected in (
            ("N3 = 0", pl.col("N3") == 0, "Uniform or ObfDat best", {"Uniform", "ObfDat"}),
            ("N3 = 30 and 60", pl.col("N3").is_in([30, 60]) & (pl.col("N2") > 0), "Proposal best", {"Proposal"}),
        ):
            chosen = table.filter(part)
            text = "; ".join(f"N2 {r['N2']}, N3 {r['N3']}: {r['best']}" for r in chosen.iter_rows(named=True))
            agrees = set(chosen["best"]) <= expected
            paper.findings.append(Finding.checked(f"fig. 10, {source}, {label}", claim, text, agrees))
        last = table.filter((pl.col("N3") == 500) & (pl.col("N2") > 0))
        ratios = (last["Proposal"] / last["EM"]).to_list()
        paper.findings.append(
            Finding.checked(f"fig. 10, {source}, N3 = 500", "Proposal almost the same as EM",
                            "Proposal / EM " + ", ".join(f"{r:.3f}" for r in ratios), all(abs(r - 1) < 0.05 for r in ratios))
        )  # fmt: skip
