"""Perturbation of whole tables and files: record batch by record batch, in bounded memory, all of it published or nothing.

charge, where there is a ledger -> draw -> on the disk -> renamed to its place -> published in the ledger
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.batches import Plan
from ldpsql.bulk.charging import Charge, charged, check_ledger, written_release
from ldpsql.bulk.fingerprints import Marking, mechanisms_of
from ldpsql.bulk.forms import Form
from ldpsql.bulk.meter import Meter, Progress
from ldpsql.bulk.orders import Drawing, Order, check_order
from ldpsql.bulk.sources import source_of
from ldpsql.bulk.staging import Staging, exists
from ldpsql.bulk.tables import check_writable, database_of, is_there, read_from, table_name
from ldpsql.bulk.unchanged import witnessed
from ldpsql.engine.interrupting import stops_with_connection
from ldpsql.errors import DestinationExists, DestinationRefused, InvalidParameter, UnfinishedRun
from ldpsql.errors.boundary import withheld
from ldpsql.mechanisms.base import Mechanism
from ldpsql.reports import type_of
from ldpsql.sql.named import mechanism_of


@dataclass
class Run:
    """What a run did: rows and parts that it drew, parts that an earlier run had drawn, and its token in the ledger."""

    rows: int = 0
    parts: int = 0
    resumed: int = 0
    release: str = ""


@withheld
@stops_with_connection
def perturb_copy(
    con: DuckDBPyConnection,
    source: Any,
    destination: str | os.PathLike[str],
    columns: Mapping[str, Mechanism | str],
    *,
    keep: Iterable[str] = (),
    partition_by: Iterable[str] = (),
    replace: bool = False,
    resume: bool = False,
    order: Order = "random",
    charge: Charge | None = None,
    progress: Progress | None = None,
) -> Run:
    """Perturb columns of a table, of files or of a frame into a file or a folder of files.

    Args:
        con: finds tables, reads and writes files; it needs no functions of ldpsql attached.
        source: the name of a table or view; a Parquet, CSV, JSON or Arrow file, a pattern with ``*``, or a folder of Parquet
            files; an Arrow or Polars frame or stream.
        destination: ``*.parquet``, ``*.csv``, ``*.csv.gz``, ``*.json`` or ``*.arrow`` for one file; a name without suffix for a
            folder of Parquet files, which is drawn, and resumed, input file by input file or some row groups at a time.
        columns: the mechanism of each column, or its name (see `attach`); its reports take its place and name.
        keep: columns that go out as they are. All others stay here.
        partition_by: columns, perturbed or kept, that become folders ``column=value/`` (Hive's layout).
        replace: put the reports in the place of what is there; a ledger charges for them again.
        resume: go on with a run that was killed: complete parts are not drawn again, and nothing is charged twice.
        order: 'random' shuffles all rows, with cryptographic randomness, so that where a report stands says nothing about its
            value. 'keep' leaves them in the order of the source: choose it only if that order, and the number of rows in
            each file, say nothing about the perturbed values.
        charge: the ledger that is charged before the first draw.
        progress: called after every batch with the rows done and the rows in all, None where that is not known.

    Raises:
        DestinationExists, DestinationRefused: where the reports cannot go there.
        UnfinishedRun: where an earlier run to this destination is neither finished nor to be resumed or replaced.
        SourceRefused: where the source is not there or cannot be read.
        UnknownName: where it has no such column.
        PrivacyError: where a value cannot be perturbed, or a budget does not suffice. Then nothing is published.

    """
    check_order(order)
    target = Path(destination).absolute()
    plan, form = Plan.of(_named(con, columns), keep), Form.of(target, tuple(partition_by))
    if set(form.partition_by) - set(plan.columns):
        raise InvalidParameter(
            "the reports can only be partitioned by columns that go out", "keep the column too: --keep, in Python keep=[...]"
        )
    if not set(plan.columns) - set(form.partition_by):
        raise InvalidParameter("no column is left to be written into the files of a partition", "partition by fewer columns")
    found = source_of(con, source, split=form.folder)
    found.check(plan.columns)
    found.check_folders(plan.mechanisms)
    found = witnessed(found, charge.user if charge else None, plan.keep)
    if form.kind in ("csv", "json") and any(pa.types.is_nested(type_of(known.reports)) for known in plan.mechanisms.values()):
        raise DestinationRefused("reports that are lists or structs cannot be read back from text", "write .parquet or .arrow")
    if any(target.resolve() in (file, *file.parents) for file in (Path(name).resolve() for name in found.files)):
        raise DestinationRefused("the destination is what is to be perturbed, or holds it", "write the reports somewhere else")
    check_ledger(con, charge)
    drawing = Drawing(con, found, plan, Meter(found.rows, progress))
    task = {
        "inputs": [part.identity for part in found.parts],
        "columns": {name: str(known.mechanism) for name, known in plan.mechanisms.items()},
        "keep": plan.keep,
        "partition_by": form.partition_by,
        "order": order,
        "buckets": drawing.buckets,
    }
    with Staging.at(target, form.suffix) as staging:
        token = staging.begin(task, replace=replace, resume=resume)
        if token is None:
            token = charged(con, charge, found, plan, str(target), again=replace, resume=resume)
            staging.write_state({"task": task, "release": token, "replace": replace})
        elif bool(token) != (charge is not None):
            raise UnfinishedRun("the unfinished run used a ledger, or none, other than this one", "resume it as it was begun")
        elif charge and charge.ledger.release_of(token).stored:  # killed while it tidied up
            staging.remove()
            return Run(0, 0, len(found.parts), token)
        drawing.into_files(form, staging, order)
        if charge:
            charge.ledger.drawn(token)
        staging.publish(one_file=not form.folder)
        if charge:
            charge.ledger.publish(charge.ledger.release_of(token))
        staging.remove()
    return Run(drawing.rows, drawing.parts, drawing.resumed, token)


@withheld
@stops_with_connection
def perturb_table(
    con: DuckDBPyConnection,
    source: Any,
    into: str,
    columns: Mapping[str, Mechanism | str],
    *,
    keep: Iterable[str] = (),
    replace: bool = False,
    append: bool = False,
    resume: bool = False,
    order: Order = "random",
    charge: Charge | None = None,
    progress: Progress | None = None,
) -> Run:
    """Perturb columns of a table, of files or of a frame into a table, in one statement: all of it is there, or nothing.

    Args:
        con: the database; it needs no functions of ldpsql attached. The table is written through a cursor of it, in a
            transaction of its own.
        source: as for `perturb_copy`.
        into: the name of the table, ``name`` or ``schema.name``; what has no schema goes where the connection's own tables go.
        columns: the mechanism of each column, or its name (see `attach`); its reports take its place and name.
        keep: columns that go out as they are. All others stay here.
        replace: put the reports in the place of a table of that name; a ledger charges for them again.
        append: add them to a table of that name; give a ledger's `Charge` the part that is added, such as a day.
        resume: do not charge again for a run that was killed; if its reports are in a table, they are not drawn again.
        order: 'random' shuffles all rows, with cryptographic randomness, so that where a report stands says nothing about its
            value. 'keep' leaves them in the order of the source: choose it only if that order, and the number of rows in
            each file, say nothing about the perturbed values.
        charge: the ledger that is charged before the first draw.
        progress: called after every batch with the rows done and the rows in all, None where that is not known.

    Raises:
        DestinationExists, DestinationRefused: where the reports cannot go there.
        OtherMechanism: if they would be appended to reports of another mechanism.
        SourceRefused: where the source is not there or cannot be read.
        UnknownName: where it has no such column.
        PrivacyError: where a value cannot be perturbed, or a budget does not suffice. Then nothing is published.

    """
    check_order(order)
    plan, name = Plan.of(_named(con, columns), keep), table_name(into)
    if replace and append:
        raise InvalidParameter("a table is either replaced or appended to", "choose one")
    there, where = is_there(con, name), f"{database_of(con)} {into}"
    if there and not (replace or append or resume):
        raise DestinationExists(*exists(into))
    found = source_of(con, source)
    found.check(plan.columns)
    found.check_folders(plan.mechanisms)
    found = witnessed(found, charge.user if charge else None, plan.keep)
    if resume and charge and (token := written_release(con, charge, found, plan, where)):
        charge.ledger.publish(charge.ledger.release_of(token))
        return Run(0, 0, 1, token)
    if there and not (replace or append):
        raise DestinationExists(*exists(into))
    if there and found.kind == "table" and read_from(con, source) & read_from(con, name):
        raise DestinationRefused("the destination is what is to be perturbed", "write the reports into another table")
    verb = f"INSERT INTO {name} BY NAME" if append and there else f"CREATE {'OR REPLACE ' * replace}TABLE {name} AS"
    check_writable(con, verb, plan.columns)
    check_ledger(con, charge)
    marking = Marking(con, name, mechanisms_of(plan.mechanisms))
    if append:
        marking.check()
    token = charged(con, charge, found, plan, where, again=replace, resume=resume)
    drawing = Drawing(con, found, plan, Meter(found.rows, progress))
    sign = partial(marking.write, token=token, appended=append and there)
    drawing.into_table(verb, order, partial(_sign, sign=sign, token=token, charge=charge))
    if charge:
        charge.ledger.publish(charge.ledger.release_of(token))
    return Run(drawing.rows, 1, 0, token)


def _sign(cursor: DuckDBPyConnection, *, sign: Callable[[DuckDBPyConnection], None], token: str, charge: Charge | None) -> None:
    """Sign a table, and write into the ledger that COMMIT comes next: what is in the table may then be seen."""
    sign(cursor)
    if charge:
        charge.ledger.drawn(token, once=True)


def _named(con: DuckDBPyConnection, columns: Mapping[str, Mechanism | str]) -> dict[str, Mechanism]:
    """Return the mechanism of each column, read by the names of the connection."""
    return {column: mechanism_of(mechanism, con) for column, mechanism in columns.items()}
