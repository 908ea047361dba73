"""Reports that are too many to be listed: what they look like outside, and how they are read back.

Where the reports can be listed they are a `Domain`, and travel as positions in it. The others travel as rows of 64-bit words.
``marker`` is the constructor's ``reports`` field in SQL: its type alone tells ``ldp.perturb`` what to return.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Weights
from ldpsql.domain import Domain, plain
from ldpsql.errors import ImpossibleReport

Floats: TypeAlias = NDArray[np.float64]


class WordReports(ABC):
    """Reports made of unsigned 64-bit words."""

    @abstractmethod
    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return draws of the channel as a column."""

    @abstractmethod
    def read(self, column: pa.Array) -> Weights:
        """Return the words of a column without NULLs, shape ``(rows, words)``.

        Raises:
            ImpossibleReport: where the column cannot hold such reports.

        """

    @abstractmethod
    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Tell which rows of a column have the form of a report.

        Raises:
            ImpossibleReport: where the column's type cannot hold reports.

        """

    @abstractmethod
    def text(self, report: int) -> str:
        """Return one report, given as a number, as text."""


@dataclass(frozen=True)
class SetReports(WordReports):
    """Sets of values, one bit a value, as a list of words: UBIGINT[] in SQL."""

    size: int
    marker: ClassVar[str] = "{'words': 1}"

    @property
    def words(self) -> int:
        """Number of words of a report."""
        return -(-self.size // 64)

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return a list of words a report."""
        ends = np.arange(0, drawn.size + 1, self.words, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(drawn.ravel()))

    def read(self, column: pa.Array) -> Weights:
        """Return the words; bits beyond the last value must not be set."""
        if not self.possible(column).all():
            raise impossible()
        return _unsigned(column.flatten()).reshape(-1, self.words)

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Tell which lists have the right length and no bit set beyond the last value."""
        lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type)
        if not lists or not pa.types.is_integer(column.type.value_type):
            raise impossible()
        fits = pc.equal(column.value_lengths(), self.words).fill_null(False).to_numpy(zero_copy_only=False).copy()
        flat = column.filter(pa.array(fits)).flatten()
        holes = flat.is_null().to_numpy(zero_copy_only=False).reshape(-1, self.words)
        rows = _unsigned(flat.fill_null(0)).reshape(-1, self.words)
        unused = np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(self.size % 64) if self.size % 64 else np.uint64(0)
        fits[fits] = ~holes.any(axis=1) & ((rows[:, -1] & unused) == 0)
        return fits

    def text(self, report: int) -> str:
        """Return the words as a list."""
        return str([report >> 64 * i & (2**64 - 1) for i in range(self.words)])


@dataclass(frozen=True)
class HashReports(WordReports):
    """A seed and a symbol: STRUCT(seed UBIGINT, y UINTEGER) in SQL.

    With ``listed`` seeds there are only so many, and a report is the number seed * symbols + y.
    """

    symbols: int
    listed: int | None = None
    marker: ClassVar[str] = "{'hashed': 1}"

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
        return np.stack([_unsigned(column.field(name).fill_null(0)) for name in ("seed", "y")], axis=1)

    def counts(self, column: pa.Array, numbers: Floats, group: NDArray[np.int64], groups: int) -> Floats:
        """Count the reports of each group, shape (groups, reports): for listed seeds."""
        return _counted(group * len(self) + self.positions(column), numbers, groups, len(self))

    def positions(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the numbers of reports with listed seeds."""
        words = self.read(column).astype(np.int64)
        return words[:, 0] * self.symbols + words[:, 1]

    def text(self, report: int) -> str:
        """Return seed and symbol as SQL writes them."""
        seed, y = divmod(report, self.symbols)
        return f"{{'seed': {seed}, 'y': {y}}}"


