"""Perturb whole tables and files, batch by batch in bounded memory, and publish all of the reports or nothing.

charge, if there is a ledger -> draw -> write to the disk -> rename to the destination -> publish in the ledger
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from duckdb import DuckDBPyConnection

from ldpsql.bulk.charging import (
    Charge,
    Charged,
    charged,
    check_ledger,
    is_published,
    mark_drawn,
    publish,
    return_charge,
    returned_if_unseen,
    written_release,
)
from ldpsql.bulk.columns.chosen import chosen_columns
from ldpsql.bulk.columns.mechanisms import Columns, names_of
from ldpsql.bulk.fingerprints import Marking
from ldpsql.bulk.meter import Meter, Progress
from ldpsql.bulk.prepared import check_destination, check_partition, destination_of, opened_source, task_of
from ldpsql.bulk.writing.forms import Form
from ldpsql.bulk.writing.orders import Drawing, Order, check_order
from ldpsql.bulk.writing.staging import Staging, already_exists
from ldpsql.bulk.writing.tables import check_writable, database_of, is_there, read_from, table_name
from ldpsql.bulk.writing.upload import check_url, staging_at
from ldpsql.engine.interrupting import stops_with_connection
from ldpsql.errors import DestinationRefused, InvalidParameter
from ldpsql.errors.boundary import withheld
from ldpsql.ledger.permanent import Key
from ldpsql.ledger.uncharged import uncharged
from ldpsql.places import Place


@dataclass
class Run:
    """The result of a run: the rows and parts that it drew, the parts that an earlier run drew, and its token in the ledger.

    A run of permanent reports has a token for each column, with spaces between them.
    ``uncharged`` is true if the settings name a ledger that the run did not charge.
    """

    rows: int = 0
    parts: int = 0
    resumed: int = 0
    release: str = ""
    uncharged: bool = False


@withheld
@stops_with_connection
def perturb_copy(
    con: DuckDBPyConnection,
    source: Any,
    destination: str | os.PathLike[str],
    columns: Columns | None = None,
    *,
    policy: str | None = None,
    keep: Iterable[str] = (),
    partition_by: Iterable[str] = (),
    replace: bool = False,
    resume: bool = False,
    order: Order = "random",
    charge: Charged = None,
    permanent: bool = False,
    key: Key | str | Path | None = None,
    user: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Perturb columns of a table, of files or of a frame into a file or a folder of files.

    Args:
        con: finds tables, reads and writes files; the functions of ldpsql need not be attached.
        source: the name of a table or view; a Parquet, CSV, JSON or Arrow file, a pattern with ``*``, or a folder of Parquet
            files, by its path or its URL, such as ``s3://bucket/people.parquet``; an Arrow or Polars frame or stream.
        destination: ``*.parquet``, ``*.csv``, ``*.csv.gz``, ``*.json`` or ``*.arrow`` for one file, by its path or its URL; a
            path without suffix for a folder of Parquet files, which is drawn and resumed by input file, or by row groups of it.
        columns: the mechanism of each column, or its name (see `attach`); its reports replace the column under the same name.
            The mechanism of a row, such as ``row(city=krr(...), age=...)``, stands for those of its columns.
        policy: the name of a policy in ``ldpsql.toml``, ``[tables.NAME]``, instead of ``columns`` and ``keep``.
        keep: columns whose values pass through. All others are left out.
        partition_by: columns, perturbed or kept, that become folders ``column=value/`` (Hive's layout).
        replace: replace what is at the destination; a ledger charges for the reports again.
        resume: continue a run that was killed: complete parts are not drawn again, and nothing is charged twice.
        order: 'random' shuffles all rows with cryptographic randomness, so that the position of a report reveals nothing
            about its value. 'keep' leaves them in the order of the source: choose it only if neither that order nor the number
            of rows in each file reveals anything about the perturbed values.
        charge: the ledger that is charged before the first draw; or the name of the people, for the ledger of the connection or
            of ``ldpsql.toml``. Without a charge, ``Run.uncharged`` and a warning say that the ledger of ``ldpsql.toml`` is not
            charged.
        permanent: draw the reports of `perturb_once`: a person with the same value always gives the same report, and pays once.
        key: the key of permanent reports or its file; by default that of a connection with a ledger, else of ``ldpsql.toml``.
        user: the column of user ids of permanent reports; by default that of the charge.
        progress: called after every batch with the rows done and the rows in all, None if that number is unknown.

    Raises:
        DestinationExists, DestinationRefused: if the reports cannot go there.
        UnfinishedRun: if an earlier run to this destination is unfinished, and neither to be resumed nor replaced.
        SourceRefused: if the source does not exist or cannot be read.
        UnknownName: if the source lacks a column.
        PrivacyError: if a value cannot be perturbed, or a budget would be exceeded. Then nothing is published.
        InvalidParameter: if the arguments do not fit together, or one stands in the place of another.

    """
    check_order(order)
    target = Place.of(destination_of(destination)).absolute()
    chosen = chosen_columns(columns, keep, policy, con)
    charge = chosen.charge(charge, con)
    projection = chosen.projection(charge, con, permanent=permanent, key=key, user=user)
    form = Form.of(target.path, names_of(partition_by, "partition_by"))
    check_url(target, folder=form.folder)
    check_partition(form, projection)
    opened = opened_source(con, source, projection, charge, split=form.folder)
    check_destination(target, form, projection, opened)
    chosen.check(projection, charge, opened, con)
    check_ledger(con, charge)
    drawing = Drawing(con, opened, projection, Meter(opened.rows, progress))
    task = task_of(opened, projection, form, order=order, buckets=drawing.buckets, charge=charge)
    pay = partial(charged, con, charge, opened, projection, target.shown)
    with staging_at(target, form.suffix) as staging:
        token = staging.begin(task, replace=replace, resume=resume)
        if token is None:
            token = pay(again=replace, resume=resume, shuffled=order == "random")
            staging.write_state({"task": task, "release": token, "replace": replace})
        elif is_published(charge, token, permanent=projection.permanent is not None):  # killed while it tidied up
            staging.remove()
            return Run(0, 0, len(opened.parts), token)
        elif projection.permanent is not None:  # costs nothing, and says what may be drawn
            token = staging.add_release(pay(again=False, resume=True, shuffled=False))
        with _returned_if_lost(con, charge, token, staging):
            drawing.into_files(form, staging, order)
        mark_drawn(charge, token)
        staging.publish(one_file=not form.folder)
        publish(charge, token)
        staging.remove()
    return Run(drawing.rows, drawing.parts, drawing.resumed, token, charge is None and uncharged())


