"""Biswas, Palamidessi, "PRIVIC", PETS 2024: figures 1 to 3 and 6 to 10, tables 2 and 3, entropies.

Distances count sides of cells (half a kilometre), as in the paper's code.
"""

from __future__ import annotations

from functools import partial
from math import sqrt
from typing import NamedTuple

import numpy as np
import polars as pl
from duckdb import DuckDBPyConnection
from privic_cities import BAY, PARIS, UNIFORM, City, load
from privic_mechanism import against_laplace, elastic, entropies
from reproduction import Finding, Reproduction, frame, lines, maps, refusal, run

SQL = """\
SET VARIABLE m = ldp.privic_start(1, range(384), columns := 24);

CREATE TABLE reports AS SELECT ldp.perturb(value, getvariable('m')) AS cell FROM people;
CREATE TABLE step AS SELECT unnest(ldp.privic_step(cell, getvariable('m'))) FROM reports;

SET VARIABLE m = (SELECT "next" FROM step);  -- and so on"""
WITHIN = 4.5  # standard deviations between our rounds and the paper's, for the cycle that deviates most


CONTENTS = {f"fig. {i}": "" for i in range(1, 11)} | {
    "fig. 4": "a diagram of the duality: nothing is measured; the tests compare Blahut-Arimoto with algorithm 2",
    "fig. 5": "a drawing of a simplex with a mesh: nothing is measured",
    "table 1": "a list of symbols",
    "table 2": "",
    "table 3": "",
}


def reproduce(full: bool) -> Reproduction:
    """Run all parts."""
    paper = Reproduction(
        "PRIVIC",
        "Biswas and Palamidessi, PRIVIC: a privacy-preserving method for incremental collection of location data, 2024.",
        SQL,
        CONTENTS,
    )
    parts = [partial(part, city=city) for part in (data, elastic, against_laplace, cycles, levels) for city in (PARIS, BAY)]
    return run(paper, [*parts, partial(entropies, city=BAY)], full)


def data(con: DuckDBPyConnection, paper: Reproduction, _: bool, city: City) -> None:
    """Figure 6, and row 1 of the tables: the distance from equal shares to the truth."""
    counts = load(con, city)
    total = sum(counts)
    paper.findings.append(checkins(city, total))
    truth = frame(
        con, "SELECT generate_subscripts(p, 1)::BIGINT - 1 AS value, unnest(p) AS share, 'check-ins' AS panel FROM truth"
    )
    paper.picture(f"Figure 6: {city.name}", "Shares of the cells.", maps(truth, city.columns))
    sql = f"SELECT ldp.distance_between(p, list_transform(range({city.cells}), lambda c: 1 / {city.cells}), 'emd', {city.laplace(1)}) AS d FROM truth"
    paper.findings.append(first_row(city, total, frame(con, sql)["d"][0]))


def checkins(city: City, total: int) -> Finding:
    """Return whether the data are those of section 3."""
    claimed, later = city.checkins
    return Finding.checked(f"fig. 6, {city.name}", f"{claimed:,} check-ins (section 3)", f"{total:,}", total == claimed,
                           note=f"section 7 counts {later:,}")  # fmt: skip


def first_row(city: City, total: int, ours: float) -> Finding:
    """Return whether row 1 agrees: to all digits, or within what the people can do who are in the paper but not in the file."""
    published, later = UNIFORM[city.name], city.checkins[1]
    exact = round(ours, 5) == published
    limit = (later - total) / later * city.away(0, city.cells - 1)
    why = (f"section 7 counts {later - total} people more than the published file: they could move the distance by {limit:.4f}, "
           f"and it differs by {abs(ours - published):.5f}")  # fmt: skip
    return Finding.checked(f"{city.figures['table']}, row 1", f"{published}", f"{ours:.5f}", abs(ours - published) <= limit,
                           why, "to all digits" if exact else why)  # fmt: skip


# --- section 7 ---


class Round(NamedTuple):
    """The distances to the truth after every cycle, those of the raw reports of the cycle, and the last estimate."""

    distances: list[float]
    raw: list[float]
    estimate: pl.DataFrame


