"""Reports that are a level, a seed, and the response to a hash: of a node of a tree, or of a prefix of a string."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Weights
from ldpsql.channels.prefixes import SEEDS
from ldpsql.names import KEPT
from ldpsql.reports.base import MarkedReports, NumberedReports, WordReports, impossible, unsigned

# Reports that are a level, a seed and the hash of a prefix.

_PREFIX_FIELDS = ("level", "seed", "y")
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
        kinds = (np.uint8, np.uint32, np.uint16)
        parts = [pa.array(part.astype(kind)) for part, kind in zip(drawn.T, kinds, strict=True)]
        return pa.StructArray.from_arrays(parts, list(_PREFIX_FIELDS))

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return which levels, seeds and symbols are in range."""
        limits = np.array([self.levels, SEEDS, self.symbols], dtype=np.uint64)
        return _whole(column) & (self.words_of(column) < limits).all(axis=1)

    def words_of(self, column: pa.Array) -> Weights:
        """Return levels, seeds and symbols."""
        if pa.types.is_struct(column.type):
            return np.stack([unsigned(column.field(name).fill_null(0)) for name in _PREFIX_FIELDS], axis=1)
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
    if not pa.types.is_struct(column.type) or {field.name for field in column.type} != set(_PREFIX_FIELDS):
        raise impossible()
    if not all(pa.types.is_integer(column.field(name).type) for name in _PREFIX_FIELDS):
        raise impossible()
    valid = [part.is_valid().to_numpy(zero_copy_only=False) for part in (column, *map(column.field, _PREFIX_FIELDS))]
    return np.asarray(np.logical_and.reduce(valid))


MOST_SYMBOLS = 1 << 16  # that the field y can hold
_BLOCK = 1 << 15  # reports at a time, so that what is computed on the way stays in the cache
_MOST_LISTED = 1 << 23  # reports whose levels are listed
_FIELDS = {field.type: field.type.to_pandas_dtype() for field in PrefixReports.type}


@dataclass(frozen=True)
class NodeReports(MarkedReports, NumberedReports):
    """A level, one of its seeds and one of its symbols, counted from 0: in the form of `PrefixReports`.

    Reports are numbered level by level, seed by seed.

    Args:
        seeds: the number of seeds of each level.
        symbols: the number of symbols of each level.

    """

    seeds: tuple[int, ...]
    symbols: tuple[int, ...]
    mark = PrefixReports.mark
    sql_type, counted = PrefixReports.sql_type, PrefixReports.counted
    type: ClassVar[pa.DataType] = PrefixReports.type

    def __len__(self) -> int:
        return int(self._starts[-1])

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """The number of the first report of each level, and behind them the number of all reports."""
        return np.cumsum([0, *(seeds * symbols for seeds, symbols in zip(self.seeds, self.symbols, strict=True))])

    @property
    def _form(self) -> PrefixReports:
        return PrefixReports(len(self.seeds), max(self.symbols))

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        blocks = [self._fields(drawn[start : start + _BLOCK]) for start in range(0, max(1, len(drawn)), _BLOCK)]
        return self.column(*(blocks[0] if len(blocks) == 1 else map(np.concatenate, zip(*blocks, strict=True))))

    def column(self, *fields: NDArray[np.integer]) -> pa.Array:
        """Return reports, given as levels, seeds and symbols."""
        cells = [field.astype(number, copy=False) for field, number in zip(fields, _FIELDS.values(), strict=True)]
        children = [
            pa.Array.from_buffers(kind, len(each), [None, pa.py_buffer(each)])
            for kind, each in zip(_FIELDS, cells, strict=True)
        ]
        return pa.Array.from_buffers(self.type, len(fields[0]), [None], children=children)

    def _fields(self, drawn: Drawn) -> tuple[NDArray[np.uint8], NDArray[np.uint32], NDArray[np.uint16]]:
        """Return level, seed and symbol of some reports."""
        numbers = drawn.astype(np.uint32, copy=False)
        levels = self._levels(numbers)
        places = levels.astype(np.intp)
        starts, symbols, shifts = self._in_level
        within = numbers - starts.take(places)
        own = symbols.take(places)
        if shifts is not None:
            seeds = within >> shifts.take(places)
            own -= np.uint32(1)
            own &= within
        else:
            seeds = within // own
            own *= seeds
            np.subtract(within, own, out=own)
        return levels, seeds, own.astype(np.uint16)

    @cached_property
    def _in_level(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32] | None]:
        """The number of the first report of each level, its symbols, and their logarithms if all are powers of two."""
        symbols = np.array(self.symbols, dtype=np.uint32)
        halved = not (symbols & symbols - np.uint32(1)).any()
        return self._starts[:-1].astype(np.uint32), symbols, np.log2(symbols).astype(np.uint32) if halved else None

    def _levels(self, drawn: NDArray[np.uint32]) -> NDArray[np.uint8]:
        """Return the level of each report."""
        if self._listed_levels is not None:
            return self._listed_levels.take(drawn // self._unit)
        out = np.zeros(len(drawn), dtype=np.uint8)
        for start in self._starts[1:-1]:
            out += drawn >= start
        return out

    @cached_property
    def _unit(self) -> np.uint32:
        """A number of consecutive reports whose level is the same, as it divides the numbers of reports of all levels."""
        return np.uint32(np.gcd.reduce(np.diff(self._starts)))

    @cached_property
    def _listed_levels(self) -> NDArray[np.uint8] | None:
        """The level of every unit of reports; None if there are too many."""
        if len(self) > _MOST_LISTED:
            return None
        return np.repeat(np.arange(len(self.seeds), dtype=np.uint8), np.diff(self._starts) // int(self._unit))

    def positions(self, column: pa.Array) -> NDArray[np.int64]:
        if not self.possible(column).all():
            raise impossible()
        levels, seeds, symbols = self._form.read(column).astype(np.int64).T
        return np.asarray(self._starts[levels] + seeds * np.array(self.symbols)[levels] + symbols)

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return which rows have level, seed and symbol in range."""
        fits = self._form.possible(column)
        levels, seeds, symbols = self._form.read(column.filter(pa.array(fits))).astype(np.int64).T
        fits[fits] = (seeds < np.array(self.seeds)[levels]) & (symbols < np.array(self.symbols)[levels])
        return fits

    def text(self, report: int) -> str:
        level = int(self._levels(np.array([report], dtype=np.uint32))[0])
        seed, y = divmod(report - int(self._starts[level]), self.symbols[level])
        return f"{{'level': {level}, 'seed': {seed}, 'y': {y}}}"
