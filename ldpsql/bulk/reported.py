"""The permanent reports of batches: which there are, and their charge, once for each value of a person."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from ldpsql.bulk.columns.projection import Projection, drawn
from ldpsql.bulk.permanent import Permanent
from ldpsql.engine.identity import Identity
from ldpsql.ledger import Ledger, Release
from ldpsql.ledger.digests import DIGEST
from ldpsql.ledger.permanent_charges import Reported, charge_columns_once
from ldpsql.mechanisms.base import CertifiedMechanism


def charge_reports(
    ledger: Ledger, dataset: str | Identity, projection: Projection, batches: Iterable[pa.RecordBatch], destination: str
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
    nothing = np.array([], dtype=DIGEST)
    charged = {name: reported[name].fingerprints if name in reported else nothing for name in projection.mechanisms}
    projection.permanent.charged.update(charged)
    if not reported:
        return []
    return charge_columns_once(ledger, dataset, reported, destination)


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
    """Return the permanent reports of a column of a batch."""
    people = permanent.people(batch)
    each = drawn(certified, batch.column(name), name, lambda one, values: permanent.fingerprints(one, values, people, name))
    return Reported.of(certified, each, people)


def _together(parts: list[Reported]) -> Reported:
    if len(parts) == 1:
        return parts[0]
    fingerprints = np.concatenate([part.fingerprints for part in parts])
    return Reported.of(parts[0].certified, fingerprints, pa.concat_arrays([part.people for part in parts]))
