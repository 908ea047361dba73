"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from ldpsql.bulk.charging import Charge


def in_a_folder(path: Path | None) -> Path | None:
    """Return the path of a file to write, after a check that its folder can be written; this comes before any work."""
    from ldpsql.errors import DestinationRefused

    if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK)):
        raise DestinationRefused(f"the file {path} cannot be written", "its folder must exist and be writable")
    return path


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


def column_of(named: str | None, column: str | None) -> str:
    """Return the column that the argument or the option names.

    Raises:
        InvalidParameter: unless exactly one of them does.

    """
    return columns_named(named, None if column is None else [column])[0]


def columns_named(named: str | None, columns: list[str] | None) -> list[str]:
    """Return the columns that the argument or the option names: several are those of a row.

    Raises:
        InvalidParameter: unless exactly one of them names any.

    """
    from ldpsql.errors import InvalidParameter

    if (named is None) == (not columns):
        raise InvalidParameter(
            "the column of the reports must be named once", "as an argument, reports.parquet city, or as an option, -c city"
        )
    return columns or [named or ""]


def edges_of(bounds: str, option: str = "--bounds") -> list[str]:
    """Return west, south, east and north of a region.

    Raises:
        InvalidParameter: unless there are four.

    """
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
    from ldpsql.ledger.configured import configured_ledger, configured_path

    if dataset is None and configured_path(ledger) is not None:  # before a new ledger is begun
        raise InvalidParameter("a ledger needs the name of the data", "--dataset people")
    opened = configured_ledger(ledger)
    if opened is None and (dataset or part or (user and not permanent)):
        raise InvalidParameter("--dataset, --part and --user are for a ledger", "name it: --ledger")
    return None if opened is None or dataset is None else Charge(opened, dataset, part, user)


def charged_text(charge: Charge | None) -> str:
    """Return the line at the end of a run that names its ledger; settings of another folder may name none."""
    return "no ledger was charged" if charge is None else f"charged to {charge.ledger.path}"
