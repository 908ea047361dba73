"""Reports that are a level of a tree, a seed, and the response to a hash of the node, few enough to be numbered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn
from ldpsql.reports.base import MarkedReports, NumberedReports, impossible
from ldpsql.reports.prefixes import PrefixReports

MOST_SYMBOLS = 1 << 16  # that the field y can hold


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
    sql_type = PrefixReports.sql_type
    type: ClassVar[pa.DataType] = PrefixReports.type

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def _starts(self) -> NDArray[np.int64]:
        """The number of the first report of each level, and behind them the number of all reports."""
        return np.cumsum([0, *(seeds * symbols for seeds, symbols in zip(self.seeds, self.symbols, strict=True))])

    @property
    def _form(self) -> PrefixReports:
        return PrefixReports(len(self.seeds), max(self.symbols))

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return level, seed and symbol of each report."""
        levels = self._levels(drawn)
        within = drawn - self._starts[levels].astype(drawn.dtype)
        symbols = np.array(self.symbols, dtype=drawn.dtype)[levels]
        seeds = within // symbols
        columns = {"level": levels.astype(np.uint8), "seed": seeds.astype(np.uint32)}
        columns["y"] = (within - seeds * symbols).astype(np.uint16)
        return pa.StructArray.from_arrays([pa.array(column) for column in columns.values()], list(columns))

    def _levels(self, drawn: Drawn) -> NDArray[np.uint8]:
        """Return the level of each report."""
        out = np.zeros(len(drawn), dtype=np.uint8)
        for start in self._starts[1:-1]:
            out += drawn >= start
        return out

    def positions(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the numbers of the reports.

        Raises:
            ImpossibleReport: if a level, a seed or a symbol is out of range, or the column cannot hold such reports.

        """
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
        """Return level, seed and symbol as SQL writes them."""
        level = int(self._levels(np.array([report]))[0])
        seed, y = divmod(report - int(self._starts[level]), self.symbols[level])
        return f"{{'level': {level}, 'seed': {seed}, 'y': {y}}}"
