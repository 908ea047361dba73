"""What several commands share: options, the reports that they read, and rows on stdout in the format of ``--format``."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from threading import Event

    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from ldpsql.bulk.charging import Charge
    from ldpsql.bulk.orders import Progress
    from ldpsql.bulk.queries import Reports
    from ldpsql.mechanisms.base import Mechanism


def in_a_folder(path: Path | None) -> Path | None:
    """Return the path of a file to write, after a check that its folder can be written; this comes before any work."""
    from ldpsql.errors import DestinationRefused

    if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK)):
        raise DestinationRefused(f"the file {path} cannot be written", "its folder must exist and be writable")
    return path


def output_option(what: str) -> Any:
    """Return the option for the file that a command writes."""
    return typer.Option("--output", "-o", help=what, callback=in_a_folder)


COUNTED = "SET enable_progress_bar = true; SET enable_progress_bar_print = false"  # DuckDB counts, `working` shows
_SOON, _BETWEEN = 2.0, 0.25  # seconds
_CLEARED = "\r\x1b[K"  # of a terminal's line

MechanismOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--mechanism",
        "-m",
        help="The mechanism: krr(epsilon=1, domain=['a', 'b']), its name in ldpsql.toml, or a document, city.json.",
    ),
]
RecordedOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--mechanism",
        "-m",
        help="The mechanism, its name in ldpsql.toml, or a document, city.json; by default what the reports record.",
    ),
]
WeightOption: TypeAlias = Annotated[str | None, typer.Option("--weight", help="The column of the weights of the rows.")]
EstimatorOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--estimator",
        envvar="LDPSQL_ESTIMATOR",
        help="The estimator, with its options: ibu(stop=100). By default ibu; ibu(stop='held_out') for maps above 4,096 cells.",
    ),
]
SourceArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        help="The reports: a Parquet, CSV, JSON or Arrow file, a folder, or a table of --database.", metavar="REPORTS"
    ),
]
NamedArgument: TypeAlias = Annotated[
    str | None, typer.Argument(help="The column that holds the reports; instead of --column.", metavar="COLUMN")
]
NamedOption: TypeAlias = Annotated[str | None, typer.Option("--column", "-c", help="The column that holds the reports.")]
ColumnsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--column", "-c", help="The column that holds the reports; of a row(...), each of its columns."),
]
ByOption: TypeAlias = Annotated[list[str] | None, typer.Option("--by", help="Estimate each group of this column; repeat it.")]
DatabaseOption: TypeAlias = Annotated[str, typer.Option("--database", "-d", help="A DuckDB file that holds the reports.")]
BoundsOption: TypeAlias = Annotated[
    str, typer.Option(help="WEST,SOUTH,EAST,NORTH of the grid, for maps with longitudes and latitudes.")
]
LedgerOption: TypeAlias = Annotated[
    Path | None, typer.Option("--ledger", help="The ledger to charge; by default that of the settings.")
]
DatasetOption: TypeAlias = Annotated[
    str | None, typer.Option("--dataset", help="The ledger's name for the people in the data.")
]
PartOption: TypeAlias = Annotated[
    str, typer.Option("--part", help="Which part of the dataset this is, such as a day; no row may be in two parts.")
]
UserOption: TypeAlias = Annotated[
    str | None, typer.Option("--user", help="The column of user ids, if the ledger charges by user or reports are permanent.")
]


def columns_named(named: str | None, columns: list[str] | None) -> list[str]:
    """Return the columns that the argument or the option names: several are those of a row."""
    from ldpsql.errors import InvalidParameter

    if (named is None) == (not columns):
        raise InvalidParameter(
            "the column of the reports must be named once",
            "as an argument, reports.parquet city, or as an option, -c city; of a row, each of its columns: -c city -c age",
        )
    return columns or [named or ""]


def edges_of(bounds: str, option: str = "--bounds") -> list[str]:
    """Return west, south, east and north of a region."""
    from ldpsql.errors import InvalidParameter

    edges = [edge.strip() for edge in bounds.split(",")]
    if len(edges) != 4:
        raise InvalidParameter(f"{option} must be four numbers: west,south,east,north", "for example -122.5,37.7,-122.3,37.8")
    return edges


def charge_of(
    ledger: Path | None, dataset: str | None, part: str, user: str | None, *, permanent: bool = False
) -> Charge | None:
    """Return the charge for a run, or None if no ledger is named. Permanent reports need the user without a ledger too.

    Raises:
        InvalidParameter: if a ledger is named without a dataset, or a dataset, part or user without a ledger.
        LedgerError: if the ledger cannot be used.

    """
    from ldpsql.bulk.charging import Charge
    from ldpsql.errors import InvalidParameter
    from ldpsql.ledger.guard import configured_ledger, configured_path

    if dataset is None and configured_path(ledger) is not None:  # before a new ledger is begun
        raise InvalidParameter("a ledger needs the name of the data", "--dataset people")
    opened = configured_ledger(ledger)
    if opened is None and (dataset or part or (user and not permanent)):
        raise InvalidParameter("--dataset, --part and --user are for a ledger", "name it: --ledger")
    return None if opened is None or dataset is None else Charge(opened, dataset, part, user)


def charged_text(charge: Charge | None) -> str:
    """Return the line at the end of a run that names its ledger; settings of another folder may name none."""
    return "no ledger was charged" if charge is None else f"charged to {charge.ledger.path}"


@contextmanager
def compared(con: DuckDBPyConnection, source: str, column: str, mechanism: Mechanism) -> Iterator[bool]:
    """Refuse reports that another mechanism drew, and yield whether the source records which one did.

    If the block succeeds and the source does not, write a note on stderr.
    """
    from ldpsql.bulk.fingerprints import of_source
    from ldpsql.estimates.diagnosis import UNKNOWN_RECORD
    from ldpsql.registry.agreement import NONE, check_agreement

    fingerprints = of_source(con, source, column)
    check_agreement(fingerprints or NONE, mechanism)
    yield bool(fingerprints)
    if not fingerprints:
        typer.echo(f"note: {UNKNOWN_RECORD}", err=True)


def drawn_by(con: DuckDBPyConnection, source: str, columns: list[str], text: str | None) -> Mechanism:
    """Return the mechanism that an option names or writes out, or else what the reports record: a row of several columns.

    Raises:
        MechanismUnrecorded: if neither names a mechanism.
        OtherMechanism: if the reports record several.
        SourceRefused: if there is no such source.

    """
    from ldpsql.bulk.columns import row_of
    from ldpsql.bulk.fingerprints import of_source
    from ldpsql.bulk.sources import sql_of
    from ldpsql.registry.agreement import recorded
    from ldpsql.sql.named import mechanism_of

    if text is not None:
        return mechanism_of(text, con)
    sql_of(con, source, columns)  # a source or a column that is missing is refused as such
    each = {column: recorded(of_source(con, source, column)) for column in columns}
    return row_of(each) if len(each) > 1 else each[columns[0]]


@contextmanager
def opened(database: str) -> Iterator[DuckDBPyConnection]:
    """Open a database for reading, or one in memory, with the functions attached.

    Raises:
        SourceRefused: if there is no such database.

    """
    import ldpsql
    from ldpsql.engine.connections import interruptible

    with ldpsql.connect(existing(database), read_only=database != ":memory:") as con, interruptible(con):
        con.execute(COUNTED)
        with working(con):
            yield con


def mechanism_from(text: str) -> Mechanism:
    """Return the mechanism that an option names or writes out; its domain may be a column of a file.

    Raises:
        UnknownName, InvalidSpec, InvalidParameter, SourceRefused: if it cannot be read.

    """
    from ldpsql.sql.named import mechanism_of

    return mechanism_of(text, None)


def existing(database: str) -> str:
    """Return the name of a database after a check that it exists."""
    from ldpsql.errors import SourceRefused

    if database != ":memory:" and not Path(database).is_file():
        raise SourceRefused(
            "there is no database of this name", "--database takes a DuckDB file; ldpsql sql NAME makes a new one"
        )
    return database


@contextmanager
def reading(
    sources: list[str],
    columns: list[str],
    keys: list[str],
    mechanism: str | None,
    estimator: str,
    database: str,
    weight: str | None = None,
    read: str = "",
) -> Iterator[list[Reports]]:
    """Open sources of reports of one mechanism, after a check that none records another; see `drawn_by` and `compared`.

    Reports of another library are read in the format ``read``.
    """
    from ldpsql.bulk.columns import drawn_apart, row_part, text_reports
    from ldpsql.bulk.queries import Reports, reports_of
    from ldpsql.bulk.sources import sql_of
    from ldpsql.registry.registry import registry

    with opened(database) as con, ExitStack() as comparisons:
        made = drawn_by(con, sources[0], columns, mechanism)
        wanted = [*columns, *keys, *([weight] if weight else [])]
        text = (columns if read == "bits" else []) if read else text_reports(columns, made)
        tables = [sql_of(con, source, wanted, text) for source in sources]
        method = registry().estimator(estimator) if estimator else None
        for source in sources:
            for name, part in drawn_apart(columns, made).items():
                comparisons.enter_context(compared(con, source, name, part))
        yield [Reports(con, table, reports_of(columns), row_part(columns, made), method, weight) for table in tables]


_AT_A_TIME = 10_000  # rows that are Python objects at the same time


class Format(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", envvar="LDPSQL_FORMAT", help="How to write the rows.")]


def of_table(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table; the second of two columns with one name is renamed."""
    names: list[str] = []
    for name in table.column_names:
        others = (f"{name}_{number}" for number in range(1, len(table.column_names)))
        names.append(name if name not in names else next(other for other in others if other not in names + table.column_names))
    batches = table.rename_columns(names).to_batches(max_chunksize=_AT_A_TIME)
    return (row for batch in batches for row in batch.to_pylist())


