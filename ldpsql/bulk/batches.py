"""Perturbation of streams of record batches: what every engine that speaks Arrow can be fed through."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias

import pyarrow as pa

from ldpsql.bulk.kept import kept, kept_field
from ldpsql.bulk.parquet import BATCH_ROWS
from ldpsql.domains.arrays import is_frame, is_pandas_frame, pandas_names, pandas_table, shown_class
from ldpsql.errors import NOT_PERTURBED, InvalidParameter, LdpError, SourceRefused, UnknownName, WrongType
from ldpsql.errors.boundary import withheld, withheld_stream
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.registry.fingerprint import metadata
from ldpsql.registry.registry import registry
from ldpsql.reports import type_of

_SPELLING = "check the spelling; the columns are not listed, since their names may be values"
Draw: TypeAlias = Callable[[CertifiedMechanism, pa.Array], pa.Array]


@withheld
def perturb_batches(batches: Any, columns: Mapping[str, Mechanism | str], *, keep: Iterable[str] = ()) -> pa.RecordBatchReader:
    """Perturb columns of a stream of record batches, batch by batch; a batch is drawn when it is read.

    Rows stay in the order of the stream. If that depends on the values, shuffle them, or use `perturb_copy`.

    Args:
        batches: anything that speaks Arrow's stream interface: a RecordBatchReader, an Arrow table, a Polars frame; or a pandas
            frame, where NaN is NULL.
        columns: the mechanism of each column; its reports take its place and name.
        keep: columns whose values pass through. All others are left out. Dictionaries and views become plain columns, so that
            they hold nothing but the values of their rows.

    Raises:
        UnknownName, SourceRefused: where a column is not there, or there twice.
        MissingValue, OutsideDomain, WrongType: while reading, where a value cannot be perturbed.

    """
    plan = Plan.of(columns, keep)
    reader = stream(batches, plan.columns)
    schema = plan.schema(reader.schema)
    return pa.RecordBatchReader.from_batches(schema, _drawn(reader, plan, schema))


@withheld_stream
def _drawn(reader: pa.RecordBatchReader, plan: Plan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches_of(reader):
        yield plan.perturb(batch, schema)


def batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream.

    Raises:
        SourceRefused: if the stream fails; what its maker says of that may quote what is in it.

    """
    try:
        yield from reader
    except LdpError:
        raise
    except Exception:  # noqa: BLE001  # of the maker of the stream
        hint = "is every batch of the types that it declares?"
        raise SourceRefused("the stream could not be read to its end", hint) from None


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
        """Return the schema of the reports: perturbed columns in the type of their reports, with their fingerprints."""
        reports = {name: pa.field(name, type_of(known.reports)) for name, known in self.mechanisms.items()}
        fields = [reports.get(name) or kept_field(given.field(name)) for name in self.among(given.names)]
        return pa.schema(fields, self.fingerprints)

    @property
    def fingerprints(self) -> dict[str, str]:
        """The metadata that say which mechanism drew each column."""
        return metadata({name: certified.mechanism for name, certified in self.mechanisms.items()})

    def perturb(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Draw the reports of one batch."""
        arrays = [self._column(name, batch.column(name)) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, column: pa.Array) -> pa.Array:
        mechanism = self.mechanisms.get(name)
        return kept(column) if mechanism is None else drawn(mechanism, column, name, self._drawn)

    def _drawn(self, mechanism: CertifiedMechanism, column: pa.Array) -> pa.Array:
        return mechanism.perturb(column)


def check_columns(wanted: Iterable[str], there: Sequence[str], *, tellable: bool = True) -> None:
    """See that columns are there, once each.

    Args:
        wanted: their names.
        there: the names of all columns.
        tellable: whether a hint may name one that is spelled alike. What is taken for names in a text file may be somebody's
            data. All names are never listed: those of a PIVOT, or of a file without a line of names, are values.

    Raises:
        UnknownName: where one is not there.
        SourceRefused: where one is there twice.

    """
    for name in wanted:
        if name not in there:
            alike = get_close_matches(name, there, n=1) if tellable else ()
            raise UnknownName(
                "column", name, alike, _SPELLING if tellable else "the first line of a CSV file must name the columns"
            )
        if there.count(name) > 1:
            raise SourceRefused(f"there are two columns named '{name}'", "rename one")


def drawn(mechanism: CertifiedMechanism, column: pa.Array, name: object, draw: Draw = CertifiedMechanism.perturb) -> pa.Array:
    """Return a report for each value; a refusal names the column, if it has a name."""
    try:
        return draw(mechanism, column)
    except NOT_PERTURBED as error:
        raise error.of_column(name) if isinstance(name, str) and name else error from None


def stream(frame: Any, wanted: Collection[str]) -> pa.RecordBatchReader:
    """Return a frame as a stream of record batches, with at least the columns that are wanted.

    Raises:
        WrongType: for what neither speaks Arrow's stream interface nor is a pandas frame.
        UnknownName, SourceRefused: where a pandas frame does not have a column, or has it twice.

    """
    if isinstance(frame, pa.RecordBatchReader):
        return frame
    if is_pandas_frame(frame):
        check_columns(wanted, pandas_names(frame))
        return pandas_table(frame, wanted).to_reader(BATCH_ROWS)
    if not is_frame(frame) or not hasattr(frame, "__arrow_c_stream__"):
        hint = "pass an Arrow table or reader, or a Polars or pandas frame"
        raise WrongType(f"a {shown_class(frame)} is not a stream of record batches", hint)
    return pa.RecordBatchReader.from_stream(frame)
