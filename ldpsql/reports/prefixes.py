"""Reports that are a level, a seed and the hash of a prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Weights
from ldpsql.channels.prefixes import SEEDS
from ldpsql.reports.base import WordReports, impossible, unsigned

_FIELDS = ("level", "seed", "y")


@dataclass(frozen=True)
class PrefixReports(WordReports):
    """One of ``levels`` levels, a seed of 32 bits, one of ``symbols`` symbols: STRUCT(level, seed, y) in SQL."""

    levels: int
    symbols: int
    mark = "prefixed"
    sql_type = 'STRUCT("level" UTINYINT, seed UINTEGER, y USMALLINT)'
    type: ClassVar[pa.DataType] = pa.struct([("level", pa.uint8()), ("seed", pa.uint32()), ("y", pa.uint16())])

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return level, seed and symbol of each report."""
        kinds = (np.uint8, np.uint32, np.uint16)
        parts = [pa.array(part.astype(kind)) for part, kind in zip(drawn.T, kinds, strict=True)]
        return pa.StructArray.from_arrays(parts, list(_FIELDS))

    def read(self, column: pa.Array) -> Weights:
        """Return levels, seeds and symbols, which must be in range."""
        if not self.possible(column).all():
            raise impossible()
        return self._words(column)

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return which levels, seeds and symbols are in range."""
        if not pa.types.is_struct(column.type) or {field.name for field in column.type} != set(_FIELDS):
            raise impossible()
        if not all(pa.types.is_integer(column.field(name).type) for name in _FIELDS):
            raise impossible()
        valid = [part.is_valid().to_numpy(zero_copy_only=False) for part in (column, *map(column.field, _FIELDS))]
        limits = np.array([self.levels, SEEDS, self.symbols], dtype=np.uint64)
        fits: NDArray[np.bool_] = np.logical_and.reduce([*valid, (self._words(column) < limits).all(axis=1)])
        return fits

    def _words(self, column: pa.Array) -> Weights:
        return np.stack([unsigned(column.field(name).fill_null(0)) for name in _FIELDS], axis=1)

    def text(self, report: int) -> str:
        """Return the report (level * SEEDS + seed) * symbols + y as SQL writes it."""
        rest, y = divmod(report, self.symbols)
        level, seed = divmod(rest, SEEDS)
        return f"{{'level': {level}, 'seed': {seed}, 'y': {y}}}"
