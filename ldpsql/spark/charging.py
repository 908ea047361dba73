"""Charge a ledger, a file of the driver, for a frame of Spark: before the first task draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ldpsql.bulk.charging import Charge
from ldpsql.bulk.columns import Projection
from ldpsql.bulk.sources import check_columns
from ldpsql.errors import NotReleased
from ldpsql.errors.boundary import withheld_stream
from ldpsql.ledger.permanent_charges import charge_columns_once
from ldpsql.ledger.witness import others
from ldpsql.mechanisms.base import Mechanism
from ldpsql.spark.permanent import KeyFile, reported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def charged(
    frame: DataFrame, charge: Charge | None, projection: Projection, destination: str, file: KeyFile | None = None
) -> Iterator[None]:
    """Charge for a frame, run the block, which draws and writes it, and publish; with a key, for permanent reports.

    Raises:
        BudgetExceeded: if somebody's budget would be exceeded.
        NotReleased: if the frame has rows of other users after the block: a frame is computed again at each use.

    """
    if charge is None:
        yield
        return
    if file is not None:
        with _charged_once(frame, charge, projection, destination, file):
            yield
        return
    users = _users(frame, charge.user)
    rows = None if users is not None else frame.count()
    check_values(frame, projection)
    release = charge.always(projection.uncertified, destination, users, rows)
    yield
    if users is not None and (new := others(users, _users(frame, charge.user))):
        raise _changed(f"rows of {new} users")
    charge.ledger.publish(release)


@contextmanager
def _charged_once(frame: DataFrame, charge: Charge, projection: Projection, destination: str, file: KeyFile) -> Iterator[None]:
    """Charge for permanent reports, run the block, and publish if the frame still has the same reports."""
    before = reported(frame, projection, file)
    releases = charge_columns_once(charge.ledger, charge.dataset, before, destination) if before else []
    for release in releases:
        charge.ledger.drawn(release.token)
    yield
    after = reported(frame, projection, file)
    if any(name not in before or not np.isin(one.fingerprints, before[name].fingerprints).all() for name, one in after.items()):
        raise _changed("values of users")
    for release in releases:
        charge.ledger.publish(release)


def check_values(frame: DataFrame, projection: Projection) -> None:
    """Check all values before anything is charged.

    Raises:
        MissingValue, OutsideDomain, WrongType: in Spark's words, if one cannot be perturbed.

    """
    mechanisms = projection.uncertified
    frame.select(*mechanisms).mapInArrow(lambda batches: _checked(batches, mechanisms), "checked boolean").count()


@withheld_stream
def _checked(batches: Iterable[pa.RecordBatch], mechanisms: Mapping[str, Mechanism]) -> Iterator[pa.RecordBatch]:
    projection = Projection.of(mechanisms, ())
    for batch in batches:
        projection.check(batch)
    yield pa.record_batch([pa.array([], pa.bool_())], ["checked"])


def _changed(what: str) -> NotReleased:
    return NotReleased(
        f"the frame has {what} now that were not charged for, and they may have been drawn",
        "delete the folder, write the rows into a table or a file first, and perturb the frame that reads it",
    )


def _users(frame: DataFrame, user: str | None) -> pa.ChunkedArray | None:
    """Return the user ids of all rows, None if each row is a person."""
    if user is None:
        return None
    check_columns([user], frame.columns)
    return frame.select(user).toArrow().column(0)