@contextmanager
def _returned_if_lost(con: DuckDBPyConnection, charge: Charge | None, token: str, staging: Staging) -> Iterator[None]:
    """Run the block that draws; if it fails and leaves no part with which a later run could resume, give its charge back."""
    try:
        yield
    except BaseException:
        if charge is not None and not staging.has_parts:
            return_charge(con, charge.ledger, token, unseen=False)
        raise


@withheld
@stops_with_connection
def perturb_table(
    con: DuckDBPyConnection,
    source: Any,
    into: str,
    columns: Columns | None = None,
    *,
    policy: str | None = None,
    keep: Iterable[str] = (),
    replace: bool = False,
    append: bool = False,
    resume: bool = False,
    order: Order = "random",
    charge: Charged = None,
    permanent: bool = False,
    key: Key | str | Path | None = None,
    user: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Perturb columns of a table, of files or of a frame into a table, in one statement that writes all rows or none.

    Args:
        con: the database; the functions of ldpsql need not be attached. A cursor writes the table, in a transaction of its own.
        source: as for `perturb_copy`.
        into: the name of the table, ``name`` or ``schema.name``; without a schema, the connection's current one.
        columns: the mechanism of each column, or its name (see `attach`); its reports replace the column under the same name.
            The mechanism of a row, such as ``row(city=krr(...), age=...)``, stands for those of its columns.
        policy: the name of a policy in ``ldpsql.toml``, ``[tables.NAME]``, instead of ``columns`` and ``keep``.
        keep: columns whose values pass through. All others are left out.
        replace: replace a table of that name; a ledger charges for the reports again.
        append: add the reports to a table of that name; name the part that is added, such as a day, in the `Charge`.
        resume: do not charge again for a run that was killed; if its reports are in a table, they are not drawn again.
        order: as for `perturb_copy`.
        charge: the ledger that is charged before the first draw; or the name of the people, for the ledger of the connection or
            of ``ldpsql.toml``. Without a charge, ``Run.uncharged`` and a warning say that the ledger of ``ldpsql.toml`` is not
            charged.
        permanent: as for `perturb_copy`; a run that was killed can be repeated with ``replace``, at no cost.
        key: as for `perturb_copy`.
        user: as for `perturb_copy`.
        progress: as for `perturb_copy`.

    Raises:
        DestinationExists, DestinationRefused: if the reports cannot go there.
        OtherMechanism: if they would be appended to reports of another mechanism.
        SourceRefused: if the source does not exist or cannot be read.
        UnknownName: if the source lacks a column.
        PrivacyError: if a value cannot be perturbed, or a budget would be exceeded. Then nothing is published.
        InvalidParameter: if the arguments do not fit together, or one stands in the place of another.

    """
    check_order(order)
    name = table_name(into := destination_of(into))
    chosen = chosen_columns(columns, keep, policy, con)
    charge = chosen.charge(charge, con)
    projection = chosen.projection(charge, con, permanent=permanent, key=key, user=user)
    if replace and append:
        raise InvalidParameter("a table is either replaced or appended to", "choose one")
    there, place = is_there(con, name), f"{database_of(con)} {into}"
    if there and not (replace or append or resume):
        raise already_exists(into)
    opened = opened_source(con, source, projection, charge)
    chosen.check(projection, charge, opened, con)
    if resume and charge and (token := written_release(con, charge, opened, projection, place)):
        publish(charge, token)
        return Run(0, 0, 1, token)
    if there and not (replace or append):
        raise already_exists(into)
    if there and opened.kind == "table" and read_from(con, source) & read_from(con, name):
        raise DestinationRefused("the destination is the source itself", "write the reports into another table")
    verb = f"INSERT INTO {name} BY NAME" if append and there else f"CREATE {'OR REPLACE ' * replace}TABLE {name} AS"
    check_writable(con, verb, projection.columns)
    check_ledger(con, charge)
    marking = Marking(con, name, projection.uncertified)
    if append:
        marking.check()
    token = charged(con, charge, opened, projection, place, again=replace, resume=resume, shuffled=order == "random")
    drawing = Drawing(con, opened, projection, Meter(opened.rows, progress))
    with returned_if_unseen(con, charge, token) as mark:
        drawing.into_table(verb, order, partial(_sign, marking=marking, appended=append and there, token=token, then=mark))
    publish(charge, token)
    return Run(drawing.rows, 1, 0, token, charge is None and uncharged())


def _sign(cursor: DuckDBPyConnection, *, marking: Marking, appended: bool, token: str, then: Callable[[], None]) -> None:
    """Sign a table, and record in the ledger that COMMIT comes next: after it, others may see the reports."""
    marking.write(cursor, token, appended=appended)
    then()
