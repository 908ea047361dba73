"""Murakami, Hino, Sakuma, "Toward distribution estimation under local differential privacy with small samples", PETS 2018.

Figures 5 and 13 (few users), 6 and 14 (more users), 7 and 15 (20,000 users with epsilon .1), 8 to 10 (EM against Proposal, and
which method is best where), 12 (single shares), equation 13 and proposition 1. The paper's census is that of 1990. Here the same cross of age, sex, income and marital status comes from the UCI Adult census, which has two of the
five classes of income, so the cells of the others stay empty; and there is the cross of grade, branch, gender, race and Hispanic
origin of the US military.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log

import numpy as np
import polars as pl
from duckdb import DuckDBPyConnection
from reproduction import (
    Finding,
    Frames,
    Reproduction,
    against_each,
    boxes,
    frame,
    lines,
    mutants_of,
    names,
    run,
    shared,
    tested,
)
from scipy.special import gammaln, rel_entr
from scipy.stats import ttest_rel
from small_samples_verdicts import (
    IN_PLACE,
    PRINTED,
    beyond,
    by_equation_13,
    compare,
    corrected,
    decomposed,
    flatter,
    hardly_less,
    in_regions,
    means,
    over_em,
    second_order,
    smallest,
)

from ldpsql.engine.groups import one_thread
from ldpsql.estimators import Likelihood
from ldpsql.inference.operators import KeepOrSpreadOperator, stacked
from ldpsql.registry.registry import registry

SQL = """\
SET VARIABLE m = MAP {
    1: ldp.krr(0.1, ['a', 'b', 'c']), 2: ldp.krr(2, ['a', 'b', 'c']), 3: ldp.krr(1.098612288668, ['a', 'b', 'c']), 4: ldp.krr('infinity', ['a', 'b', 'c'])
};

SELECT run, ldp.corrected_em({level: level, report: report}, getvariable('m'), simulate := 'observed', correction := 'printed')
FROM reports GROUP BY run;"""

METHODS = {"Uniform": "uniform", "ObfDat": "observed", "MatInv norm": "inv_n", "MatInv proj": "inv_p", "EM": "ibu",
           "Proposal": "corrected_em(simulate='observed', correction='printed')"}  # fmt: skip
FIVE = {"EM after 5 steps": "ibu(stop=5)"}  # a mutant
PAIR = {name: METHODS[name] for name in ("EM", "Proposal")}
BEYOND = {"held out": "ibu(stop='held_out')", "empirical Bayes": "empirical_bayes", "best": "best",
          "our default": "corrected_em", "(24) as printed": "corrected_em(correction='printed')"}  # fmt: skip

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


DIAGRAM = "a diagram: nothing is measured"
CONTENTS = {f"fig. {i}": DIAGRAM if i < 5 else "" for i in range(1, 16)} | {
    "fig. 11": "the map of the people-flow data, which may not be passed on",
    "table 1": "a list of symbols",
    "table 2": "the categories of the census, which the query CENSUS above uses",
}


def reproduce(full: bool) -> Reproduction:
    """Run all parts."""
    paper = Reproduction(
        "Small samples",
        "Murakami, Hino and Sakuma, Toward distribution estimation under local differential privacy with small samples, 2018.",
        SQL,
        CONTENTS,
    )
    return run(paper, [few, more, strict, winners, corrections, flattened, proposition], full)


def population(con: DuckDBPyConnection, source: str) -> np.ndarray:
    """Return the shares of all cells of a cross; empty cells have zero."""
    query, file, size = SOURCES[source]
    rows = frame(con, query.format(path=shared(file)))
    counts = np.zeros(size or int(rows["value"].max()) + 1)  # type: ignore[arg-type]
    counts[rows["value"].to_numpy()] = rows["n"].to_numpy()
    return counts / counts.sum()


def levels(k: int, factor: float = 1) -> list[float]:
    """Return the paper's epsilon of each level, or a multiple; the last one, N4, reports in the clear."""
    return [round(factor * epsilon, 12) for epsilon in (0.1, 2, log(k))] + [inf]


