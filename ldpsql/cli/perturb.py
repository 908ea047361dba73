"""``ldpsql perturb``: reports of whole files and tables; ``ldpsql privic``: locations, collected in cycles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
    bar,
    charge_of,
    charged_text,
    edges_of,
    existing,
    in_a_folder,
    on_its_own_line,
    working,
    write_rows,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ldpsql.errors import LdpError
    from ldpsql.privic import Cycle


def perturb(
    source: Annotated[
        str,
        typer.Argument(
            help="A Parquet, CSV, JSON or Arrow file, a pattern, a folder, a URL, a table, or postgresql://host/shop#people.",
            metavar="IN",
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(
            help="A file, a URL, a folder (no suffix), with --table a table, or postgresql://host/shop#reports.", metavar="OUT"
        ),
    ],
    column: Annotated[
        list[str] | None,
        typer.Option("--column", "-c", help="A column to perturb; repeat both for several, or name none for a row(...)."),
    ] = None,
    mechanism: Annotated[
        list[str] | None, typer.Option("--mechanism", "-m", help="Its mechanism: krr(epsilon=1, domain=['a', 'b']), or a name.")
    ] = None,
    keep: Annotated[list[str] | None, typer.Option(help="A column that goes out as it is; all others stay here.")] = None,
    partition_by: Annotated[list[str] | None, typer.Option(help="A column that becomes folders column=value/.")] = None,
    table: Annotated[
        bool, typer.Option("--table", help="OUT is a table of --database; with NAME after it, the policy of a table is used.")
    ] = False,
    append: Annotated[bool, typer.Option("--append", help="Add to the table OUT.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing OUT by the reports.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was killed.")] = False,
    database: Annotated[str, typer.Option("--database", "-d", help="A DuckDB file with the tables.")] = ":memory:",
    order: Annotated[
        str, typer.Option(help="random: all rows shuffled. keep: as in the source, which may reveal values.")
    ] = "random",
    ledger: LedgerOption = None,
    dataset: DatasetOption = None,
    part: PartOption = "",
    user: UserOption = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Give each person the same report for the same value, today and in a year.")
    ] = False,
    key: Annotated[Path | None, typer.Option(help="The key of permanent reports; by default that of the settings.")] = None,
    policy: Annotated[
        str | None, typer.Argument(help="After --table: the policy [tables.NAME] of ldpsql.toml.", metavar="NAME")
    ] = None,
) -> None:
    """Perturb columns of a file or a table; the reports are published as a whole, or not at all.

    The policy of a table, [tables.people] in ldpsql.toml, has mechanisms, columns to keep and the total epsilon of a row:
    ldpsql perturb people.parquet reports.parquet --table people

    Example: ldpsql perturb people.parquet reports.parquet -c city -m "krr(epsilon=1, domain=['Lima', 'Oslo'])" --keep region
    """
    import duckdb

    from ldpsql.bulk.databases import is_address
    from ldpsql.bulk.run import perturb_copy, perturb_table
    from ldpsql.errors import InvalidParameter

    columns = _columns(column or [], mechanism or [], policy)
    if policy is not None:
        if not table:
            raise InvalidParameter("a third name is the policy of a table, and needs --table", "a column is an option: -c city")
        table = database != ":memory:"
    elsewhere = is_address(destination)
    if (append and not (table or elsewhere)) or (partition_by and (table or elsewhere)):
        raise InvalidParameter("--append is for tables, --partition-by for folders", "ldpsql perturb --help")
    if table and not elsewhere and database == ":memory:":
        raise InvalidParameter("a table needs a database to stay in", "name it: --database warehouse.duckdb")
    charge = charge_of(ledger, dataset, part, user, permanent=permanent)
    options: dict[str, Any] = {"keep": keep or (), "replace": replace, "resume": resume, "order": order, "charge": charge}
    options |= {"policy": policy, "permanent": permanent, "key": key, "user": user if permanent else None}
    with (
        duckdb.connect(existing(database)) as con,
        nullcontext() if elsewhere else _reporting_interrupts(con if table else None, destination),
        bar("rows") as progress,
    ):
        if table or elsewhere:
            run = perturb_table(con, source, destination, columns, append=append, progress=progress, **options)
        else:
            folders = partition_by or ()
            run = perturb_copy(con, source, destination, columns, partition_by=folders, progress=progress, **options)
    summary = f"perturbed {run.rows:,} rows"
    if run.resumed:
        summary += f"; {run.resumed} of {run.resumed + run.parts} parts came from an earlier run"
    typer.echo(f"{summary}; {charged_text(charge)}", err=True)


def _columns(columns: list[str], mechanisms: list[str], policy: str | None) -> dict[str, str] | str | None:
    """Return the mechanism of each column, or that of a row; None if a policy has them."""
    from ldpsql.errors import InvalidParameter

    if not columns and len(mechanisms) == 1:
        return mechanisms[0]
    if len(columns) != len(mechanisms) or len(set(columns)) < len(columns) or (policy is None and not columns):
        raise InvalidParameter("every column needs one mechanism", "--column a --mechanism ... --column b --mechanism ...")
    return dict(zip(columns, mechanisms, strict=True)) or None


@contextmanager
def _reporting_interrupts(con: DuckDBPyConnection | None, destination: str) -> Iterator[None]:
    """Within a ``with`` block, report on stderr after an interrupt whether the table or the files were published."""
    from ldpsql.bulk.staging import staged_at
    from ldpsql.places import Place

    before = _identity(con, destination)
    try:
        yield
    except KeyboardInterrupt:
        outcome = "nothing was published" if _identity(con, destination) == before else "the reports were published"
        more = "; --resume goes on" if con is None and staged_at(Place.of(destination).absolute()).exists() else ""
        typer.echo(f"interrupted: {outcome}{more}", err=True)
        raise typer.Exit(130) from None


def _identity(con: DuckDBPyConnection | None, destination: str) -> tuple[object, ...] | None:
    """Return what distinguishes a table, a file or a folder from what replaces it, or None if it does not exist."""
    from ldpsql.bulk.sinks import identity
    from ldpsql.places import Place

    return Place.of(destination).state() if con is None else identity(con, destination)


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
    from ldpsql.errors import LdpError
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
    except LdpError as error:
        raise _advised(error, "" if bounds else f"the cells are whole numbers from 0 to {columns * rows - 1}") from None
    write_rows(_rows(finished), form)
    typer.echo(charged_text(charge), err=True)
    if page:
        _write_page(page, finished, columns, rows, bounds)
        typer.echo(f"Wrote {page}", err=True)


def _advised(error: LdpError, cells: str) -> LdpError:
    """Return an error about a location without the rules that other mechanisms take."""
    from ldpsql.errors import MissingValue, OutsideDomain

    if isinstance(error, MissingValue):
        return MissingValue(error.message, "leave the rows without a place out of the file")
    if isinstance(error, OutsideDomain) and cells:
        return OutsideDomain(error.message, f"{cells}; --bounds makes them from points")
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
    from ldpsql.pages.groups import cycles_page

    region = None
    if bounds:
        west, south, east, north = edges_of(bounds)
        region = Region(west=west, south=south, east=east, north=north, columns=columns, rows=rows)
    page.write_text(cycles_page(cycles, Places(rows, columns, region)), "utf-8")
