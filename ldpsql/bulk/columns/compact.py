"""Reports in the form in which they are shuffled: positions in the alphabet, of one, two or four bytes, instead of values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ldpsql.bulk.columns.projection import Projection
from ldpsql.channels import Drawn
from ldpsql.domains.columns import family
from ldpsql.domains.domain import Domain
from ldpsql.engine.functions import guarded
from ldpsql.mechanisms.base import CertifiedMechanism
from ldpsql.reports import RowReports, WordReports, type_of

_FEW = 4096  # most values of a dictionary, which is read with every batch


class CompactProjection(Projection):
    """A projection whose batches hold positions, which `decoded` turns into reports, and kept columns without dictionaries.

    The dictionaries of batches may differ, but a file of Arrow batches has only one.
    """

    @classmethod
    def like(cls, projection: Projection) -> CompactProjection:
        """Return a compact projection with the same mechanisms and kept columns."""
        return cls(projection.mechanisms, projection.keep, projection.permanent)

    def schema(self, source: pa.Schema) -> pa.Schema:
        """Return the schema of the compact batches."""
        return pa.schema([self._field(field) for field in super().schema(source)])

    def _field(self, field: pa.Field) -> pa.Field:
        mechanism = self.mechanisms.get(field.name)
        return field if mechanism is None else pa.field(field.name, _compact(mechanism))

    def _reports(self, mechanism: CertifiedMechanism, drawn: Drawn) -> pa.Array:
        return _positions(mechanism, drawn)

    def decoded_schema(self, schema: pa.Schema, *, encoded: bool) -> pa.Schema:
        """Return the schema of the reports that compact batches stand for.

        Args:
            schema: the schema of the compact batches.
            encoded: leave small domains of text as a dictionary and positions in it, which DuckDB writes faster.

        """
        return pa.schema([self._decoded_field(field, encoded=encoded) for field in schema], self.fingerprints)

    def _decoded_field(self, field: pa.Field, *, encoded: bool) -> pa.Field:
        if field.name not in self.mechanisms:
            return field
        reports = self.mechanisms[field.name].reports
        kind = type_of(reports)
        few = isinstance(reports, Domain) and len(reports) <= _FEW and family(kind) == "text"
        return field.with_type(pa.dictionary(field.type, kind) if encoded and few else kind)

    def decoded(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return the reports that a compact batch stands for."""
        arrays = [self._decoded(field, batch.column(field.name)) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _decoded(self, field: pa.Field, column: pa.Array) -> pa.Array:
        mechanism = self.mechanisms.get(field.name)
        if mechanism is None or isinstance(mechanism.reports, WordReports | RowReports):
            return column
        if not isinstance(mechanism.reports, Domain):
            return mechanism.shown(column.to_numpy().astype(np.int32))
        if pa.types.is_dictionary(field.type):
            return pa.DictionaryArray.from_arrays(column, mechanism.reports.values, safe=False)
        return mechanism.reports.taken(column)


def _compact(mechanism: CertifiedMechanism) -> pa.DataType:
    """Return the type of compact reports: the smallest integer type that holds all positions if reports are numbered."""
    if isinstance(mechanism.reports, WordReports | RowReports):
        return mechanism.reports.type
    size = len(mechanism.reports)
    return pa.uint8() if size <= 1 << 8 else pa.uint16() if size <= 1 << 16 else pa.int32()


@guarded
def _positions(mechanism: CertifiedMechanism, drawn: Drawn) -> pa.Array:
    if isinstance(mechanism.reports, WordReports | RowReports):
        return mechanism.reports.to_arrow(drawn)
    return pa.array(drawn.astype(_compact(mechanism).to_pandas_dtype()))