def simulated(con: DuckDBPyConnection, p: np.ndarray, users: tuple[int, int, int, int], runs: int, factor: float = 1) -> None:
    """Let ``users`` of each level of privacy report once in each of ``runs`` runs; keep the reports in a table."""
    k = len(p)
    written = [f"{i}: ldp.krr('{'infinity' if e == inf else e}', {names(k)})" for i, e in enumerate(levels(k, factor), 1)]
    con.execute(f"SET VARIABLE m = MAP {{{', '.join(written)}}}")
    con.execute(f"SET VARIABLE private = MAP {{{', '.join(written[:3])}}}")
    level = np.tile(np.repeat([1, 2, 3, 4], users), runs)
    drawn = pl.DataFrame(
        {"run": np.repeat(np.arange(runs), sum(users)), "level": level,
         "value": np.random.default_rng().choice(k, len(level), p=p)}
    )  # fmt: skip
    con.register("drawn", drawn)
    con.execute("CREATE OR REPLACE TABLE reports AS "
                "SELECT run, level, ldp.perturb(name_of(value), getvariable('private'), level) AS report "
                "FROM drawn WHERE level < 4 UNION ALL SELECT run, level, name_of(value) FROM drawn WHERE level = 4")  # fmt: skip
    con.execute("CREATE OR REPLACE TABLE truth AS SELECT ?::DOUBLE[] AS p", [p.tolist()])


def counted(con: DuckDBPyConnection) -> np.ndarray:
    """Return how often each level reported each value in each run, from the table ``reports``: shape (runs, 4, values)."""
    seen = frame(con, "SELECT run, level, substr(report, 2)::INTEGER AS value, count(*) AS n FROM reports GROUP BY ALL")
    counts = np.zeros((int(seen["run"].max()) + 1, 4, len(frame(con, "SELECT unnest(p) FROM truth"))))  # type: ignore[arg-type]
    counts[seen["run"].to_numpy(), seen["level"].to_numpy() - 1, seen["value"].to_numpy()] = seen["n"].to_numpy()
    return counts


def response(k: int, epsilon: float) -> KeepOrSpreadOperator:
    """Return k-RR: each other value has the chance 1 / (k - 1 + e^epsilon)."""
    lie = 1 / (k - 1 + exp(epsilon))
    return KeepOrSpreadOperator(k, 1 - (k - 1) * lie, lie)


def likelihood(counts: np.ndarray, epsilons: Sequence[float] = ()) -> Likelihood:
    """Return what ldp.ibu maximises, for all runs at once: they have the same users, so the same channel.

    Args:
        counts: how often each level reported each value in each run, shape (runs, levels, values).
        epsilons: those of the levels, by default the paper's four.

    """
    users, k = counts[0].sum(axis=1), counts.shape[2]
    parts = [response(k, epsilon) for epsilon, n in zip(epsilons or levels(k), users, strict=True) if n]
    named, used = np.tile(np.arange(k), len(parts)), users > 0
    return Likelihood(stacked(parts, users[used] / users.sum()), counts[:, used].reshape(len(counts), -1), named=named)


@one_thread
def errors(con: DuckDBPyConnection, methods: dict[str, str], factor: float = 1) -> pl.DataFrame:
    """Return run, method, squared error and Jensen-Shannon divergence of every estimate; keep them in ``estimates``."""
    counts = counted(con)
    together = likelihood(counts, levels(counts.shape[2], factor))
    fits = {label: registry().estimator(text).fit(together).theta for label, text in methods.items()}
    tables = [pl.DataFrame({"run": np.arange(len(q)), "method": name, "q": q.tolist()}) for name, q in fits.items()]
    con.register("fitted", pl.concat(tables))
    con.execute("CREATE OR REPLACE TABLE estimates AS SELECT * FROM fitted")
    return frame(con, "SELECT run, method, len(p) * ldp.distance_between(p, q, 'mse') AS squared_error, ldp.distance_between(p, q, 'js_divergence') AS js_divergence "
                      "FROM estimates, truth")  # fmt: skip


@dataclass(frozen=True)
class Sweep:
    """The errors of all methods over the settings of a figure, and how they part into bias and variance.

    Those of the paper's methods at 1.2 times each epsilon are ``more`` and ``more_parts``.
    """

    rows: pl.DataFrame
    parts: pl.DataFrame
    more: pl.DataFrame
    more_parts: pl.DataFrame