def round_of(con: DuckDBPyConnection, city: City, beta: float, count: int) -> Round:
    """Run so many cycles."""
    con.execute(f"SET VARIABLE m = ldp.privic_start({beta}, range({city.cells}), columns := {city.columns}, "
                f"iterations := {city.blahut_arimoto})")  # fmt: skip
    distances, raw = [], []
    for _ in range(count):
        con.execute("CREATE OR REPLACE TABLE reports AS SELECT ldp.perturb(value, getvariable('m')) AS cell FROM people")
        con.execute("SET VARIABLE drawn = getvariable('m')")
        con.execute("CREATE OR REPLACE TABLE step AS SELECT unnest(ldp.privic_step(cell, getvariable('m'), "
                    f"stop := {city.ibu})) FROM reports")  # fmt: skip
        con.execute('SET VARIABLE m = (SELECT "next" FROM step)')
        for found, estimate in (
            (distances, "theta FROM step"),
            (raw, "ldp.observed(cell, getvariable('drawn')) AS theta FROM reports"),
        ):
            sql = ("SELECT ldp.distance_between(list_transform(theta, lambda e: e.estimate), (SELECT p FROM truth), 'emd', getvariable('m')) "
                   f"AS d FROM (SELECT {estimate})")  # fmt: skip
            found.append(frame(con, sql)["d"][0])
    return Round(distances, raw, frame(con, "SELECT unnest(theta, recursive := true) FROM step"))


def cycles(con: DuckDBPyConnection, paper: Reproduction, full: bool, city: City) -> None:
    """Tables 2 and 3 and figures 7 to 9: cycle by cycle."""
    load(con, city)
    points, last, last_raw = [], {}, {}
    panels = [
        frame(con, "SELECT generate_subscripts(p, 1)::BIGINT - 1 AS value, unnest(p) AS share, 'original' AS panel FROM truth")
    ]
    for beta, published in city.published.items():
        raised = np.array([round_of(con, city, 1.2 * beta, len(published)).distances])
        runs = [round_of(con, city, beta, len(published)) for _ in range(5 if full else 2)]
        ours, raw = np.array([one.distances for one in runs]), np.array([one.raw for one in runs])
        mutants = {"the raw reports of each cycle": raw, "beta x 1.2": raised}
        for decide, figure in ((in_table, "table"), (falling, "cycles")):
            label = f"{city.figures[figure]}, beta {beta}"
            tried = {name: decide(label, published, own) for name, own in mutants.items()}
            paper.findings.append(decide(label, published, ours).against(tried))
        for name, values in (("here", ours.mean(axis=0)), ("paper", published.mean(axis=1))):
            points += [{"cycle": i + 1, "EMD": d, "line": f"beta {beta}, {name}"} for i, d in enumerate(values)]
        after(con, paper, f"{city.figures['table']}, beta {beta}", float(ours.mean(axis=0)[-1]))
        last[beta], last_raw[beta] = ours[:, -1], raw[:, -1]
        estimate = runs[0].estimate.select(
            pl.col("value").cast(pl.Int64), share=pl.col("estimate"), panel=pl.lit(f"estimated, beta {beta}")
        )
        panels.append(estimate)
    exchanged = {1: last[0.5], 0.5: last[1]}
    tried = {"the raw reports of the last cycle": last_raw, "each beta in place of the other": exchanged}
    paper.findings.append(
        better_with_one(city, last).against({name: better_with_one(city, own) for name, own in tried.items()})
    )
    paper.picture(f"Figures 8 and 9: {city.name}, cycle by cycle", "Earth mover's distance to the truth.",
                  lines(pl.DataFrame(points), "cycle", "EMD", "line"))  # fmt: skip
    paper.picture(f"Figure 7: the last estimates, {city.name}", "Shares of the cells.", maps(pl.concat(panels), city.columns))


def deviations(published: np.ndarray, ours: np.ndarray) -> np.ndarray:
    """Return by how many standard deviations our mean differs from the paper's, cycle by cycle.

    The deviation of a round, relative to the mean, is pooled over all cycles of the paper's five rounds.
    """
    mean = published.mean(axis=1)
    spread = sqrt((published.var(axis=1, ddof=1) / mean**2).mean() * (1 / published.shape[1] + 1 / len(ours)))
    return np.asarray((ours.mean(axis=0) / mean - 1) / spread)


def listed(values: np.ndarray) -> str:
    """Write distances as text."""
    return ", ".join(f"{value:.3f}" for value in values)


def in_table(figure: str, published: np.ndarray, ours: np.ndarray) -> Finding:
    """Return whether a table agrees within the noise of its rounds."""
    away = deviations(published, ours)
    worst = away[np.abs(away).argmax()]
    return Finding.checked(figure, listed(published.mean(axis=1)), listed(ours.mean(axis=0)), bool(abs(worst) <= WITHIN),
                           *[f"largest deviation {worst:+.1f} standard deviations of the means, rounds here: {len(ours)}"] * 2)  # fmt: skip


