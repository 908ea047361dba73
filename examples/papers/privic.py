"""Biswas, Palamidessi, "PRIVIC", PETS 2024: figures 2 and 3, table 3 and figures 7-10 for San Francisco.

The tables for Paris need check-ins that are not at hand. Distances count sides of cells (half a kilometre), as the paper's code does.
"""

from __future__ import annotations

from statistics import mean

import polars as pl
from duckdb import DuckDBPyConnection
from reproduction import Finding, Reproduction, frame, lines, maps, people, run, shared

SQL = """\
SET VARIABLE m = ldp.privic_start(1, range(384), columns := 24);

CREATE TABLE reports AS SELECT ldp.perturb(value, getvariable('m')) AS cell FROM people;
CREATE TABLE step AS SELECT unnest(ldp.privic_step(cell, getvariable('m'))) FROM reports;

SET VARIABLE m = (SELECT "next" FROM step);  -- and so on"""

# Mean of the five rounds of table 3, rows 2 to 8: after cycles 1 to 7.
TABLE_3 = {
    1: [0.36949, 0.29865, 0.26190, 0.23573, 0.21615, 0.19893, 0.18559],
    0.5: [0.80181, 0.65564, 0.57071, 0.51615, 0.48109, 0.45539, 0.43636],
}
WITHIN = 0.03  # for the mean of five rounds, as asked; a single round is allowed twice as much: it deviates by up to 1.2 %


def reproduce(full: bool) -> Reproduction:
    """Run all parts."""
    paper = Reproduction(
        "PRIVIC",
        "Biswas and Palamidessi, PRIVIC: a privacy-preserving method for incremental collection of location data, 2024.",
        SQL,
    )
    return run(paper, [elastic, against_laplace, cycles], full)


def san_francisco(con: DuckDBPyConnection) -> None:
    """Load the check-ins as the authors used them."""
    people(con, con.read_csv(str(shared("gowalla_sf_privic_grid.csv"))).pl().sort("cell")["n_as_used"].to_list())