def sweep(con: DuckDBPyConnection, paper: Reproduction, source: str, figure: str, axis: str,
          settings: dict[int, tuple[int, int, int, int]], full: bool) -> Sweep:  # fmt: skip
    """Run all methods over the settings of a figure, draw both distances, and list their means and deviations."""
    p, tables, runs = population(con, source), list[list[pl.DataFrame]](), 100 if full else 12
    for at, users in settings.items():
        simulated(con, p, users, runs, 1.2)
        more, more_parts = errors(con, METHODS, 1.2), bias_and_variance(con)
        simulated(con, p, users, runs)
        own, parts = errors(con, METHODS | FIVE), bias_and_variance(con)
        printed = errors(con, PRINTED)
        con.execute(f"DELETE FROM reports WHERE run >= {6 if full else 3}")  # those beyond the paper take longer
        own = pl.concat([own, printed, errors(con, BEYOND)])
        tables.append([each.with_columns(pl.lit(float(at)).alias(axis)) for each in (own, parts, more, more_parts)])
    swept = Sweep(*(pl.concat(each) for each in zip(*tables, strict=True)))
    for measure in ("squared_error", "js_divergence"):
        label = measure.replace("_", " ")
        paper.picture(f"{figure}, {source}: {label}", f"Mean of {runs} runs, K = {len(p)}.",
                      lines(swept.rows, axis, measure, "method", log=True))  # fmt: skip
        paper.table(f"{figure}, {source}: {label}", "Mean and, in brackets, standard deviation of a run.",
                    with_deviations(swept.rows, axis, measure))  # fmt: skip
    return swept


def judged(paper: Reproduction, figures: tuple[str, str], source: str, axis: str, swept: Sweep) -> None:
    """Check the claims of a figure about errors, and of another one about bias and variance."""
    errors_of, parts_of = figures
    paper.findings += tested(
        lambda rows: compare(errors_of, source, rows, axis), (swept.rows,), mutated((swept.rows,), (swept.more,))
    )
    paper.findings += beyond(errors_of, source, swept.rows, axis)
    paper.findings.append(by_equation_13(errors_of, source, swept.rows))
    paper.findings += tested(
        lambda parts: [decomposed(parts_of, source, parts, axis)], (swept.parts,), mutated((swept.parts,), (swept.more_parts,))
    )


def bias_and_variance(con: DuckDBPyConnection) -> pl.DataFrame:
    """Return the squared bias and the variance of every method, summed over the shares, from the table ``estimates``.

    The noise that the mean of the runs has is subtracted from the squared bias.
    """
    return frame(
        con,
        """
        SELECT method, sum((mean - share) ** 2 - variance / runs) AS bias, sum(variance) AS variance FROM (
            SELECT method, i, avg(q[i]) AS mean, var_samp(q[i]) AS variance, any_value(p[i]) AS share, count(*) AS runs
            FROM estimates, truth, LATERAL range(1, len(p) + 1) t(i) GROUP BY method, i
        ) GROUP BY method""",
    )


def with_deviations(rows: pl.DataFrame, axis: str, measure: str) -> pl.DataFrame:
    """Return one row for each method and one column for each setting: mean (standard deviation)."""
    summary = rows.group_by("method", axis, maintain_order=True).agg(
        mean=pl.col(measure).mean(), deviation=pl.col(measure).std()
    )
    cells = [f"{r['mean']:.4f} ({r['deviation']:.4f})" for r in summary.iter_rows(named=True)]
    settings = [f"{axis} = {at:.0f}" for at in summary[axis]]
    return summary.select("method", at=pl.Series(settings), cell=pl.Series(cells)).pivot(on="at", index="method", values="cell")


def thorough(full: bool, source: str) -> bool:
    """Return whether to repeat as often as the paper: with its own kind of data. The military stays a quick second look."""
    return full and source == "census"


