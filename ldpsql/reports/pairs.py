"""Reports that are a key and what is said of its value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn
from ldpsql.domains.columns import plain
from ldpsql.domains.domain import Domain
from ldpsql.domains.sql_numbers import whole
from ldpsql.quoting import quoted
from ldpsql.reports.base import Floats, NumberedReports, counted, impossible


@dataclass(frozen=True)
class PairReports(NumberedReports):
    """A key and what is said of its value, ``told``: its sign or the number of a bin. STRUCT(key, sign) in SQL.

    Both are NULL in the report of a dummy; it is not told which of the ``dummies`` it was.
    """

    keys: Domain
    dummies: int
    cells: int
    told: str

    def __len__(self) -> int:
        return (len(self.keys) + self.dummies) * self.cells

    @property
    def type(self) -> pa.DataType:
        """The type of a column of such reports."""
        return pa.struct([("key", self.keys.values.type), (self.told, pa.int8() if self.told == "sign" else pa.int16())])

    def told_apart(self, drawn: Drawn) -> Drawn:
        """Return draws of the channel as positions among the reports that differ: those of all dummies are the last one."""
        return np.minimum(drawn, np.int32(len(self.keys) * self.cells))

    @staticmethod
    def sql(keys: str, bins: str | None = None) -> str:
        """Return the list of `distinct` in SQL, as parameters give the keys and, unless signs are reported, the bins."""
        told, cells = "sign", "[1::TINYINT, -1::TINYINT]"
        if bins is not None:
            told, cells = "bin", f"range({whole(bins)})::SMALLINT[]"
        pairs = f"list_transform({cells}, lambda c: {{'key': k, '{told}': c}})"
        return f"list_concat(flatten(list_transform({quoted(keys)}, lambda k: {pairs})), [{{'key': NULL, '{told}': NULL}}])"

    def distinct(self) -> pa.Array:
        """Return the reports that differ, in the order of those positions."""
        return self.to_arrow(np.arange(len(self.keys) * self.cells + 1, dtype=np.int32))

    def parts(self, drawn: Drawn) -> tuple[pa.Array, pa.Array]:
        """Return the positions of the keys, and what is told, NULL for dummies."""
        key, cell = np.divmod(drawn.astype(np.int32), np.int32(self.cells))
        dummy = key >= len(self.keys)
        said = 1 - 2 * cell if self.told == "sign" else cell
        return pa.array(key, mask=dummy), pa.array(said.astype(np.int8 if self.told == "sign" else np.int16), mask=dummy)

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return draws of the channel as a column."""
        key, said = self.parts(drawn)
        return pa.StructArray.from_arrays([self.keys.values.take(key), said], ["key", self.told])

    def counts(self, column: pa.Array, numbers: Floats, group: NDArray[np.int64], groups: int) -> Floats:
        """Count the symbols of each group, shape (groups, symbols); dummies are spread evenly, for nothing tells them apart.

        Raises:
            ImpossibleReport: where the column cannot hold such reports.

        """
        dummy, at, cell, fits = self._read(column)
        if not fits.all():
            raise impossible()
        real = len(self.keys) * self.cells
        symbol = np.where(dummy, real, at * self.cells + cell)
        symbols = counted(group * (real + 1) + symbol, numbers, groups, real + 1)
        spread = self.dummies * self.cells
        return np.concatenate([symbols[:, :real], np.repeat(symbols[:, real:] / spread, spread, axis=1)], axis=1)

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Tell which rows hold a declared key and something that can be told of it, or are those of a dummy.

        Raises:
            ImpossibleReport: where the column's type cannot hold reports.

        """
        return self._read(column)[3]

    def _read(self, column: pa.Array) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Return which reports are those of dummies, the positions of keys and symbols, and which can occur."""
        if not pa.types.is_struct(column.type) or {field.name for field in column.type} != {"key", self.told}:
            raise impossible()
        fields = dict(zip([field.name for field in column.type], column.flatten(), strict=True))
        key, said = plain(fields["key"]), fields[self.told]
        if not pa.types.is_integer(said.type) and not pa.types.is_null(said.type):
            raise impossible()
        located = self.keys.locate(key)
        at = located.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        told = said.cast(pa.int64(), safe=False).fill_null(1).to_numpy(zero_copy_only=False)
        cell = (1 - told) // 2 if self.told == "sign" else told
        known = np.isin(told, [-1, 1]) if self.told == "sign" else (told >= 0) & (told < self.cells)
        missing = [part.is_null().to_numpy(zero_copy_only=False) for part in (column, key, said)]
        dummy: NDArray[np.bool_] = missing[1] & missing[2] & ~missing[0]
        whole = located.is_valid().to_numpy(zero_copy_only=False) & ~missing[2] & known
        return dummy, at, cell, dummy | whole

    def text(self, report: int) -> str:
        """Return one report, given as a number, as SQL writes it."""
        key, said = (part[0].as_py() for part in self.parts(np.array([report])))
        shown = ["NULL", "NULL"] if key is None else [repr(self.keys.texts[key]), str(said)]
        return f"{{'key': {shown[0]}, '{self.told}': {shown[1]}}}"