@dataclass(frozen=True)
class PairReports:
    """A key and what is said of its value, ``told``: its sign or the number of a bin. STRUCT(key, sign) in SQL.

    Both are NULL in the report of a dummy; it is not told which of the ``dummies`` it was.
    """

    keys: Domain
    dummies: int
    cells: int
    told: str

    def __len__(self) -> int:
        return (len(self.keys) + self.dummies) * self.cells

    def told_apart(self, drawn: Drawn) -> Drawn:
        """Return draws of the channel as positions among the reports that differ: those of all dummies are the last one."""
        return np.minimum(drawn, np.int32(len(self.keys) * self.cells))

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
        counted = _counted(group * (real + 1) + symbol, numbers, groups, real + 1)
        spread = self.dummies * self.cells
        return np.concatenate([counted[:, :real], np.repeat(counted[:, real:] / spread, spread, axis=1)], axis=1)

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


@dataclass(frozen=True)
class SymbolReports:
    """Reports as numbers, each in a list of one word: for a mechanism that may report words or symbols, UBIGINT[] in SQL."""

    symbols: int
    marker: ClassVar[str] = SetReports.marker

    def __len__(self) -> int:
        return self.symbols

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return draws of the channel as a column."""
        return pa.ListArray.from_arrays(pa.array(np.arange(len(drawn) + 1, dtype=np.int32)), pa.array(drawn.astype(np.uint64)))

    def counts(self, column: pa.Array, numbers: Floats, group: NDArray[np.int64], groups: int) -> Floats:
        """Count the symbols of each group, shape (groups, symbols).

        Raises:
            ImpossibleReport: where the column cannot hold such reports.

        """
        if not self.possible(column).all():
            raise impossible()
        symbol = SetReports(64).read(column)[:, 0]
        cells = group * self.symbols + symbol.astype(np.int64)
        return _counted(cells, numbers, groups, self.symbols)

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


Alphabet: TypeAlias = Domain | SetReports | HashReports | PairReports | SymbolReports


def distinct(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each distinct value of a column without NULLs, and for each row the number of its value.

    Lists, structs and unions are compared part by part; Arrow itself cannot.
    """
    column = plain(column)
    if not pa.types.is_nested(column.type):
        number = _numbered(column)
        first = np.empty(number.max(initial=-1) + 1, dtype=np.int64)
        first[number[::-1]] = np.arange(len(number))[::-1]
        return first, number
    keys = _keys(column)
    rows = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))).ravel()
    _, first, number = np.unique(rows, return_index=True, return_inverse=True)
    return first, number.ravel()


def _counted(cells: NDArray[np.int64], numbers: Floats, groups: int, outputs: int) -> Floats:
    counted: Floats = np.bincount(cells, weights=numbers, minlength=groups * outputs).astype(np.float64)
    return counted.reshape(groups, outputs)


def _numbered(column: pa.Array) -> np.ndarray:
    """Number the distinct values of a flat column in the order of their appearance."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()  # a dictionary may hold values that no row has
    return np.asarray(column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False))


def _keys(column: pa.Array) -> Weights:
    """Return a row of words for each value of a column, equal where and only where the values are."""
    if pa.types.is_struct(column.type):
        return np.concatenate([_keys(part) for part in column.flatten()], axis=1)
    if pa.types.is_union(column.type):
        codes = column.type_codes.to_numpy()
        active = [np.where((codes == i)[:, None], _keys(column.field(i)), 0) for i in range(column.type.num_fields)]
        return np.concatenate([codes.astype(np.uint64)[:, None], *active], axis=1)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        parts = _keys(column.flatten())
        longest = int(lengths.max(initial=0))
        out = np.zeros((len(column), longest, parts.shape[1]), dtype=np.uint64)
        out[np.arange(longest) < lengths[:, None]] = parts
        return np.concatenate([lengths.astype(np.uint64)[:, None], out.reshape(len(column), -1)], axis=1)
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False).astype(np.uint64)[:, None])
    return _numbered(column).astype(np.uint64)[:, None]


def _unsigned(column: pa.Array) -> Weights:
    try:
        return column.cast(pa.uint64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        raise impossible() from None


def impossible() -> ImpossibleReport:
    """Return the refusal of reports; it names none, for they may be raw values."""
    return ImpossibleReport(
        "some reports cannot occur under this mechanism",
        "check that these are its reports, and not another column or mechanism",
    )