def write_rows(rows: Iterable[Mapping[str, Any]], form: Format, nothing: str = "no rows") -> None:
    """Write rows, all with the same keys: as aligned columns, rounded to their errors, or JSON, JSON lines or CSV.

    Only aligned columns need all rows in memory. If there are no rows to align, ``nothing`` says so on stderr.
    """
    from ldpsql.estimates.shown import aligned, cells

    out = sys.stdout
    if form is Format.JSON:
        encoder, before = json.JSONEncoder(default=str, indent=2), "[\n"
        for row in rows:
            out.write(f"{before}{encoder.encode(_plain(row))}".replace("\n", "\n  "))
            before = ",\n"
        out.write("[]\n" if before == "[\n" else "\n]\n")
    elif form is Format.JSONL:
        out.writelines(json.dumps(_plain(row), default=str) + "\n" for row in rows)
    elif form is Format.CSV:
        csv.writer(out, lineterminator="\n").writerows(_cells(rows))
    elif lines := list(cells(rows)):
        out.write(aligned(lines) + "\n")
    else:
        typer.echo(nothing, err=True)


def write_text(text: str, output: Path | None, note: str) -> None:
    """Write text into a file, with a note on stderr; to stdout if no file is named."""
    if output is None:
        sys.stdout.write(text)
        return
    output.write_text(text, encoding="utf-8")
    typer.echo(note, err=True)


