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
        lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type)
        if not lists or not pa.types.is_integer(column.type.value_type):
            raise impossible()
        flat = column.flatten()
        if column.null_count or flat.null_count or len(flat) != len(column) * self.words:
            raise impossible()
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        words = _unsigned(flat)
        rows = words.reshape(-1, self.words) if len(words) else np.empty((0, self.words), dtype=np.uint64)
        unused = np.uint64(0xFFFFFFFFFFFFFFFF) << np.uint64(self.size % 64) if self.size % 64 else np.uint64(0)
        if (lengths != self.words).any() or (rows[:, -1] & unused).any():
            raise impossible()
        return rows

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
        if not pa.types.is_struct(column.type) or {field.name for field in column.type} != {"seed", "y"}:
            raise impossible()
        parts = [column.field(name) for name in ("seed", "y")]
        if column.null_count or not all(pa.types.is_integer(part.type) and not part.null_count for part in parts):
            raise impossible()
        words = np.stack([_unsigned(part) for part in parts], axis=1)
        if (words[:, 1] >= self.symbols).any() or (self.listed is not None and (words[:, 0] >= self.listed).any()):
            raise impossible()
        return words

    def counts(self, column: pa.Array, numbers: Floats, group: NDArray[np.int64], groups: int) -> Floats:
        """Count the reports of each group, shape (groups, reports): for listed seeds."""
        words = self.read(column).astype(np.int64)
        cells = group * len(self) + words[:, 0] * self.symbols + words[:, 1]
        return _counted(cells, numbers, groups, len(self))

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

    def parts(self, drawn: Drawn) -> tuple[pa.Array, pa.Array]:
        """Return the positions of the keys, and what is told, NULL for dummies."""
        key, cell = np.divmod(drawn.astype(np.int32), np.int32(self.cells))
        dummy = key >= len(self.keys)
        said = 1 - 2 * cell if self.told == "sign" else cell
        return pa.array(key, mask=dummy), pa.array(said.astype(np.int16), mask=dummy)

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        """Return draws of the channel as a column."""
        key, said = self.parts(drawn)
        return pa.StructArray.from_arrays([self.keys.values.take(key), said], ["key", self.told])

    def counts(self, column: pa.Array, numbers: Floats, group: NDArray[np.int64], groups: int) -> Floats:
        """Count the symbols of each group, shape (groups, symbols); dummies are spread evenly, for nothing tells them apart.

        Raises:
            ImpossibleReport: where the column cannot hold such reports.

        """
        if not pa.types.is_struct(column.type) or {field.name for field in column.type} != {"key", self.told}:
            raise impossible()
        fields = dict(zip([field.name for field in column.type], column.flatten(), strict=True))
        key, said = plain(fields["key"]), fields[self.told]
        dummy = key.is_null().to_numpy(zero_copy_only=False)
        if (
            column.null_count
            or not pa.types.is_integer(said.type)
            or (said.is_null().to_numpy(zero_copy_only=False) != dummy).any()
        ):
            raise impossible()
        at, told = self.keys.locate(key), said.cast(pa.int64()).fill_null(1).to_numpy(zero_copy_only=False)
        cell = (1 - told) // 2 if self.told == "sign" else told
        possible = np.isin(told, [-1, 1]) if self.told == "sign" else (told >= 0) & (told < self.cells)
        if at.null_count != dummy.sum() or not possible[~dummy].all():
            raise impossible()
        real = len(self.keys) * self.cells
        symbol = np.where(dummy, real, at.fill_null(0).to_numpy(zero_copy_only=False) * np.int64(self.cells) + cell)
        counted = _counted(group * (real + 1) + symbol, numbers, groups, real + 1)
        spread = self.dummies * self.cells
        return np.concatenate([counted[:, :real], np.repeat(counted[:, real:] / spread, spread, axis=1)], axis=1)

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
        symbol = SetReports(64).read(column)[:, 0]
        if (symbol >= self.symbols).any():
            raise impossible()
        cells = group * self.symbols + symbol.astype(np.int64)
        return _counted(cells, numbers, groups, self.symbols)

    def text(self, report: int) -> str:
        """Return one report as a list."""
        return f"[{report}]"


Alphabet: TypeAlias = Domain | SetReports | HashReports | PairReports | SymbolReports


def distinct(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each distinct value of a column without NULLs, and for each row the number of its value.

    Lists of whole numbers and structs are compared word by word; Arrow itself cannot.
    """
    column = plain(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()  # a dictionary may hold values that no row has
    if pa.types.is_struct(column.type):
        keys = np.stack([_compared(part) for part in column.flatten()], axis=1)
    elif pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        if len(set(lengths.tolist())) > 1:
            raise impossible()
        keys = _unsigned(column.flatten()).reshape(len(column), -1)
    else:
        coded = column.dictionary_encode()
        number = coded.indices.to_numpy(zero_copy_only=False)
        first = np.empty(len(coded.dictionary), dtype=np.int64)
        first[number[::-1]] = np.arange(len(number))[::-1]
        return first, number
    rows = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))).ravel()
    _, first, number = np.unique(rows, return_index=True, return_inverse=True)
    return first, number.ravel()


def _counted(cells: NDArray[np.int64], numbers: Floats, groups: int, outputs: int) -> Floats:
    counted: Floats = np.bincount(cells, weights=numbers, minlength=groups * outputs).astype(np.float64)
    return counted.reshape(groups, outputs)


def _compared(column: pa.Array) -> Weights:
    """Return whole numbers as they are, anything else as the numbers of its distinct values, among which NULL is one."""
    if pa.types.is_unsigned_integer(column.type) and not column.null_count:
        return _unsigned(column)
    column = plain(column)
    listed = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return _unsigned(listed.dictionary_encode(null_encoding="encode").indices)


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