def falling(figure: str, published: np.ndarray, ours: np.ndarray) -> Finding:
    """Return whether the distance falls from cycle to cycle to what it falls to in the paper."""
    mean, total = ours.mean(axis=0), float(published.mean(axis=1)[-1] / published.mean(axis=1)[0])
    here, rising = float(mean[-1] / mean[0]), int((np.diff(mean) > 0).sum())
    noise = (
        WITHIN
        * abs(total)
        * sqrt(2 * (published.var(axis=1, ddof=1) / published.mean(axis=1) ** 2).mean() * (1 / 5 + 1 / len(ours)))
    )
    return Finding.checked(figure, f"falls with the cycles, to {total:.3f} of the first one", f"to {here:.3f}, tolerance {noise:.3f}; it rises "
                           f"in {rising} of {len(mean) - 1} cycles", abs(here - total) <= noise and rising <= len(mean) // 2)  # fmt: skip


def better_with_one(city: City, last: dict[float, np.ndarray]) -> Finding:
    """Return whether the last estimate is nearer with beta 1 than with 0.5, by the paper's ratio."""
    published = {beta: float(table[-1].mean()) for beta, table in city.published.items()}
    paper_ratio, ours = published[1] / published[0.5], float(last[1].mean() / last[0.5].mean())
    noise = sum((table[-1].std(ddof=1) / table[-1].mean()) ** 2 for table in city.published.values())
    limit = WITHIN * paper_ratio * sqrt(noise * (1 / 5 + 1 / len(last[1])))
    return Finding.checked(city.figures["last"], f"fairly accurate, better for beta 1: distance {paper_ratio:.3f} of that for 0.5",
                           f"{ours:.3f}, tolerance {limit:.3f}", abs(ours - paper_ratio) <= limit)  # fmt: skip


def after(con: DuckDBPyConnection, paper: Reproduction, figure: str, published: float) -> None:
    """Estimate with methods beyond the paper from the reports of the last cycle alone, which are still in ``reports``."""
    for name in ("ibu", "ibu(stop='held_out')", "best"):
        sql = ("SELECT ldp.distance_between(list_transform(e, lambda x: x.estimate), (SELECT p FROM truth), 'emd', getvariable('drawn')) AS d "
               f"FROM (SELECT {CALLS[name]} AS e FROM reports)")  # fmt: skip
        refused = refusal(con, sql)
        outcome = f"EMD {frame(con, sql)['d'][0]:.3f}" if refused == "not refused" else refused
        paper.findings.append(
            Finding(f"{figure}, {name}", "no such method", f"{outcome}; PRIVIC {published:.3f}", "beyond the paper",
                    "from the last cycle's reports alone, from equal shares; PRIVIC starts from its last estimate")
        )  # fmt: skip
    diagnosis = frame(con, "SELECT unnest(ldp.diagnose(cell, getvariable('drawn'))), count(*) AS n FROM reports")
    paper.findings.append(
        Finding(f"{figure}, certificate", "none", f"unique: {diagnosis['unique'][0]}, at most {diagnosis['gap'][0] * diagnosis['n'][0]:.1e} of "
                "log-likelihood missing at the maximum", "beyond the paper", "the last cycle's channel alone")
    )  # fmt: skip


CALLS = {
    "ibu": "ldp.ibu(cell, getvariable('drawn'))",
    "ibu(stop='held_out')": "ldp.ibu(cell, getvariable('drawn'), stop := 'held_out')",
    "best": "ldp.best(cell, getvariable('drawn'))",
}


def levels(con: DuckDBPyConnection, paper: Reproduction, full: bool, city: City) -> None:
    """Figure 10: the distance after the last cycle over the loss parameter."""
    load(con, city)
    count = len(next(iter(city.published.values())))
    points = []
    for beta in (0.1, 0.3, 0.5, 0.7, 0.9, 1) if full else (0.1, 0.3, 1):
        rounds = [round_of(con, city, beta, count) for _ in range(5 if full else 1)]
        points += [{"beta": beta, "EMD": one.distances[-1], "raw": one.raw[-1], "line": "here"} for one in rounds]
    rows = pl.DataFrame(points)
    paper.picture(
        f"{city.figures['levels']}: {city.name}",
        "Earth mover's distance after the last cycle.",
        lines(rows, "beta", "EMD", "line"),
    )
    label, raw = city.figures["levels"], rows.with_columns(EMD=pl.col("raw"))
    paper.findings.append(settles(label, rows).against({"the raw reports of the last cycle": settles(label, raw)}))


def settles(figure: str, rows: pl.DataFrame) -> Finding:
    """Return whether the distance falls sharply at first and little at last."""
    means = rows.group_by("beta").agg(pl.col("EMD").mean()).sort("beta")
    drops = means["EMD"].to_list()
    slopes = [(a - b) / (y - x) for a, b, x, y in zip(drops, drops[1:], means["beta"], means["beta"][1:], strict=False)]
    text = ", ".join(f"beta {b}: {d:.3f}" for b, d in means.iter_rows())
    return Finding.checked(
        figure, "falls sharply with beta, then settles", text, slopes[0] > 4 * slopes[-1] and drops[-1] < drops[0]
    )
