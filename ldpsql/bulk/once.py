"""Permanent reports of frames: the same person with the same value gives the same report, and pays for it once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ldpsql.bulk.batches import Columns, Projection, batches_of, check_columns, drawn, stream
from ldpsql.bulk.charging import Charge, Charged, charge_of
from ldpsql.bulk.in_memory import DESTINATION
from ldpsql.bulk.kept import kept
from ldpsql.domains.columns import plain
from ldpsql.errors import InvalidParameter
from ldpsql.errors.boundary import withheld
from ldpsql.ledger import Ledger, Release
from ldpsql.ledger.lasting import charge_once
from ldpsql.ledger.people import id_bytes
from ldpsql.ledger.permanent import Key
from ldpsql.mechanisms.base import CertifiedMechanism


@withheld
def perturb_once(
    frame: Any,
    columns: Columns,
    *,
    key: Key | str | Path,
    user: str,
    keep: Iterable[str] = (),
    charge: Charged = None,
) -> pa.Table:
    """Return the permanent report of each value: those of ``ldp.perturb_once`` in SQL with the name of the column.

    Rows stay in their order. A ledger charges each person once for each value of a column, whenever it is first reported.

    Args:
        frame: an Arrow table or stream, or a Polars or pandas frame.
        columns: the mechanism of each column; its reports replace the column under its name.
        key: the key of the reports, or the path of its file.
        user: the column of user ids. It is left out of the result unless ``keep`` names it.
        keep: columns whose values pass through.
        charge: the ledger that is charged, by user, before anything is drawn; or the name of the people, for the ledger of
            ``ldpsql.toml``.

    Raises:
        UnknownName, SourceRefused: if a column is missing, or occurs twice, or the stream fails.
        MissingValue, OutsideDomain, WrongType: if a value cannot be perturbed.
        InvalidParameter: if the charge is by other people than those of ``user``, or for a part.
        BudgetExceeded: if somebody's budget would be exceeded. Columns before it may be charged; nothing is drawn.
        KeyUnusable: if the key is of version 0.1.0, and a ledger is to be charged.

    Warns:
        UnchargedReports: once, if ``ldpsql.toml`` names a ledger and there is no charge.

    """
    projection, charged = Projection.of(columns, keep), _by_user(charge_of(charge), user)
    secret = Key.read(key) if isinstance(key, str | Path) else key
    if not isinstance(secret, Key):
        raise InvalidParameter("a key must be a path or an opened key", "Key.read(path)")
    if not isinstance(user, str):
        raise InvalidParameter("permanent reports need the column of user ids", "user='id'")
    reader = stream(frame, [*projection.columns, user])
    check_columns([user], reader.schema.names)
    schema, table = projection.schema(reader.schema), pa.Table.from_batches(batches_of(reader), reader.schema)
    if not len(table):
        return schema.empty_table()
    people = id_bytes(table.column(user))
    releases = [] if charged is None else _charge(charged, table, projection, secret, people)
    arrays = [_column(table.column(name), name, projection, secret, people) for name in schema.names]
    for ledger, release in releases:
        ledger.publish(release)
    return pa.Table.from_arrays(arrays, schema=schema)


def _by_user(charge: Charge | None, user: str) -> Charge | None:
    if charge is not None and charge.user not in (None, user):
        raise InvalidParameter("permanent reports are charged to the people who give them", "name the same column of user ids")
    if charge is not None and charge.part:
        raise InvalidParameter("permanent reports are charged once, over all parts of the data", "leave out part")
    return charge


def _charge(
    charge: Charge, table: pa.Table, projection: Projection, key: Key, people: pa.Array
) -> list[tuple[Ledger, Release]]:
    """Charge for each column, and return the releases."""
    once = partial(charge_once, charge.ledger, charge.dataset, destination=DESTINATION, key=key, users=people)
    columns = projection.uncertified.items()
    return [(charge.ledger, once(name, mechanism, values=plain(table.column(name)))) for name, mechanism in columns]


def _column(column: pa.ChunkedArray, name: str, projection: Projection, key: Key, people: pa.Array) -> pa.Array:
    mechanism = projection.mechanisms.get(name)
    if mechanism is None:
        return kept(column.combine_chunks())

    def draw(certified: CertifiedMechanism, values: pa.Array) -> pa.Array:
        return certified.shown(key.draw(certified, values, people, name))

    return drawn(mechanism, plain(column), name, draw)
