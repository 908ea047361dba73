"""What a run opens and checks before it is charged."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.charging import Charge
from ldpsql.bulk.columns.projection import Projection
from ldpsql.bulk.reading.parts import Source
from ldpsql.bulk.reading.sources import source_of
from ldpsql.bulk.reading.unchanged import counted, readable_twice, witnessed
from ldpsql.bulk.writing.forms import Form
from ldpsql.bulk.writing.orders import Order
from ldpsql.domains.arrays import shown_class
from ldpsql.errors import DestinationRefused, InvalidParameter
from ldpsql.places import Place
from ldpsql.reports import type_of


def destination_of(argument: object) -> str:
    """Return the path of a file, or the name of a table, to which a run writes.

    Raises:
        InvalidParameter: if the argument is neither, such as a source or the mechanisms.

    """
    if not isinstance(argument, str | os.PathLike):
        raise InvalidParameter(
            f"the destination must be a path or the name of a table, not {shown_class(argument)}",
            "the order of the arguments is source, destination, columns",
        )
    return os.fspath(argument)


def opened_source(
    con: DuckDBPyConnection, source: Any, projection: Projection, charge: Charge | None, *, split: bool = False
) -> Source:
    """Return the source of a run, with its user ids if the ledger charges by user.

    Raises:
        UnknownName, SourceRefused: if it cannot be read, or a column is missing or is the name of its folders.

    """
    opened = source_of(con, source, split=split)
    opened.check(projection.read(opened.names) if projection.permanent else projection.columns)
    opened.check_folders(projection.mechanisms)
    if projection.permanent is not None:  # each report is compared with those that were charged
        return readable_twice(opened) if charge else opened
    if charge is not None and charge.shuffled_delta is not None:
        opened = counted(opened)
    return witnessed(opened, charge.user if charge else None, projection.keep)


def check_partition(form: Form, projection: Projection) -> None:
    """Check that reports can be partitioned by columns.

    Raises:
        InvalidParameter: if one is not written, or none is left for the files.

    """
    if set(form.partition_by) - set(projection.columns):
        raise InvalidParameter(
            "the reports can only be partitioned by columns that are written",
            "keep the column too: --keep, in Python keep=[...]",
        )
    if not set(projection.columns) - set(form.partition_by):
        raise InvalidParameter("no column is left to be written into the files of a partition", "partition by fewer columns")


def check_destination(target: Place, form: Form, projection: Projection, source: Source) -> None:
    """Check that reports can go to files.

    Raises:
        DestinationRefused: if nested reports go to a text file, or the destination is or holds a file of the source.

    """
    nested = any(pa.types.is_nested(type_of(mechanism.reports)) for mechanism in projection.mechanisms.values())
    if nested and form.kind in ("csv", "json"):
        raise DestinationRefused("reports that are lists or structs cannot be read back from text", "write .parquet or .arrow")
    files, itself = [_resolved(Place(name)) for name in source.files], _resolved(target)
    if any(itself in (file, *file.parents) for file in files):
        raise DestinationRefused("the destination is the source itself, or holds it", "write the reports somewhere else")


def _resolved(place: Place) -> PurePath:
    return place.path if place.is_url else Path(place.text).resolve()


def task_of(
    source: Source, projection: Projection, form: Form, *, order: Order, buckets: int, charge: Charge | None
) -> dict[str, Any]:
    """Return all that a run that resumes must have in common with the run that was killed."""
    permanent = projection.permanent
    return {
        "inputs": [part.identity for part in source.parts],
        "columns": {name: str(mechanism) for name, mechanism in projection.uncertified.items()},
        "keep": projection.keep,
        "partition_by": form.partition_by,
        "order": order,
        "buckets": buckets,
        "permanent": permanent and [permanent.key.fingerprint, permanent.user, charge is not None],
    }
