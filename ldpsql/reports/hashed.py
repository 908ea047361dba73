"""Reports that are a seed and a hash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Weights
from ldpsql.reports.base import MarkedReports, NumberedReports, WordReports, impossible, is_word, unsigned


@dataclass(frozen=True)
class HashReports(WordReports):
    """A seed of 64 bits and one of ``symbols`` symbols: STRUCT(seed UBIGINT, y UINTEGER) in SQL."""

    symbols: int
    mark = "hashed"
    sql_type = "STRUCT(seed UBIGINT, y UINTEGER)"
    type: ClassVar[pa.DataType] = pa.struct([("seed", pa.uint64()), ("y", pa.uint32())])

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return seed and symbol of each report."""
        seed, y = drawn[:, 0].astype(np.uint64), drawn[:, 1].astype(np.uint32)
        return pa.StructArray.from_arrays([pa.array(seed), pa.array(y)], ["seed", "y"])

    def read(self, column: pa.Array) -> Weights:
        """Return seeds and symbols; symbols must be in range."""
        if not self.possible(column).all():
            raise impossible()
        return self._words(column)

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return which symbols are in range."""
        if not pa.types.is_struct(column.type) or {field.name for field in column.type} != {"seed", "y"}:
            raise impossible()
        if not all(is_word(column.field(name).type) for name in ("seed", "y")):
            raise impossible()
        valid = [part.is_valid().to_numpy(zero_copy_only=False) for part in (column, column.field("seed"), column.field("y"))]
        fits: NDArray[np.bool_] = np.logical_and.reduce([*valid, self._words(column)[:, 1] < np.uint64(self.symbols)])
        return fits

    def _words(self, column: pa.Array) -> Weights:
        return np.stack([unsigned(column.field(name)) for name in ("seed", "y")], axis=1)

    def text(self, report: int) -> str:
        """Return the report seed * symbols + y as SQL writes it."""
        seed, y = divmod(report, self.symbols)
        return f"{{'seed': {seed}, 'y': {y}}}"


@dataclass(frozen=True)
class ListedHashReports(MarkedReports, NumberedReports):
    """One of ``seeds`` seeds, counted from 0, and a symbol: in the form of `HashReports`, numbered seed * symbols + y."""

    symbols: int
    seeds: int
    mark = HashReports.mark
    sql_type = HashReports.sql_type
    type: ClassVar[pa.DataType] = HashReports.type

    def __len__(self) -> int:
        return self.seeds * self.symbols

    @property
    def _form(self) -> HashReports:
        return HashReports(self.symbols)

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return seed and symbol of each report."""
        return self._form.to_arrow(np.stack(np.divmod(drawn, np.int32(self.symbols)), axis=1))

    def positions(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the numbers of the reports.

        Raises:
            ImpossibleReport: if a seed or a symbol is out of range, or the column cannot hold such reports.

        """
        words = self._form.read(column)
        if (words[:, 0] >= np.uint64(self.seeds)).any():
            raise impossible()
        seeds, symbols = words.astype(np.int64).T
        return seeds * self.symbols + symbols

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return which rows have seed and symbol in range."""
        fits = self._form.possible(column)
        fits[fits] = self._form.read(column.filter(pa.array(fits)))[:, 0] < np.uint64(self.seeds)
        return fits

    def text(self, report: int) -> str:
        """Return seed and symbol as SQL writes them."""
        return self._form.text(report)
