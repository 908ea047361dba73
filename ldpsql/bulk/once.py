"""Permanent reports of frames, which pay once for each value of a person."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ldpsql.bulk.charging import Charged, charge_of, publish
from ldpsql.bulk.columns.mechanisms import Columns
from ldpsql.bulk.columns.projection import Projection
from ldpsql.bulk.in_memory import DESTINATION
from ldpsql.bulk.permanent import opened, permanent_of
from ldpsql.bulk.reading.streams import batches_of, stream
from ldpsql.bulk.reported import charge_reports
from ldpsql.engine.identity import Identity
from ldpsql.errors.boundary import withheld
from ldpsql.ledger.permanent import Key
from ldpsql.registry.tables import check_policies


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
        BudgetExceeded: if somebody's budget would be exceeded. Then nothing is charged or drawn.
        KeyUnusable: if the key is of version 0.1.0, and a ledger is to be charged.

    Warns:
        UnchargedReports: once, if ``ldpsql.toml`` names a ledger and there is no charge.

    """
    charged = charge_of(charge)
    permanent = permanent_of(opened(key), user, charged)
    projection = Projection.of(columns, keep, permanent)
    named = Identity.named(charged.dataset) if charged else Identity("", ())
    check_policies(named, projection.uncertified, keep=projection.keep, permanent=True)
    reader = stream(frame, [*projection.columns, permanent.user])
    projection.read(reader.schema.names)
    schema, batches = projection.schema(reader.schema), [*batches_of(reader)]
    releases = [] if charged is None else charge_reports(charged.ledger, charged.dataset, projection, batches, DESTINATION)
    reports = pa.Table.from_batches((projection.perturb(batch, schema) for batch in batches), schema)
    publish(charged, " ".join(release.token for release in releases))
    return reports
