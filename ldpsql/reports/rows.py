"""Reports of several columns: one report of each, in a struct."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Drawn
from ldpsql.domains.columns import struct_parts
from ldpsql.domains.domain import Domain
from ldpsql.errors import ImpossibleReport
from ldpsql.reports.base import FormedReports, NumberedReports
from ldpsql.reports.sets import HashReports, SetReports

Part = Any  # Alphabet, which is defined in terms of this class


@dataclass(frozen=True)
class RowReports(FormedReports):
    """One report of each column: STRUCT(NAME ..., ...) in SQL; NULL stands for a column that was not reported.

    If ``single``, each row reports one column, and draws have its number in front.
    """

    names: tuple[str, ...]
    parts: tuple[Part, ...]
    single: bool = False
    mark: ClassVar[str] = "columns"  # of the constructor's ``reports`` field in SQL, which holds their type as text

    @property
    def type(self) -> pa.DataType:
        """The type of a column of such reports."""
        return pa.struct([(name, part.type) for name, part in zip(self.names, self.parts, strict=True)])

    def split(self, drawn: Drawn) -> Iterator[Drawn]:
        """Yield the draws of each column, as its own channel draws them."""
        start = int(self.single)
        for part in self.parts:
            width = _width(part)
            own = drawn[:, start : start + width]
            start += width
            yield own[:, 0].astype(np.int32) if isinstance(part, Domain | NumberedReports) else np.ascontiguousarray(own)

    def _reported(self, j: int, drawn: Drawn, column: pa.Array, otherwise: pa.Scalar) -> pa.Array:
        """Return a column with another value in the rows that do not report it."""
        return pc.if_else(pa.array(drawn[:, 0] == j), column, otherwise) if self.single else column

    def to_arrow(self, drawn: Drawn) -> pa.Array:
        each = (part.to_arrow(own) for part, own in zip(self.parts, self.split(drawn), strict=True))
        columns = [self._reported(j, drawn, own, pa.scalar(None, own.type)) for j, own in enumerate(each)]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))

    def to_json(self, drawn: Drawn) -> pa.Array:
        """Return draws of the channel as JSON, which SQL reads in the type of these reports."""
        each = (_json(part, own) for part, own in zip(self.parts, self.split(drawn), strict=True))
        texts = [self._reported(j, drawn, own, pa.scalar("null")) for j, own in enumerate(each)]
        columns = [
            pc.binary_join_element_wise(pa.scalar(f"{json.dumps(name)}:"), text, "")
            for name, text in zip(self.names, texts, strict=True)
        ]
        return pc.binary_join_element_wise(pa.scalar("{"), pc.binary_join_element_wise(*columns, ","), pa.scalar("}"), "")

    def fields(self, column: pa.Array) -> list[pa.Array]:
        """Return the reports of each column; NULL in all of them for a row that is NULL."""
        names = [field.name.casefold() for field in column.type] if pa.types.is_struct(column.type) else []
        if sorted(names) != sorted(name.casefold() for name in self.names):
            written = ", ".join(f"{name}: {name}" for name in self.names)
            raise ImpossibleReport(
                f"the reports of this mechanism are structs of {', '.join(self.names)}",
                f"write {{{written}}}; estimate one of the columns with its own mechanism",
            )
        parts = dict(zip(names, struct_parts(column), strict=True))
        return [parts[name.casefold()] for name in self.names]

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return in which rows each column has the form of a report, or is NULL."""
        fits, reported = np.ones(len(column), dtype=np.bool_), np.zeros(len(column), dtype=np.int64)
        for part, field in zip(self.parts, self.fields(column), strict=True):
            there = field.is_valid().to_numpy(zero_copy_only=False)
            fits[there] &= part.possible(field.drop_null())
            reported += there
        return fits & (reported <= 1) if self.single else fits

    def text(self, report: int) -> str:
        """Return the number: a row of reports has no other name."""
        return str(report)


def _width(part: Part) -> int:
    if isinstance(part, SetReports):
        return part.words
    return 2 if isinstance(part, HashReports) else 1


def _json(part: Part, drawn: Drawn) -> pa.Array:
    """Return the reports of one column as JSON; those that are values as text, which SQL casts."""
    if isinstance(part, Domain):
        seen, at = np.unique(drawn, return_inverse=True)
        texts = part.written.take(pa.array(seen)).to_pylist()
        return pa.array([json.dumps(text) for text in texts], pa.string()).take(pa.array(at))
    return pa.array([json.dumps(report) for report in part.to_arrow(drawn).to_pylist()], pa.string())
