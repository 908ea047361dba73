"""Permanent reports of frames and runs, which pay once for each value of a person."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.bulk.batches import batches_of, stream
from ldpsql.bulk.charging import Charge, Charged, charge_of, publish
from ldpsql.bulk.columns import Columns
from ldpsql.bulk.in_memory import DESTINATION
from ldpsql.bulk.permanent import Permanent, opened, permanent_of
from ldpsql.bulk.projection import Projection, drawn
from ldpsql.errors.boundary import withheld
from ldpsql.ledger import Release
from ldpsql.ledger.datasets import Dataset
from ldpsql.ledger.lasting import Reported, charge_columns_once
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
        BudgetExceeded: if somebody's budget would be exceeded. Then nothing is charged or drawn.
        KeyUnusable: if the key is of version 0.1.0, and a ledger is to be charged.

    Warns:
        UnchargedReports: once, if ``ldpsql.toml`` names a ledger and there is no charge.

    """
    charged = charge_of(charge)
    permanent = permanent_of(opened(key), user, charged)
    projection = Projection.of(columns, keep, permanent)
    reader = stream(frame, [*projection.columns, permanent.user])
    projection.read(reader.schema.names)
    schema, batches = projection.schema(reader.schema), [*batches_of(reader)]
    releases = [] if charged is None else charge_reports(charged, charged.dataset, projection, batches, DESTINATION)
    reports = pa.Table.from_batches((projection.perturb(batch, schema) for batch in batches), schema)
    publish(charged, " ".join(release.token for release in releases))
    return reports


def charge_reports(
    charge: Charge, dataset: str | Dataset, projection: Projection, batches: Iterable[pa.RecordBatch], destination: str
) -> list[Release]:
    """Charge for the permanent reports of batches, and let the projection draw no others.

    Returns:
        the release of each column; none if there are no rows.

    Raises:
        BudgetExceeded: if somebody's budget would be exceeded; then nothing is charged.

    """
    reported = reported_in(projection, batches)
    if projection.permanent is None:
        return []
    nothing = np.array([], dtype="S16")
    charged = {name: np.unique(reported[name].fingerprints) if name in reported else nothing for name in projection.mechanisms}
    projection.permanent.charged.update(charged)
    if not reported:
        return []
    return charge_columns_once(charge.ledger, dataset, reported, destination)


def reported_in(projection: Projection, batches: Iterable[pa.RecordBatch]) -> dict[str, Reported]:
    """Return the permanent reports of each column of batches; nothing if there are no rows."""
    seen: dict[str, list[Reported]] = {name: [] for name in projection.mechanisms}
    permanent = projection.permanent
    for batch in batches:
        if permanent is not None and batch.num_rows:
            for name, certified in projection.mechanisms.items():
                seen[name].append(_distinct(batch, name, certified, permanent))
    return {name: _together(parts) for name, parts in seen.items() if parts}


def _distinct(batch: pa.RecordBatch, name: str, certified: CertifiedMechanism, permanent: Permanent) -> Reported:
    """Return the distinct permanent reports of a column of a batch."""
    people = permanent.people(batch)
    each = drawn(certified, batch.column(name), name, lambda one, values: permanent.fingerprints(one, values, people, name))
    fingerprints, first = np.unique(each, return_index=True)
    return Reported(certified, fingerprints, people.take(pa.array(first)))


def _together(parts: list[Reported]) -> Reported:
    fingerprints = np.concatenate([part.fingerprints for part in parts])
    return Reported(parts[0].certified, fingerprints, pa.concat_arrays([part.people for part in parts]))
