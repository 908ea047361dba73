"""Perturbation of streams of record batches: what every engine that speaks Arrow can be fed through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ldpsql.errors import InvalidParameter, SourceRefused, UnknownName, WrongType
from ldpsql.mechanism import CertifiedMechanism, Mechanism, certify
from ldpsql.registry import registry
from ldpsql.reports import type_of
from ldpsql.sql import guarded


def perturb_batches(batches: Any, columns: Mapping[str, Mechanism | str], *, keep: Iterable[str] = ()) -> pa.RecordBatchReader:
    """Perturb columns of a stream of record batches, batch by batch; a batch is drawn when it is read.

    Rows stay in the order of the stream. If that depends on the values, shuffle them, or use `perturb_copy`.

    Args:
        batches: anything that speaks Arrow's stream interface: a RecordBatchReader, an Arrow table, a Polars frame.
        columns: the mechanism of each column; its reports take its place and name.
        keep: columns that pass through as they are. All others are left out.

    Raises:
        UnknownName, SourceRefused: where a column is not there, or there twice.
        MissingValue, OutsideDomain, WrongType: while reading, where a value cannot be perturbed.

    """
    reader, plan = stream(batches), Plan.of(columns, keep)
    schema = plan.schema(reader.schema)
    return pa.RecordBatchReader.from_batches(schema, (plan.perturb(batch, schema) for batch in reader))


class Plan:
    """What becomes of the columns of a stream: the certified mechanism of each perturbed one, and the kept ones."""

    def __init__(self, mechanisms: Mapping[str, CertifiedMechanism], keep: tuple[str, ...]) -> None:
        self.mechanisms = mechanisms
        self.keep = keep

    @classmethod
    def of(cls, columns: Mapping[str, Mechanism | str], keep: Iterable[str]) -> Plan:
        """Read the mechanisms.

        Raises:
            InvalidParameter: where there is no column to perturb, or one that is also to be kept.

        """
        kept = tuple(dict.fromkeys(keep))
        if not columns:
            raise InvalidParameter("there is no column to perturb", "columns={'city': 'krr(epsilon=1, domain=[...])'}")
        if set(kept) & set(columns):
            raise InvalidParameter("a column cannot be both perturbed and kept", "name it once")
        return cls({name: certify(registry().mechanism(given)) for name, given in columns.items()}, kept)

    @property
    def columns(self) -> list[str]:
        """The columns that are needed."""
        return [*self.mechanisms, *self.keep]

    def among(self, names: Sequence[str]) -> list[str]:
        """Return the columns that are needed, in the order in which they come.

        Raises:
            UnknownName, SourceRefused: where one is missing, or there twice.

        """
        check_columns(self.columns, names)
        return [name for name in names if name in set(self.columns)]

    def schema(self, given: pa.Schema) -> pa.Schema:
        """Return the schema of the reports: perturbed columns in the type of their reports."""
        reports = {name: pa.field(name, type_of(known.reports)) for name, known in self.mechanisms.items()}
        return pa.schema([reports.get(name) or given.field(name) for name in self.among(given.names)])

    def perturb(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Draw the reports of one batch."""
        arrays = {name: batch.column(name) for name in schema.names}
        drawn = {name: _drawn(known, arrays[name]) for name, known in self.mechanisms.items()}
        return pa.RecordBatch.from_arrays([drawn.get(name, array) for name, array in arrays.items()], schema=schema)


def check_columns(wanted: Iterable[str], there: Sequence[str], *, tellable: bool = True) -> None:
    """See that columns are there, once each.

    Args:
        wanted: their names.
        there: the names of all columns.
        tellable: whether a hint may name them. What is taken for names in a text file may be somebody's data.

    Raises:
        UnknownName: where one is not there.
        SourceRefused: where one is there twice.

    """
    for name in wanted:
        if name not in there:
            raise UnknownName("column", name, there if tellable else (), "the first line of a CSV file must name the columns")
        if there.count(name) > 1:
            raise SourceRefused(f"there are two columns named '{name}'", "rename one")


@guarded
def _drawn(mechanism: CertifiedMechanism, column: pa.Array) -> pa.Array:
    return mechanism.perturb(column)


def stream(given: Any) -> pa.RecordBatchReader:
    """Return anything that speaks Arrow's stream interface as a stream of record batches.

    Raises:
        WrongType: for anything else.

    """
    if isinstance(given, pa.RecordBatchReader):
        return given
    if not hasattr(given, "__arrow_c_stream__"):
        raise WrongType("this is not a stream of record batches", "pass an Arrow table or reader, or a Polars frame")
    return pa.RecordBatchReader.from_stream(given)