def elastic(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:  # noqa: ARG001  # nothing to repeat
    """Figure 2: where reports from a lonely and from a crowded cell go, Blahut-Arimoto against planar Laplace."""
    san_francisco(con)
    counts = frame(con, "SELECT value, count(*) AS n FROM people GROUP BY value ORDER BY n")
    lonely, crowded = counts["value"][len(counts) // 5], counts["value"][-1]
    prior = "(SELECT p FROM truth)"
    mechanisms = {
        "Blahut-Arimoto": f"ldp.blahut_arimoto(0.6, range(384), {prior}, columns := 24)",
        "planar Laplace": "ldp.planar_laplace(1.2, 24, 16)",
    }
    panels, moved = [], {}
    for name, sql in mechanisms.items():
        con.execute(f"SET VARIABLE m = {sql}")
        for place, value in (("lonely", lonely), ("crowded", crowded)):
            rows = frame(
                con,
                f"SELECT report::BIGINT AS value, probability AS share FROM ldp.channel(getvariable('m')) WHERE value = {value}",
            )
            panels.append(rows.with_columns(panel=pl.lit(f"{name}, {place} cell")))
            moved[name, place] = 1 - float(rows.filter(pl.col("value") == value)["share"].sum())
    paper.picture(
        "Figure 2: elastic privacy",
        "Where reports from one cell go, both with epsilon 1.2 a cell.",
        maps(pl.concat(panels), 24),
    )
    gain = moved["Blahut-Arimoto", "lonely"] - moved["planar Laplace", "lonely"]
    paper.findings.append(
        Finding.checked("fig. 2", "Blahut-Arimoto hides a lonely place more than Laplace at the same epsilon",
                        f"chance to leave the lonely cell {moved['Blahut-Arimoto', 'lonely']:.2f} and {moved['planar Laplace', 'lonely']:.2f}",
                        gain > 0)
    )  # fmt: skip


def against_laplace(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Figure 3: the distance of the estimate to the truth, Blahut-Arimoto against planar Laplace at epsilon 2 beta."""
    san_francisco(con)
    found = []
    for beta in (0.4, 0.6, 0.8, 1, 1.2, 1.4) if full else (0.5, 1):
        sqls = {
            "Blahut-Arimoto": f"ldp.blahut_arimoto({beta}, range(384), (SELECT p FROM truth), columns := 24)",
            "Laplace": f"ldp.planar_laplace({2 * beta}, 24, 16)",
        }
        for name, sql in sqls.items():
            con.execute(f"SET VARIABLE m = {sql}")
            for _ in range(5 if full else 1):
                con.execute(
                    "CREATE OR REPLACE TABLE reports AS SELECT ldp.perturb(value, getvariable('m')) AS cell FROM people"
                )
                distance = frame(con, "SELECT ldp.emd(list_transform(ldp.ibu(cell, getvariable('m'), stop := 100), lambda e: e.estimate), "
                                      "(SELECT p FROM truth), getvariable('m')) AS d FROM reports")["d"][0]  # fmt: skip
                found.append({"mechanism": name, "beta": beta, "EMD": distance})
    rows = pl.DataFrame(found)
    paper.picture(
        "Figure 3: utility", "Earth mover's distance to the truth, 100 steps of IBU.", lines(rows, "beta", "EMD", "mechanism")
    )
    by = rows.group_by("beta", "mechanism").agg(pl.col("EMD").mean()).pivot(on="mechanism", values="EMD").sort("beta")
    text = "; ".join(f"beta {r['beta']}: {r['Blahut-Arimoto']:.3f} and {r['Laplace']:.3f}" for r in by.iter_rows(named=True))
    paper.findings.append(
        Finding.checked(
            "fig. 3",
            "Blahut-Arimoto serves better for beta in (.4, 1.4]",
            text,
            (by["Blahut-Arimoto"] < by["Laplace"]).all(),
            "a channel fitted to the true distribution uses few reports, so the estimate is hardly determined",
        )
    )


def round_of(con: DuckDBPyConnection, beta: float, count: int) -> tuple[list[float], pl.DataFrame]:
    """Return the distance after every cycle of one round, and the last estimate."""
    con.execute(f"SET VARIABLE m = ldp.privic_start({beta}, range(384), columns := 24)")
    distances = []
    for _ in range(count):
        con.execute("CREATE OR REPLACE TABLE reports AS SELECT ldp.perturb(value, getvariable('m')) AS cell FROM people")
        con.execute("CREATE OR REPLACE TABLE step AS SELECT unnest(ldp.privic_step(cell, getvariable('m'))) FROM reports")
        con.execute('SET VARIABLE m = (SELECT "next" FROM step)')
        distance = "ldp.emd(list_transform(theta, lambda e: e.estimate), (SELECT p FROM truth), getvariable('m'))"
        distances.append(frame(con, f"SELECT {distance} AS d FROM step")["d"][0])
    return distances, frame(con, "SELECT unnest(theta, recursive := true) FROM step")


def cycles(con: DuckDBPyConnection, paper: Reproduction, full: bool) -> None:
    """Table 3 and figures 7 to 10: cycle by cycle."""
    san_francisco(con)
    rounds, found, panels = 5 if full else 1, [], [frame(con, "SELECT generate_subscripts(p, 1)::BIGINT - 1 AS value, unnest(p) AS share, "
                                                              "'original' AS panel FROM truth")]  # fmt: skip
    for beta, published in TABLE_3.items():
        runs = [round_of(con, beta, len(published)) for _ in range(rounds)]
        ours = [mean(run[0][i] for run in runs) for i in range(len(published))]
        worst = max(abs(a / b - 1) for a, b in zip(ours, published, strict=True))
        paper.findings.append(
            Finding.checked(f"table 3, beta {beta}", ", ".join(f"{d:.3f}" for d in published), ", ".join(f"{d:.3f}" for d in ours),
                            worst <= (WITHIN if full else 2 * WITHIN), f"largest deviation {worst:.1%}, {rounds} rounds")
        )  # fmt: skip
        for name, values in (("here", ours), ("paper", published)):
            found += [{"cycle": i + 1, "EMD": d, "line": f"beta {beta}, {name}"} for i, d in enumerate(values)]
        last = runs[0][1].select(
            pl.col("value").cast(pl.Int64), share=pl.col("estimate"), panel=pl.lit(f"estimated, beta {beta}")
        )
        panels.append(last)
    paper.picture(
        "Figures 8 to 10: cycle by cycle",
        "Earth mover's distance to the truth.",
        lines(pl.DataFrame(found), "cycle", "EMD", "line"),
    )
    paper.picture("Figure 7: the last estimates", "Shares of the cells.", maps(pl.concat(panels), 24))
