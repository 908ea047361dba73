"""Reports that are a level, a seed and the hash of a prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Weights
from ldpsql.channels.prefixes import SEEDS
from ldpsql.names import KEPT
from ldpsql.reports.base import WordReports, impossible, unsigned

_FIELDS = ("level", "seed", "y")
_MARK = 0x4C  # the highest byte of a report that is packed into a word
# Equal words are counted in half the time of equal structs. A field that is NULL makes a word without the mark, and the lambda
# mentions the report once.
_PACKED = f"""list_transform([report], lambda r: CASE WHEN r IS NOT NULL THEN
    coalesce({_MARK << 56}::UBIGINT | ((r).level::UBIGINT << 48) | ((r).seed::UBIGINT << 16) | (r).y, 0) END)[1]"""


@dataclass(frozen=True)
class PrefixReports(WordReports):
    """One of ``levels`` levels, a seed of 32 bits, one of ``symbols`` symbols: STRUCT(level, seed, y) in SQL.

    Aggregates count such reports as words: from the highest byte on a mark, the level, the seed and the symbol.
    """

    levels: int
    symbols: int
    mark = "prefixed"
    sql_type = 'STRUCT("level" UTINYINT, seed UINTEGER, y USMALLINT)'
    counted = f"histogram({_PACKED}) FILTER (WHERE {KEPT}(keep))"
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
        limits = np.array([self.levels, SEEDS, self.symbols], dtype=np.uint64)
        return _whole(column) & (self._words(column) < limits).all(axis=1)

    def _words(self, column: pa.Array) -> Weights:
        if pa.types.is_struct(column.type):
            return np.stack([unsigned(column.field(name).fill_null(0)) for name in _FIELDS], axis=1)
        packed = unsigned(column)
        fields = ((48, 0xFF), (16, 0xFFFFFFFF), (0, 0xFFFF))
        return np.stack([packed >> np.uint64(shift) & np.uint64(mask) for shift, mask in fields], axis=1)

    def text(self, report: int) -> str:
        """Return the report (level * SEEDS + seed) * symbols + y as SQL writes it."""
        rest, y = divmod(report, self.symbols)
        level, seed = divmod(rest, SEEDS)
        return f"{{'level': {level}, 'seed': {seed}, 'y': {y}}}"


def _whole(column: pa.Array) -> NDArray[np.bool_]:
    """Return which rows have a level, a seed and a symbol.

    Raises:
        ImpossibleReport: if the column's type cannot hold such reports.

    """
    if column.type == pa.uint64():
        return unsigned(column) >> np.uint64(56) == _MARK
    if not pa.types.is_struct(column.type) or {field.name for field in column.type} != set(_FIELDS):
        raise impossible()
    if not all(pa.types.is_integer(column.field(name).type) for name in _FIELDS):
        raise impossible()
    valid = [part.is_valid().to_numpy(zero_copy_only=False) for part in (column, *map(column.field, _FIELDS))]
    return np.asarray(np.logical_and.reduce(valid))
