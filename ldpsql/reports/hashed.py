"""Reports that are a seed and a hash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Weights
from ldpsql.reports.base import Floats, WordReports, counted, impossible, unsigned


@dataclass(frozen=True)
class HashReports(WordReports):
    """A seed and a symbol: STRUCT(seed UBIGINT, y UINTEGER) in SQL.

    With ``listed`` seeds there are only so many, and a report is the number seed * symbols + y.
    """

    symbols: int
    listed: int | None = None
    marker: ClassVar[str] = "{'hashed': 1}"
    type: ClassVar[pa.DataType] = pa.struct([("seed", pa.uint64()), ("y", pa.uint32())])

    def __len__(self) -> int:
        return (self.listed or 0) * self.symbols

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return seed and symbol of each report."""
        if self.listed is not None:
            drawn = np.stack(np.divmod(drawn, np.int32(self.symbols)), axis=1)
        seed, y = drawn[:, 0].astype(np.uint64), drawn[:, 1].astype(np.uint32)
        return pa.StructArray.from_arrays([pa.array(seed), pa.array(y)], ["seed", "y"])

    def read(self, column: pa.Array) -> Weights:
        """Return seed and symbol; both must be in range."""
        if not self.possible(column).all():
            raise impossible()
        return self._words(column)

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Tell which seeds and symbols are in range."""
        if not pa.types.is_struct(column.type) or {field.name for field in column.type} != {"seed", "y"}:
            raise impossible()
        if not all(pa.types.is_integer(column.field(name).type) for name in ("seed", "y")):
            raise impossible()
        words = self._words(column)
        known = [part.is_valid().to_numpy(zero_copy_only=False) for part in (column, column.field("seed"), column.field("y"))]
        listed = np.ones(len(words), dtype=np.bool_) if self.listed is None else words[:, 0] < np.uint64(self.listed)
        fits: NDArray[np.bool_] = np.logical_and.reduce([*known, listed, words[:, 1] < np.uint64(self.symbols)])
        return fits

    def _words(self, column: pa.Array) -> Weights:
        return np.stack([unsigned(column.field(name).fill_null(0)) for name in ("seed", "y")], axis=1)

    def counts(self, column: pa.Array, numbers: Floats, group: NDArray[np.int64], groups: int) -> Floats:
        """Count the reports of each group, shape (groups, reports): for listed seeds."""
        return counted(group * len(self) + self.positions(column), numbers, groups, len(self))

    def positions(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the numbers of reports with listed seeds."""
        words = self.read(column).astype(np.int64)
        return words[:, 0] * self.symbols + words[:, 1]

    def text(self, report: int) -> str:
        """Return seed and symbol as SQL writes them."""
        seed, y = divmod(report, self.symbols)
        return f"{{'seed': {seed}, 'y': {y}}}"