def few(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 5: (N1, N2, N3) = (500, 500, 50), N4 from 0 to 50."""
    for source in SOURCES:
        whole = thorough(full, source)
        settings = {n: (500, 500, 50, n) for n in (range(0, 51, 10) if whole else (0, 20, 50))}
        swept = sweep(con, paper, source, "fig. 5", "N4", settings, whole)
        judged(paper, ("fig. 5", "fig. 13"), source, "N4", swept)
        certificate_of_mixed(con, paper, f"fig. 5, {source}")


def certificate_of_mixed(con: DuckDBPyConnection, paper: Reproduction, figure: str) -> None:
    """Add what is certified about the maximum over mixed levels, for one run."""
    diagnosis = frame(
        con,
        "SELECT unnest(ldp.diagnose({level: level, report: report}, getvariable('m'))), count(*) AS n FROM reports WHERE run = 0",
    )
    missing = diagnosis["gap"][0] * diagnosis["n"][0]
    paper.findings.append(
        Finding(f"{figure}, certificate", "none", f"at most {missing:.1e} of log-likelihood missing, unique: {diagnosis['unique'][0]}",
                "beyond the paper", "n times the gap bounds what any distribution could still gain")
    )  # fmt: skip


def more(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 6: N grows, N1 : N2 : N3 : N4 = 10 : 10 : 1 : 1."""
    for source in SOURCES if full else ["census"]:
        whole = thorough(full, source)
        settings = {22 * n: (10 * n, 10 * n, n, n) for n in ((5, 10, 20, 30, 50, 100, 200) if whole else (5, 50, 200))}
        swept = sweep(con, paper, source, "fig. 6", "N", settings, whole)
        judged(paper, ("fig. 6", "fig. 14"), source, "N", swept)
        n = min(settings)
        own, raised = (rows.filter(pl.col("N") == n) for rows in (swept.rows, swept.more))
        paper.findings += tested(
            lambda rows, source=source, n=n: [smallest(source, n, means(of_paper(rows)))], (own,), mutated((own,), (raised,))
        )


def strict(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figures 7, 12 and 15: N1 = 20,000 users with epsilon .1 hardly help; single shares where they are 500."""
    methods = {name: METHODS[name] for name in ("Uniform", "ObfDat", "EM", "Proposal")} | FIVE
    for source in SOURCES:
        p, parts = population(con, source), dict[float, list[pl.DataFrame]]({1: [], 1.2: []})
        whole = thorough(full, source)
        for n4 in (0, 20, 50) if whole else (20,):
            rows, largest = dict[float, tuple[pl.DataFrame, ...]](), dict[float, pl.DataFrame]()
            for factor in (1, 1.2):
                own = []
                for n1 in (500, 20_000):
                    simulated(con, p, (n1, 500, 50, n4), 100 if whole else 12, factor)
                    own.append(errors(con, methods, factor))
                    if (n1, n4) == (500, 20):
                        largest[factor] = regions(con)
                rows[factor] = tuple(own)
                parts[factor].append(bias_and_variance(con).with_columns(N4=pl.lit(float(n4))))
            if largest:
                paper.findings += tested(
                    lambda shares, source=source: [in_regions(source, shares)],
                    (largest[1],),
                    mutated((largest[1],), (largest[1.2],)),
                )
            paper.findings += tested(
                lambda few, many, source=source, n4=n4: [hardly_less(source, n4, means(few), means(many))],
                rows[1],
                mutated(rows[1], rows[1.2]),
            )
        whole_parts, raised_parts = ((pl.concat(parts[factor]),) for factor in (1, 1.2))
        paper.findings += tested(
            lambda parts, source=source: [decomposed("fig. 15", source, parts, "N4")],
            whole_parts, mutated(whole_parts, raised_parts),
        )  # fmt: skip


def regions(con: DuckDBPyConnection, count: int = 15) -> pl.DataFrame:
    """Return variance, maximum and frequency of zero of the estimates of the largest shares by EM, Proposal and a mutant."""
    return frame(
        con,
        f"""
        SELECT i, share, method, var_samp(q[i]) AS variance, max(q[i]) AS most, avg((q[i] < 1e-4)::DOUBLE) AS zero
        FROM estimates, (SELECT i, p[i] AS share FROM truth, LATERAL range(1, len(p) + 1) t(i) ORDER BY share DESC LIMIT {count})
        WHERE method IN ('EM', 'Proposal', 'EM after 5 steps') GROUP BY ALL ORDER BY share DESC""",
    )


def winners(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figures 8 to 10: EM and Proposal in the same runs, and the method with the smallest MSE; N1 = N4 = 0, over N2 and N3."""
    for source in SOURCES:
        p, cells, boxed = population(con, source), dict[str, list[dict[str, object]]](), []
        whole = thorough(full, source)
        for n2 in (0, 500, 1000, 2000) if whole else (0, 1000):
            for n3 in (0, 30, 60, 100, 200, 500) if whole else (0, 30, 60, 500):
                if n2 + n3:
                    at, (more, rows) = (
                        {"N2": n2, "N3": n3},
                        (reported(con, p, (0, n2, n3, 0), 100 if whole else 12, f) for f in (1.2, 1)),
                    )
                    for name, (own,) in {"": (rows,), **mutated((rows,), (more,))}.items():
                        cells.setdefault(name, []).append({**at, **best_and_tests(of_paper(own))})
                    boxed.append(rows.filter(pl.col("method").is_in(list(PAIR))).with_columns(N2=pl.lit(n2), N3=pl.lit(n3)))
        table = pl.DataFrame(cells.pop(""))
        largest = pl.concat(boxed).filter(pl.col("N2") == max(table["N2"]))
        paper.picture(
            f"fig. 8, {source}", f"Squared errors, N2 = {max(table['N2'])}.", boxes(largest, "N3", "squared_error", "method")
        )
        for figure, column, text in (("9", "r", "Correlation of the squared errors of EM and Proposal."),
                                     ("9", "p", "Paired t-test of EM and Proposal."), ("10", "best", "Smallest MSE of the six.")):  # fmt: skip
            paper.table(f"fig. {figure}, {source}: {column}", text,
                        table.with_columns(pl.col("N3").cast(str)).pivot(on="N3", index="N2", values=column))  # fmt: skip
        paper.findings += against_each(
            over_em(source, table), {name: over_em(source, pl.DataFrame(own)) for name, own in cells.items()}
        )


def reported(
    con: DuckDBPyConnection, p: np.ndarray, users: tuple[int, int, int, int], runs: int, factor: float
) -> pl.DataFrame:
    """Return the errors of the paper's methods, and of EM after five steps, at a multiple of each epsilon."""
    simulated(con, p, users, runs, factor)
    return errors(con, METHODS | FIVE, factor)


def mutated(frames: Frames, more: Frames) -> dict[str, Frames]:
    """Return the frames with each mutant of the methods; ``more`` are those with 1.2 times each epsilon."""
    return mutants_of(frames, IN_PLACE, "method") | {"epsilon x 1.2": more}


def of_paper(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the paper's methods."""
    return rows.filter(pl.col("method").is_in(list(METHODS)))


def best_and_tests(rows: pl.DataFrame) -> dict[str, object]:
    """Return the method with the smallest MSE, and how EM's and Proposal's errors in the same runs relate."""
    mean, both = means(rows), rows.pivot(on="method", index="run", values="squared_error")
    em, proposal = both["EM"].to_numpy(), both["Proposal"].to_numpy()
    return {"best": min(mean, key=lambda name: mean[name]), "EM": mean["EM"], "Proposal": mean["Proposal"],
            "r": round(float(np.corrcoef(em, proposal)[0, 1]), 3), "p": float(f"{ttest_rel(proposal, em).pvalue:.1e}")}  # fmt: skip


# --- what the correction gains elsewhere ---

CORRECTIONS = {name: {**METHODS, **BEYOND}[name] for name in ("EM", "our default", "(24) as printed", "Proposal")}
MIXED = {0.1: 500, 2: 500, log(336): 50}
PROBLEMS = [(30, {2: 60}), (100, {2: 500}), (30, {1: 300}), (336, MIXED), (336, {e: n // 10 for e, n in MIXED.items()})]


def corrections(_: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """The options of ldp.corrected_em against EM in other problems, in which shares fall slowly or lie anywhere."""
    for k, users in PROBLEMS:
        for law, p in (
            ("shares ~ 1 / rank", 1 / np.arange(1.0, k + 1)),
            ("shares drawn", np.random.default_rng().exponential(size=k)),
        ):
            paper.findings.append(corrected(f"K = {k}, {law}", users, errors_of(p / p.sum(), users, 40 if full else 12)))


def errors_of(p: np.ndarray, users: Mapping[float, int], runs: int) -> dict[str, np.ndarray]:
    """Return the squared errors of EM and of each correction in each run, of so many users at each epsilon."""
    return {name: ((q - p) ** 2).sum(axis=1) for name, q in estimates_of(p, users, runs, CORRECTIONS).items()}


def estimates_of(p: np.ndarray, users: Mapping[float, int], runs: int, methods: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return the estimates of each method in each run, of so many users at each epsilon."""
    laws = [response(len(p), epsilon).forward(p) for epsilon in users]
    drawn = [np.random.default_rng().multinomial(n, law / law.sum(), runs) for law, n in zip(laws, users.values(), strict=True)]
    together = likelihood(np.stack(drawn, axis=1).astype(float), list(users))
    return {name: registry().estimator(text).fit(together).theta for name, text in methods.items()}


POWERS = {"as they are": 1, "to the power 1/2": 1 / 2, "to the power 1/4": 1 / 4}
FLATTENED = {name: {**METHODS, **BEYOND}[name] for name in ("EM", "Uniform", "Proposal", "our default")}


def flattened(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """What makes Proposal better or worse than EM: the same populations with smaller large shares, and without empty cells."""
    census, military = (population(con, source) for source in SOURCES)
    for label, whole in (("census", census), ("census, cells with people", census[census > 0]), ("military", military)):
        for shares, power in POWERS.items():
            p = whole**power  # empty cells stay empty
            p /= p.sum()
            fits = estimates_of(p, {0.1: 500, 2: 500, log(len(p)): 50}, 20 if full else 6, FLATTENED)
            squared = {name: ((q - p) ** 2).sum(axis=1) for name, q in fits.items()}
            divergences = {name: jensen_shannon(q, p) for name, q in fits.items()}
            paper.findings.append(flatter(f"{label}, shares {shares}", p, squared, divergences))


def jensen_shannon(q: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return the Jensen-Shannon divergence of each row of shares from p."""
    middle = (q + p) / 2
    return (rel_entr(q, middle) + rel_entr(p, middle)).sum(axis=1) / 2


# --- proposition 1 ---

CHANNEL, SHARE = np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]]), 0.35  # two values, three reports; the share of the first value


def squared_errors(n: int) -> tuple[float, float]:
    """Return the mean squared errors of EM and Proposal with alpha 1 under proposition 1's assumptions, over all samples of n.

    With two values there is one unknown, so that scores have mean 0, as the proposition wants; no sample is left out.
    """
    first, second = (grid.ravel() for grid in np.meshgrid(np.arange(n + 1), np.arange(n + 1)))
    inside = first + second <= n
    counts = np.stack([first[inside], second[inside], n - (first + second)[inside]], axis=1)
    difference, expected = CHANNEL[0] - CHANNEL[1], SHARE * CHANNEL[0] + (1 - SHARE) * CHANNEL[1]
    likelihood = np.exp(gammaln(n + 1) - gammaln(counts + 1).sum(axis=1) + counts @ np.log(expected))
    low, high = np.full(len(counts), -0.19), np.full(len(counts), 1.19)  # every report stays possible
    for _ in range(60):
        middle = (low + high) / 2
        rising = (counts * difference / (CHANNEL[1] + middle[:, None] * difference)).sum(axis=1) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    score = difference / expected
    inverse = -1 / (expected @ score**2)
    error = counts @ ((expected @ score**2 - score**2) * inverse * score - expected @ score**3 * (inverse * score) ** 2)
    corrected = low - inverse * error / n**2
    return float(likelihood @ (low - SHARE) ** 2), float(likelihood @ (corrected - SHARE) ** 2)


def first_order(n: int) -> float:
    """Return b_-1 of (35): the inverse of the information of n reports."""
    difference, expected = CHANNEL[0] - CHANNEL[1], SHARE * CHANNEL[0] + (1 - SHARE) * CHANNEL[1]
    return float(1 / (n * (difference**2 / expected).sum()))


def proposition(_: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Proposition 1: what is left of Proposal's MSE beyond b_-1 falls as N^-2."""
    sizes = (100, 200, 400) if full else (50, 100, 200)
    paper.findings.append(second_order({n: (*squared_errors(n), first_order(n)) for n in sizes}))