def _cells(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield the names of the columns, then the text of each row; yield nothing if there are no rows."""
    for number, row in enumerate(rows):
        if not number:
            yield list(row)
        yield ["" if value is None else str(value) for value in row.values()]


def _plain(value: Any) -> Any:
    """Return a value with None for numbers that JSON does not have, such as an infinite standard error."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(inside) for key, inside in value.items()}
    return [_plain(inside) for inside in value] if isinstance(value, list | tuple) else value


@contextmanager
def bar(unit: str, of_unknown: str = "") -> Iterator[Progress | None]:
    """Show a progress bar of a unit on stderr, if that is a terminal; ``of_unknown`` is counted while the total is unknown."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    count, rate = TextColumn("{task.fields[done]}"), TextColumn("{task.fields[rate]}")
    with Progress(count, BarColumn(), rate, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, done=f"0 {unit}", rate="")

        def progress(done: int, total: int | None) -> None:
            speed = bar.tasks[0].speed
            pace = f"{speed / 1e6:.2f} M {unit}/s" if speed else ""
            counted = unit if total is not None else of_unknown or unit
            bar.update(task, completed=done, total=total, done=f"{done:,} {counted}", rate=pace)

        yield progress


@contextmanager
def working(con: DuckDBPyConnection | None = None) -> Iterator[None]:
    """After two seconds, say on stderr, if it is a terminal, for how long a block works, and how much a statement has read.

    The latter needs `COUNTED` in the connection.
    """
    if not sys.stderr.isatty():
        yield
        return
    from threading import Event, Thread

    ended = Event()
    shown = Thread(target=_show_until, args=(ended, con), daemon=True)
    shown.start()
    try:
        yield
    finally:
        ended.set()
        shown.join()


def on_its_own_line(text: str) -> None:
    """Write a line to stderr, in place of what `working` shows on a terminal."""
    typer.echo(f"{_CLEARED if sys.stderr.isatty() else ''}{text}", err=True)


def _show_until(ended: Event, con: DuckDBPyConnection | None) -> None:
    """Write the seconds over each other on one line, and clear it in the end."""
    begun = monotonic()
    if ended.wait(_SOON):
        return
    while not ended.wait(_BETWEEN):
        done = -1.0 if con is None else con.query_progress()  # of the rows that a statement reads; -1: no statement reads
        part = f", {done:.0f} % of the rows read" if done >= 0 else ""
        sys.stderr.write(f"{_CLEARED}working for {monotonic() - begun:.0f} s{part}; Ctrl-C stops it")
        sys.stderr.flush()
    sys.stderr.write(_CLEARED)
    sys.stderr.flush()
