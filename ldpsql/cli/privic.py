"""``ldpsql privic``: collect locations in cycles, each with a mechanism made from the reports of the cycle before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ldpsql.cli.options import (
    DatasetOption,
    Format,
    FormatOption,
    LedgerOption,
    PartOption,
    UserOption,
    charge_of,
    charged_text,
    edges_of,
    in_a_folder,
    on_its_own_line,
    working,
    write_rows,
)

if TYPE_CHECKING:
    import duckdb

    from ldpsql.privic import Cycle


def privic(
    source: Annotated[str, typer.Argument(help="The locations: a Parquet, CSV, JSON or Arrow file.", metavar="LOCATIONS")],
    state: Annotated[
        Path,
        typer.Option("--state", "-s", help="A DuckDB file that keeps reports, mechanisms and estimates.", callback=in_a_folder),
    ],
    beta: Annotated[str, typer.Option(help="Loss parameter per cell: a larger one reveals more.")],
    columns: Annotated[int, typer.Option(min=1, help="Columns of the grid.")],
    rows: Annotated[int, typer.Option(min=1, help="Rows of the grid.")],
    column: Annotated[str, typer.Option("--column", "-c", help="The column of cell numbers.")] = "cell",
    bounds: Annotated[str, typer.Option(help="WEST,SOUTH,EAST,NORTH: cells from --lon and --lat instead of --column.")] = "",
    lon: Annotated[str, typer.Option(help="The column of longitudes.")] = "lon",
    lat: Annotated[str, typer.Option(help="The column of latitudes.")] = "lat",
    nearest: Annotated[bool, typer.Option("--nearest", help="Take points outside the bounds to the nearest cell.")] = False,
    cycles: Annotated[int, typer.Option(min=1, help="The number of cycles to finish.")] = 8,
    stop: Annotated[str, typer.Option(help="Steps of IBU in a cycle, or certified.")] = "5",
    iterations: Annotated[int, typer.Option(min=1, help="Steps of Blahut-Arimoto in a cycle.")] = 5,
    mixing: Annotated[str, typer.Option(help="Share of the uniform distribution mixed into the reports'.")] = "0",
    pool: Annotated[bool, typer.Option("--pool", help="Estimate from the reports of all cycles.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Where to write a page with a picture of each cycle.", callback=in_a_folder)
    ] = None,
    ledger: LedgerOption = None,
    dataset: DatasetOption = None,
    part: PartOption = "",
    user: UserOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run PRIVIC: everybody reports once a cycle, the reports give the estimate, the estimate the next mechanism.

    If it is run again with the same options, it goes on after the last finished cycle. Every cycle spends privacy: the column
    total adds up what one user's reports of all cycles spend, and a ledger is charged before each cycle is drawn.

    Example: ldpsql privic places.parquet --state run.duckdb --beta 1 --columns 24 --rows 16 --page run.html
    """
    import duckdb

    from ldpsql import privic as cycling
    from ldpsql.bulk.sources import sql_of
    from ldpsql.quoting import quoted

    charge = charge_of(ledger, dataset, part, user)
    with duckdb.connect() as con:
        sql_of(con, source, [*([lon, lat] if bounds else [column]), *([user] if user else [])])
    cell = _cell(bounds, columns, rows, lon, lat, nearest=nearest) if bounds else quoted(column)
    mechanism = cycling.start(beta, range(columns * rows), columns=columns, iterations=iterations, mixing=mixing)
    try:
        with working():
            finished = cycling.collect(
                source,
                state,
                mechanism,
                column=cell,
                cycles=cycles,
                stop=stop,
                pool=pool,
                finished=_report_cycle,
                charge=charge,
            )
    except duckdb.Error as error:
        raise _advised(error, "" if bounds else f"the cells are whole numbers from 0 to {columns * rows - 1}") from None
    write_rows(_rows(finished), form)
    typer.echo(charged_text(charge), err=True)
    if page:
        _write_page(page, finished, columns, rows, bounds)
        typer.echo(f"Wrote {page}", err=True)


def _advised(error: duckdb.Error, cells: str) -> Exception:
    """Return an error about a location without the rules that other mechanisms take."""
    from ldpsql.errors import MissingValue, OutsideDomain
    from ldpsql.errors.wording import of_sql

    ours = of_sql(error)
    if isinstance(ours, MissingValue):
        return MissingValue(ours.message, "leave the rows without a place out of the file")
    if isinstance(ours, OutsideDomain) and cells:
        return OutsideDomain(ours.message, f"{cells}; --bounds makes them from points")
    return error


def _cell(bounds: str, columns: int, rows: int, lon: str, lat: str, *, nearest: bool) -> str:
    """Return the SQL expression of the cell of a point."""
    from ldpsql.quoting import quoted, text_literal

    grid = ", ".join([*(text_literal(edge) for edge in edges_of(bounds)), str(columns), str(rows)])
    rule = "'nearest'" if nearest else "NULL"
    return f"ldp.cell({quoted(lon)}, {quoted(lat)}, ldp.grid({grid}), outside := {rule})"


def _report_cycle(cycle: Cycle) -> None:
    on_its_own_line(f"cycle {cycle.number} finished")


def _rows(cycles: list[Cycle]) -> list[dict[str, Any]]:
    from ldpsql import certify

    out, total = [], 0.0
    for cycle in cycles:
        epsilon = certify(cycle.mechanism).epsilon
        total += epsilon
        summary = cycle.summary
        out.append(
            {
                "cycle": cycle.number,
                "reports": summary.reports,
                "epsilon": round(epsilon, 6),
                "total": round(total, 6),
                "status": summary.status,
                "gap": float(f"{summary.gap:.3g}"),
                "next_epsilon": round(summary.realised_epsilon, 6),
                "next_information": round(summary.mutual_information, 6),
                "next_distortion": round(summary.average_distortion, 6),
            }
        )
    return out


def _write_page(page: Path, cycles: list[Cycle], columns: int, rows: int, bounds: str) -> None:
    from ldpsql.mechanisms.region import Region
    from ldpsql.pages.charts import Places
    from ldpsql.pages.cycles import cycles_page

    region = None
    if bounds:
        west, south, east, north = edges_of(bounds)
        region = Region(west=west, south=south, east=east, north=north, columns=columns, rows=rows)
    page.write_text(cycles_page(cycles, Places(rows, columns, region)), "utf-8")
