"""Some columns of reports of several: what answers about few columns are estimated from, without paying for the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import KeepOrSpread
from ldpsql.domains.product import Product
from ldpsql.errors import InternalError
from ldpsql.inference.counting import likelihoods, possible
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.margins import margin
from ldpsql.mechanisms.base import CertifiedRow, Mechanism, certify
from ldpsql.mechanisms.parts import ColumnMechanism, Parts
from ldpsql.mechanisms.rows import RowMechanism


@dataclass(frozen=True)
class SomeColumns:
    """Reports of several columns, of which only some columns count, given by rising numbers.

    Reports of these columns of a row are reports of the row mechanism of these columns. Of k-RR over whole rows, they are those
    of a k-RR over the rows of these columns that keeps more often.
    """

    mechanism: Mechanism
    places: tuple[int, ...]

    @classmethod
    def of(cls, mechanism: Mechanism, places: Sequence[int]) -> SomeColumns | None:
        """Return the reports of some columns; None if these are all columns, or the others cannot be left out."""
        certified = certify(mechanism)
        values = certified.values
        if not isinstance(values, Product) or not places or len(places) == len(values.names):
            return None
        apart = isinstance(mechanism, RowMechanism) or isinstance(certified.response, KeepOrSpread)
        return cls(mechanism, tuple(sorted(places))) if apart else None

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self.mechanism.name

    @property
    def values(self) -> Product:
        """The cells of the table of these columns."""
        whole = certify(self.mechanism).values
        if not isinstance(whole, Product):
            raise InternalError("a mechanism of one column has no other columns", "make these by SomeColumns.of")
        return whole.margin(self.places)

    @property
    def epsilon(self) -> float:
        """The realised epsilon of a whole row."""
        return certify(self.mechanism).epsilon

    def likelihoods(self, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield the likelihoods of these columns, each with the groups whose counts it holds; other groups report none of them.

        Raises:
            ImpossibleReport: if a report of these columns cannot occur.

        """
        row = certify(self.mechanism)
        if isinstance(row, CertifiedRow) and isinstance(self.mechanism, RowMechanism):
            own = self._counts(row, counts)
            yield from likelihoods(self._own(row, type(self.mechanism)), own) if len(own.groups) else ()
            return
        for groups, whole in likelihoods(self.mechanism, counts):
            part = margin(whole, self.places)
            if part is not None:
                yield groups, part

    def possible(self, reports: pa.Array) -> NDArray[np.bool_]:
        """Return which reports can occur, in all columns."""
        return possible(self.mechanism, reports)

    def _own(self, row: CertifiedRow, kind: type[RowMechanism]) -> Mechanism:
        """Return the mechanism of these columns: that of the one column, or a row of several."""
        if len(self.places) == 1:
            return row.parts[self.places[0]].mechanism
        return kind(
            columns=Parts(ColumnMechanism(row.values.names[place], row.parts[place].mechanism) for place in self.places)
        )

    def _counts(self, row: CertifiedRow, counts: GroupedCounts) -> GroupedCounts:
        """Return the counts of the reports of these columns, without rows that report none of them."""
        each = row.reports.fields(counts.reports)
        columns = [each[place] for place in self.places]
        reported = np.any([column.is_valid().to_numpy(zero_copy_only=False) for column in columns], axis=0)
        names = [row.reports.names[place] for place in self.places]
        reports = columns[0] if len(columns) == 1 else pa.StructArray.from_arrays(columns, names)
        some = GroupedCounts(reports, counts.numbers, counts.group, counts.groups).select(np.flatnonzero(reported))
        if any(column.null_count for column in columns):
            return some  # rows that report different columns are recognised later
        first, sums = some.merge()
        return GroupedCounts(some.reports.take(pa.array(first)), sums, some.group[first], some.groups)
