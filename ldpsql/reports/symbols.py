"""Reports that are numbers, in the form of sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn
from ldpsql.reports.base import MarkedReports, NumberedReports, impossible
from ldpsql.reports.sets import SetReports


@dataclass(frozen=True)
class SymbolReports(MarkedReports, NumberedReports):
    """Reports as numbers, each in a list of one word: for a mechanism that may report words or symbols, UBIGINT[] in SQL."""

    symbols: int
    mark = SetReports.mark
    sql_type = SetReports.sql_type
    counted = SetReports.counted
    type: ClassVar[pa.DataType] = SetReports.type

    def __len__(self) -> int:
        return self.symbols

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return draws of the channel as a column."""
        return pa.ListArray.from_arrays(pa.array(np.arange(len(drawn) + 1, dtype=np.int32)), pa.array(drawn.astype(np.uint64)))

    def positions(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the numbers.

        Raises:
            ImpossibleReport: if one is out of range, or the column cannot hold such reports.

        """
        if not self.possible(column).all():
            raise impossible()
        return SetReports(64).read(column)[:, 0].astype(np.int64)

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Tell which rows hold the number of a symbol.

        Raises:
            ImpossibleReport: where the column's type cannot hold reports.

        """
        fits = SetReports(64).possible(column)
        fits[fits] = SetReports(64).read(column.filter(pa.array(fits)))[:, 0] < np.uint64(self.symbols)
        return fits

    def text(self, report: int) -> str:
        """Return one report as a list."""
        return f"[{report}]"
