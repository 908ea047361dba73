"""Charges for reports that stay in memory: no file or table holds them, so the ledger charges whenever they are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import polars as pl
import pyarrow as pa

from ldpsql.bulk.charging import Charge
from ldpsql.domains.arrays import is_pandas_frame
from ldpsql.ledger import Release
from ldpsql.mechanisms.base import Mechanism

DESTINATION = "memory"
_KEY = "ldpsql.release"
_UNCHARGED = "uncharged"


def is_held(frame: Any) -> bool:
    """Return whether all rows of a frame are in memory, so that their users can be read before the values."""
    return isinstance(frame, pa.Table | pl.DataFrame) or is_pandas_frame(frame)


class Charging:
    """The charge of a stream: one for all of its rows, or, if the users are not known before, one for those of each batch."""

    def __init__(self, charge: Charge | None, columns: Mapping[str, Mechanism]) -> None:
        self._charge, self._columns = charge, columns
        self._release: Release | None = None
        self.user = charge.user if charge else None

    def whole(self, users: pa.ChunkedArray | None = None, rows: int | None = None) -> None:
        """Charge for all rows before the first one is drawn; without users, each row is a person."""
        if self._charge is not None and rows != 0:
            self._release = self._charge.always(self._columns, DESTINATION, users, rows)

    @property
    def by_batch(self) -> bool:
        """Whether each batch is charged before it is drawn."""
        return self._charge is not None and self._release is None and self.user is not None

    @contextmanager
    def drawing(self, batch: pa.RecordBatch) -> Iterator[None]:
        """Charge the users of a batch, unless all rows are charged already, and then run the block, which draws it."""
        release = None
        if self._charge is not None and self.by_batch and batch.num_rows:
            release = self._charge.always(self._columns, DESTINATION, batch.column(self.user))
        yield
        self._publish(release)

    def end(self) -> None:
        """Record that all rows were drawn."""
        self._publish(self._release)

    def _publish(self, release: Release | None) -> None:
        if release is not None and self._charge is not None:
            self._charge.ledger.publish(release)

    def metadata(self, *, uncharged: bool) -> dict[str, str]:
        """Return the metadata of a schema that record the release of its reports, or that a ledger was not charged."""
        if self._release is not None:
            return {_KEY: self._release.token}
        return {_KEY: _UNCHARGED} if uncharged else {}
