"""ElSalamouny, Palamidessi, "Full convergence of the iterative Bayesian update", 2020: counter-examples and figures 2, 8-14."""

from __future__ import annotations

from itertools import product

import altair as alt
import numpy as np
import polars as pl
from duckdb import DuckDBPyConnection
from reproduction import (
    Finding,
    Frames,
    Reproduction,
    bars,
    boxes,
    certificate,
    frame,
    maps,
    mutants_of,
    names,
    people,
    perturbed,
    run,
    shared,
    tested,
)
from update_verdicts import (
    BEYOND_BORDER,
    DEGREE,
    NORTH,
    SOUTH,
    alike,
    almost_identical,
    by_epsilon,
    checkins,
    finds,
    laplace_better,
    nearest,
    nearest_of_three,
    nearly_the_same,
    one_runs,
    projected_better,
)

SQL = """\
CREATE MACRO city() AS ldp.planar_geometric(1, 24, 16, side := 0.5);

CREATE TABLE reports AS SELECT run, ldp.perturb(cell, city()) AS cell FROM people, range(100) t(run);

SELECT run, ldp.ibu(cell, city()), ldp.inv_n(cell, city()), ldp.inv_p(cell, city()) FROM reports GROUP BY run;"""

ESTIMATORS = {name: f"ldp.{name}(counts, m())" for name in ("inv_n", "inv_p", "ibu")}
STOPPED = "ldp.ibu(counts, m(), stop := 600)"  # about where TV is least on the Gowalla data
OWN_RULE = "ldp.ibu(counts, m(), stop := 'paper', tolerance := 1e-3)"
FIVE = "ldp.ibu(counts, m(), stop := 5)"  # a mutant
EARLY = OWN_RULE.replace("1e-3", "1e-2")
MUTANT = {"EM after 5 steps": FIVE}
IN_PLACE = {  # of an estimator, another one
    "EM after 5 steps": {"ibu": "EM after 5 steps"},
    "INV-P in place of IBU": {"ibu": "inv_p"},
    "IBU in place of INV-P": {"inv_p": "ibu"},
}
RULES = {"ibu": STOPPED, "ibu, own rule": OWN_RULE, "ibu, maximum": ESTIMATORS["ibu"]}
BEYOND = {
    "certified maximum": "ldp.ibu(counts, m())",
    "ibu, held out": "ldp.ibu(counts, m(), stop := 'held_out')",
    "empirical Bayes": "ldp.empirical_bayes(counts, m())",
    "best": "ldp.best(counts, m())",
}
MEANT = {
    "ibu, held out": "the reports themselves choose where to stop",
    "empirical Bayes": "it ignores neighbours: made for many values in no order",
    "best": "the mean of those that predict held-out reports best",
}
TV = "ldp.distance_between(p, q)"
FAR = 20  # runs that EMD is computed in: each is a linear programme
EMD = f"CASE WHEN run < {FAR} THEN ldp.distance_between(p, q, 'emd', ldp.planar_geometric(1, 24, 16, side := 0.5)) END"  # k-RR itself has no grid
MEASURED = {"tv": "TV to the original", "emd": f"EMD to the original, in at most {FAR} runs"}


DIAGRAM, NOTATION = "a diagram: nothing is measured", "a list of symbols"
CONTENTS = {f"fig. {i}": DIAGRAM if i in (3, 6, 7) else "" for i in range(1, 15)} | {"table I": NOTATION, "table II": NOTATION}


def reproduce(full: bool) -> Reproduction:
    """Run all parts."""
    paper = Reproduction(
        "Iterative Bayesian update",
        "ElSalamouny and Palamidessi, Full convergence of the iterative Bayesian update and applications to mechanisms for "
        "privacy protection, 2020.",
        SQL,
        CONTENTS,
    )
    return run(paper, [counter_examples, linear, borders, gowalla, levels, k_rr, rappor], full)


# --- section III: what had been believed about the likelihood, but is false ---

FLAT = "ldp.matrix([1, 2, 3], [['1/2', '1/3', '1/6'], ['1/3', '1/3', '1/3'], ['1/6', '1/3', '1/2']])"
PEAKED = "ldp.matrix([1, 2, 3], [['1/2', '1/4', '1/4'], ['1/4', '1/2', '1/4'], ['1/4', '1/4', '1/2']])"


def counter_examples(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:  # noqa: ARG001  # nothing to repeat
    """III.A-D: the maximum need not be unique, nor the truth, nor stationary, nor inside."""
    flat, peaked = [1, 2, 3], [1, 2, 2, 3]
    diagnosis = frame(con, f"SELECT unnest(ldp.diagnose(r, {FLAT})) FROM (SELECT unnest({flat}) AS r)")
    ranges = [(round(r["low"], 9), round(r["high"], 9)) for r in diagnosis["identified"][0]]
    paper.findings.append(
        Finding.checked(
            "III.A, fig. 4", "infinitely many maxima, all with theta_1 = theta_3",
            f"unique: {diagnosis['unique'][0]}; shares lie in {ranges}", not diagnosis["unique"][0] and ranges[1] == (0.0, 1.0),
        )
    )  # fmt: skip
    starts = {"near (0, 1, 0)": [0.01, 0.98, 0.01], "near (1/2, 0, 1/2)": [0.49, 0.02, 0.49]}
    ends = {
        name: frame(con, f"SELECT unnest(ldp.ibu(r, {FLAT}, stop := 100, start := {start}), recursive := true) "
                         f"FROM (SELECT unnest({flat}) AS r)")["estimate"].to_list()
        for name, start in starts.items()
    }  # fmt: skip
    stay = all(np.allclose(end, starts[name], atol=1e-12) for name, end in ends.items())
    paper.findings.append(
        Finding.checked("III.B", "IBU stays wherever theta_1 = theta_3", "100 steps leave both starts where they are", stay)
    )
    estimate = frame(con, f"SELECT unnest(ldp.ibu(r, {PEAKED}), recursive := true) FROM (SELECT unnest({peaked}) AS r)")
    diagnosis = frame(con, f"SELECT unnest(ldp.diagnose(r, {PEAKED})) FROM (SELECT unnest({peaked}) AS r)")
    theta = estimate["estimate"].round(6).to_list()
    paper.findings.append(
        Finding.checked(
            "III.C-D, fig. 5", "the only maximum is (0, 1, 0), on the border and not stationary",
            f"{theta}, unique: {diagnosis['unique'][0]}, gap {diagnosis['gap'][0]:.1e}", theta == [0, 1, 0] and diagnosis["unique"][0],
        )
    )  # fmt: skip
    surfaces = pl.concat(
        [surface("figure 4: reports 1, 2, 3", FLAT_ROWS, flat), surface("figure 5: 1, 2, 2, 3", PEAKED_ROWS, peaked)]
    )
    chart = (
        alt.Chart(surfaces)
        .mark_rect()
        .encode(
            x=alt.X("theta_1:O", axis=alt.Axis(labelOverlap=True)),
            y=alt.Y("theta_3:O", sort="descending", axis=alt.Axis(labelOverlap=True)),
            color=alt.Color("log_likelihood:Q", title=None),
        )
        .properties(width=230, height=230)
        .facet(facet=alt.Facet("panel:N", title=None), columns=2)
        .resolve_scale(color="independent")
    )
    paper.picture("The likelihood (section III)", "Left a ridge: every point with theta_1 = theta_3 is a maximum.", chart)


FLAT_ROWS = np.array([[3, 2, 1], [2, 2, 2], [1, 2, 3]]) / 6
PEAKED_ROWS = np.array([[2, 1, 1], [1, 2, 1], [1, 1, 2]]) / 4


def surface(panel: str, rows: np.ndarray, reports: list[int]) -> pl.DataFrame:
    """Return the log-likelihood over (theta_1, theta_3)."""
    steps = np.round(np.linspace(0, 1, 26), 2)
    points = [(a, c) for a, c in product(steps, steps) if a + c <= 1 + 1e-9]
    heights = [sum(np.log(np.array([a, 1 - a - c, c]) @ rows[:, z - 1]) for z in reports) for a, c in points]
    return pl.DataFrame(
        {"panel": [panel] * len(points), "theta_1": [p[0] for p in points], "theta_3": [p[1] for p in points],
         "log_likelihood": heights}
    )  # fmt: skip


# --- what the other parts share ---


def distances(con: DuckDBPyConnection, estimators: dict[str, str], **measured: str) -> pl.DataFrame:
    """Return run, estimator and distances to the truth, from the table ``counted``."""
    tables = []
    for name, call in estimators.items():
        con.execute(
            f"CREATE OR REPLACE TABLE estimates AS SELECT run, list_transform({call}, lambda e: e.estimate) AS q FROM counted"
        )
        columns = ", ".join(f"{distance} AS {column}" for column, distance in measured.items())
        tables.append(frame(con, f"SELECT run, '{name}' AS estimator, {columns} FROM estimates, truth"))
    return pl.concat(tables)


def shares(con: DuckDBPyConnection, call: str, panel: str) -> pl.DataFrame:
    """Return value, share and panel of the first run's estimate."""
    rows = frame(con, f"SELECT unnest({call}, recursive := true) FROM counted WHERE run = 0")
    return rows.select(pl.col("value").cast(pl.Int64), share=pl.col("estimate"), panel=pl.lit(panel))


def truth(con: DuckDBPyConnection) -> pl.DataFrame:
    """Return value, share and panel of the truth."""
    rows = frame(con, "SELECT generate_subscripts(p, 1)::BIGINT - 1 AS value, unnest(p) AS share FROM truth")
    return rows.with_columns(panel=pl.lit("original"))


def means(rows: pl.DataFrame, column: str) -> dict[str, float]:
    """Return the mean distance of every estimator."""
    return dict(rows.group_by("estimator").agg(pl.col(column).mean()).iter_rows())


def beyond(con: DuckDBPyConnection, paper: Reproduction, figure: str, ibu: float, stopped: str = "") -> None:
    """Add what the certificate shows for these reports, and how close the estimators come that the paper does not have."""
    mean = means(distances(con, BEYOND, tv=TV), "tv")
    certificate(con, paper, f"{figure}, certified maximum", f"TV {mean['certified maximum']:.4f}; ")
    for name in ("ibu, held out", "empirical Bayes", "best"):
        paper.findings.append(
            Finding(f"{figure}, {name}", "no such method", f"TV {mean[name]:.4f}; IBU{stopped} {ibu:.4f}", "beyond the paper",
                    MEANT[name])
        )  # fmt: skip


# --- section IX ---


def linear(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """IX.A, fig. 2: truncated geometric noise, epsilon .1, on 0 .. 99, 100,000 people."""
    source = np.random.default_rng()
    originals = {
        "binomial": np.bincount(source.binomial(99, 0.5, 100_000), minlength=100),
        "uniform on 20..39": np.bincount(source.integers(20, 40, 100_000), minlength=100),
    }
    for name, counts in originals.items():
        people(con, counts.tolist())
        runs, figure = 20 if full else 3, f"fig. 2, {name}"
        perturbed(con, "ldp.truncated_geometric(0.12, 0, 99)", runs)
        mutants = {"epsilon x 1.2": means(distances(con, ESTIMATORS, tv=TV), "tv")}
        perturbed(con, "ldp.truncated_geometric(0.1, 0, 99)", runs)
        mean = means(distances(con, ESTIMATORS, tv=TV), "tv")
        mutants["EM after 5 steps"] = mean | means(distances(con, {"ibu": FIVE}, tv=TV), "tv")
        mutants["the plain reports"] = mean | {"ibu": means(noisy(con, 100), "tv")["reports"]}
        turned = {mutant: nearest_of_three(figure, own) for mutant, own in mutants.items()}
        paper.findings.append(nearest_of_three(figure, mean).against(turned))
        beyond(con, paper, f"fig. 2, {name}", mean["ibu"])
        calls = ESTIMATORS | {"ibu, held out": BEYOND["ibu, held out"]}
        panels = [truth(con), *(shares(con, call, label) for label, call in calls.items())]
        paper.picture(
            f"Figure 2: {name}", "Truncated geometric mechanism, epsilon 0.1, 100,000 people.", bars(pl.concat(panels))
        )


def san_francisco(con: DuckDBPyConnection, named: bool = False) -> None:
    """Load the check-ins of Gowalla as people in cells 0 .. 383, or in cells with names only."""
    path = shared("gowalla_sf_grid_24x16.csv")
    rows = con.read_csv(str(path)).pl().sort("cell")
    people(con, rows["n"].to_list(), named)


def grid(mechanism: str, epsilon: float) -> str:
    """Return a mechanism on the 24 x 16 cells of half a kilometre."""
    if mechanism == "exponential":
        return f"ldp.exponential({epsilon}, range(384), columns := 24, side := 0.5)"
    return f"ldp.{mechanism}({epsilon}, 24, 16, side := 0.5)"


OTHERS = (0.8, 1.25)  # epsilons at which the paper's numbers should not agree


def noisy(con: DuckDBPyConnection, values: int = 384) -> pl.DataFrame:
    """Return the distance of the plain reports, whole numbers from 0, to the truth."""
    con.execute(f"CREATE OR REPLACE TABLE estimates AS SELECT run, list_transform(range({values}), "
                "lambda c: coalesce(counts[c], 0) / list_sum(map_values(counts))) AS q FROM counted")  # fmt: skip
    return frame(con, f"SELECT run, 'reports' AS estimator, {TV} AS tv FROM estimates, truth")


def ninth(con: DuckDBPyConnection, epsilon: float, runs: int) -> pl.DataFrame:
    """Return run, estimator and total variation of figure 9, at an epsilon per km."""
    perturbed(con, grid("planar_geometric", epsilon), runs)
    return pl.concat([noisy(con), distances(con, RULES | {name: ESTIMATORS[name] for name in ("inv_n", "inv_p")}, tv=TV)])


def borders(con: DuckDBPyConnection, paper: Reproduction, _: bool) -> None:
    """Figures 1 and 8: the check-ins, from Gowalla_SF_(No head).csv of github.com/blitzwas/PRIVIC (latitude, longitude)."""
    path, strip = shared("gowalla_sf_checkins.csv"), BEYOND_BORDER / DEGREE
    found = frame(
        con,
        f"""SELECT count(*)::BIGINT AS total, 384 - count(DISTINCT (
        least(15, floor((lat - {SOUTH}) / ({NORTH} - {SOUTH}) * 16)), least(23, floor((long + 122.5153) / .1364 * 24))
    )) AS empty, count(*) FILTER (lat > {NORTH} - {strip}) AS strip FROM read_csv('{path}', header = false, names = ['lat', 'long'])""",
    )
    paper.findings += [checkins(label, **found.row(0, named=True)) for label in ("fig. 1", "fig. 8")]


def gowalla(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """IX.B, fig. 8-9: planar geometric noise, epsilon 1 per km."""
    san_francisco(con)
    runs = 100 if full else 42
    other = [ninth(con, epsilon, runs) for epsilon in OTHERS]
    rows = ninth(con, 1, runs)
    paper.findings.extend(one_runs(rows, other))
    mutants = mutants_of((rows,), IN_PLACE, "estimator") | {f"epsilon x {OTHERS[1]}": (other[1],)}
    paper.findings += tested(
        lambda rows: [almost_identical(*(means(rows, "tv")[name] for name in ("inv_n", "inv_p")))], (rows,), mutants
    )
    paper.picture("Figure 9, repeated", f"Total variation to the original in {runs} runs, where the paper shows one.",
                  boxes(rows.with_columns(epsilon=pl.lit(1.0)), "epsilon", "tv", "estimator"))  # fmt: skip
    con.execute(f"DELETE FROM counted WHERE run >= {runs // 6}")  # the slower estimators see a sixth of the runs
    beyond(con, paper, "fig. 9", float(rows.filter(pl.col("estimator") == "ibu")["tv"].mean()), " after 600 steps")
    labels = {"INV-N": ESTIMATORS["inv_n"], "INV-P": ESTIMATORS["inv_p"], "IBU, 600 steps": STOPPED,
              "IBU, certified maximum": ESTIMATORS["ibu"], "IBU, held out": BEYOND["ibu, held out"]}  # fmt: skip
    panels = [truth(con), *(shares(con, call, label) for label, call in labels.items())]
    paper.picture(
        "Figures 8 and 9: San Francisco", "Planar geometric mechanism, epsilon 1 per km.", maps(pl.concat(panels), 24)
    )


def levels(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """IX.C, fig. 10-11: three mechanisms over a range of epsilon."""
    san_francisco(con)
    epsilons = [0.2, 0.5, 1, 2, 3, 4, 5, 6] if full else [0.5, 1, 2, 4]
    figure = {"planar_geometric": "fig. 10", "planar_laplace": "fig. 11a", "exponential": "fig. 11b"}
    error, tried = {}, dict[str, dict[str, Frames]]()
    for mechanism, label in figure.items():
        measured = {"tv": TV, "emd": EMD} if mechanism == "planar_geometric" else {"tv": TV}
        tables = dict[float, list[pl.DataFrame]]()
        for epsilon, (factor, runs) in product(epsilons, ((1, 100 if full else 6), (1.2, FAR if full else 6))):
            perturbed(con, grid(mechanism, round(factor * epsilon, 6)), runs)
            rows = distances(con, ESTIMATORS | {"ibu": OWN_RULE} | MUTANT, **measured)
            tables.setdefault(factor, []).append(rows.with_columns(epsilon=pl.lit(float(epsilon))))
        rows, more = (pl.concat(each) for each in tables.values())
        tried[mechanism] = mutants_of((rows,), IN_PLACE, "estimator") | {"epsilon x 1.2": (more,)}
        error[mechanism] = rows
        for column in measured:
            name = f"{label}{'b' if column == 'emd' else 'a' if 'emd' in measured else ''}"
            paper.findings += tested(
                lambda rows, name=name, column=column: [nearest(f"{name}, {column.upper()}", rows, column)],
                (rows,),
                tried[mechanism],
            )
            paper.picture(
                f"{name}: {mechanism}", f"{MEASURED[column]}.", boxes(rows.drop_nulls(column), "epsilon", column, "estimator")
            )
    near = tried["planar_geometric"]
    paper.findings += tested(lambda rows: [projected_better(by_epsilon(rows, "emd"))], (error["planar_geometric"],), near)
    both = {name: (*own, *tried["exponential"][name]) for name, own in tried["planar_laplace"].items()}
    both["each in place of the other"] = (error["exponential"], error["planar_laplace"])
    paper.findings += tested(
        lambda laplace, exponential: [laplace_better(by_epsilon(laplace, "tv"), by_epsilon(exponential, "tv"))],
        (error["planar_laplace"], error["exponential"]), both,
    )  # fmt: skip


def k_rr(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """IX.D, fig. 12: k-RR on the same data."""
    san_francisco(con, named=True)
    tables = dict[float, list[pl.DataFrame]]()
    calls = ESTIMATORS | {"ibu": OWN_RULE, "ibu, maximum": ESTIMATORS["ibu"], "ibu, 1e-2": EARLY} | MUTANT
    for epsilon, (factor, runs) in product(
        [10, 8, 6, 4, 2, 1] if full else [10, 6, 4, 2], ((1.2, FAR if full else 3), (1, 100 if full else 3))
    ):
        perturbed(con, f"ldp.krr({round(factor * epsilon, 6):g}, {names(384)})", runs)
        tables.setdefault(factor, []).append(distances(con, calls, tv=TV, emd=EMD).with_columns(epsilon=pl.lit(float(epsilon))))
    more, rows = (pl.concat(each) for each in tables.values())
    tv = by_epsilon(rows, "tv")
    mutants = mutants_of((rows,), IN_PLACE, "estimator") | {"epsilon x 1.2": (more,)}
    paper.findings += tested(lambda rows: alike(by_epsilon(rows, "tv"), by_epsilon(rows, "emd")), (rows,), mutants)
    for column, text in MEASURED.items():
        paper.picture(
            f"Figure 12: k-RR, {column.upper()}", f"{text}.", boxes(rows.drop_nulls(column), "epsilon", column, "estimator")
        )
    beyond(con, paper, f"fig. 12, epsilon {tv['epsilon'][0]:g}", tv["ibu, maximum"][0])  # the last that was perturbed


def rappor(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """IX.E, fig. 13-14: RAPPOR on ten values, 100,000 people."""
    source = np.random.default_rng()
    originals = {
        "binomial": np.bincount(source.binomial(9, 0.5, 100_000), minlength=10),
        "uniform on 3..6": np.bincount(source.integers(3, 7, 100_000), minlength=10),
    }
    for name, counts in originals.items():
        people(con, counts.tolist())
        tables = []
        for epsilon in [0.1, 0.5, 1, 2, 3] if full else [0.5, 2]:
            perturbed(con, f"ldp.rappor({epsilon}, range(10))", 100 if full else 6)
            if epsilon == 0.5:
                panels = [truth(con), shares(con, ESTIMATORS["ibu"], "IBU")]
                tried = {"ibu": ESTIMATORS["ibu"], "EM after 5 steps": FIVE, "INV-N": ESTIMATORS["inv_n"]}
                mean = means(distances(con, tried, tv=TV), "tv")
                tv = mean.pop("ibu")
                perturbed(con, "ldp.rappor(0.6, range(10))", 100 if full else 6)
                mean["epsilon x 1.2"] = means(distances(con, {"ibu": ESTIMATORS["ibu"]}, tv=TV), "tv")["ibu"]
                perturbed(con, f"ldp.rappor({epsilon}, range(10))", 100 if full else 6)
                paper.findings.append(finds(name, tv).against({mutant: finds(name, own) for mutant, own in mean.items()}))
                paper.picture(f"Figure 13: {name}", "RAPPOR, epsilon 0.5, 100,000 people.", bars(pl.concat(panels)))
            tried = ESTIMATORS | {"ibu, 5 steps": FIVE}
            tables.append(distances(con, tried, tv=TV).with_columns(epsilon=pl.lit(float(epsilon))))
        rows = pl.concat(tables)
        mean = by_epsilon(rows, "tv")
        early = {"EM after 5 steps": nearly_the_same(name, rows, "ibu, 5 steps")}
        paper.findings.append(nearly_the_same(name, rows).against(early))
        beyond(con, paper, f"fig. 14, {name}, epsilon {mean['epsilon'][-1]:g}", mean["ibu"][-1])
        paper.picture(f"Figure 14: {name}", "Total variation to the original.", boxes(rows, "epsilon", "tv", "estimator"))
