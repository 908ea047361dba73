"""The columns of a run: which are perturbed, by which mechanism, and which are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.bulk.sources import changed, check_columns, names_of
from ldpsql.channels import Drawn
from ldpsql.domains.columns import family, plain, struct_parts
from ldpsql.domains.domain import Domain
from ldpsql.domains.unlisted import Strings
from ldpsql.engine.functions import guarded
from ldpsql.engine.in_c import positions
from ldpsql.engine.sql_struct import columns_of
from ldpsql.errors import InvalidParameter, WrongType, of_column
from ldpsql.errors.boundary import withheld
from ldpsql.ledger.people import all_among, id_bytes
from ldpsql.ledger.permanent import Key, RowWords, fingerprints_of
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.mechanisms.families import RowMechanism
from ldpsql.mechanisms.spec import Parts
from ldpsql.names import ROW
from ldpsql.registry.agreement import metadata
from ldpsql.registry.registry import registry
from ldpsql.reports import RowReports, WordReports, type_of

_EXAMPLE = "columns={'city': 'krr(epsilon=1, domain=[...])'}"
Columns: TypeAlias = Mapping[str, Mechanism | str] | Mechanism | str  # by column, or of a row


def by_column(columns: Columns, read: Callable[[Mechanism | str], Mechanism] | None = None) -> dict[str, Mechanism]:
    """Return the mechanism of each column; that of a row holds those of its columns."""
    read = read or registry().mechanism
    if isinstance(columns, Mapping):
        if not all(isinstance(name, str) for name in columns):
            raise InvalidParameter("the names of columns must be strings", _EXAMPLE)
        return {name: read(mechanism) for name, mechanism in columns.items()}
    row = read(columns)
    parts = columns_of(row)
    if getattr(row, "single", False):
        raise InvalidParameter(
            f"{row.name} draws one column of each row, so it needs the row in one column", "perturb a column of structs"
        )
    if not parts:
        raise InvalidParameter("a mechanism without the name of its column", _EXAMPLE)
    return dict(parts)


def drawn_apart(columns: Sequence[str], mechanism: Mechanism) -> dict[str, Mechanism]:
    """Return the mechanism that drew each column of reports; several columns were drawn by those of a row, one by one."""
    if len(columns) == 1:
        return {columns[0]: mechanism}
    parts = dict(columns_of(mechanism))
    if len(set(columns)) < len(columns) or not parts.keys() >= set(columns):
        needed = f"the columns of the row are {', '.join(parts)}" if parts else f"{mechanism.name} has one column"
        raise InvalidParameter("these are not the columns of the mechanism", needed)
    return {name: parts[name] for name in columns}


def text_reports(columns: Sequence[str], mechanism: Mechanism) -> list[str]:
    """Return the columns of reports that are text, whatever they look like in a file."""
    each = drawn_apart(columns, mechanism)
    return [name for name, drew in each.items() if family(type_of(certify(drew).reports)) == "text"]


def row_part(columns: Sequence[str], mechanism: Mechanism) -> Mechanism:
    """Return the mechanism of the reports of some columns of a row: that of the row of these columns."""
    parts = columns_of(mechanism)
    if not isinstance(mechanism, RowMechanism) or not 1 < len(columns) < len(parts):
        return mechanism
    return type(mechanism)(columns=Parts(part for part in parts if part.column in columns))


def row_of(columns: Mapping[str, Mechanism]) -> Mechanism:
    """Return the mechanism of a row of these columns."""
    return registry().mechanism({Mechanism.kind: ROW, "columns": columns})


_AHEAD = 1 << 27  # bytes of words that are kept between the charge and the draw


class Ahead:
    """The words of batches from their charge to their draw, so that these are not hashed twice: of the first batches only."""

    def __init__(self, limit: int = _AHEAD) -> None:
        self._left, self._kept = limit, dict[bytes, RowWords]()

    def put(self, content: bytes, words: RowWords) -> None:
        """Keep the words of a batch if there is room for them."""
        if content not in self._kept and words.nbytes <= self._left:
            self._left -= words.nbytes
            self._kept[content] = words

    def take(self, content: bytes) -> RowWords | None:
        """Return the words of a batch, which are kept no longer; None if they are not kept."""
        return self._kept.pop(content, None)


@dataclass(frozen=True)
class Permanent:
    """The key and the column of user ids of permanent reports.

    ``charged`` has the fingerprints of each column that was charged, in ascending order; no other report is drawn then. If what
    is charged is drawn here too, its words are in ``ahead`` until then.
    """

    key: Key
    user: str
    charged: dict[str, NDArray[np.bytes_]] = field(default_factory=dict)
    ahead: Ahead | None = field(default=None, repr=False)

    def people(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the person of each row, as bytes."""
        users = batch.column(self.user)
        if isinstance(users.type, pa.BaseExtensionType):
            raise WrongType(
                "user ids of permanent reports must be strings, bytes or whole numbers", "cast the column of user ids"
            )
        return id_bytes(users)

    def fingerprints(self, certified: CertifiedMechanism, values: pa.Array, people: pa.Array, name: str) -> NDArray[np.bytes_]:
        """Return the fingerprint of each report of the column of this name."""
        column = plain(values)
        words = self.key.row_words(certified, column, people, name)
        if self.ahead is not None:
            self.ahead.put(_content(column, people, name), words)
        return fingerprints_of(words)

    def draw(self, certified: CertifiedMechanism, values: pa.Array, people: pa.Array, name: str) -> Drawn:
        """Return the permanent reports of a column in the channel's own terms.

        Raises:
            SourceRefused: if one was not charged.

        """
        if not len(values):
            return certified.draw(values)
        column = plain(values)
        words = None
        if name in self.charged:  # in a batch that is as it was; else the rows are compared one by one
            words = None if self.ahead is None else self.ahead.take(_content(column, people, name))
            if words is None:
                words = self.key.row_words(certified, column, people, name)
                if not all_among(self.charged[name], fingerprints_of(words)):
                    raise changed()
        return self.key.draw(certified, column, people, name, words)


def _content(column: pa.Array, people: pa.Array, name: str) -> bytes:
    """Return a digest of the rows of a column and of their people.

    A stream holds their types and the values of dictionaries, too, which the buffers of a batch alone leave out.
    """
    batch, written = pa.record_batch([column, people], ["value", "person"]), pa.BufferOutputStream()
    with pa.ipc.new_stream(written, batch.schema) as stream:
        stream.write_batch(batch)
    return blake2b(written.getvalue(), key=blake2b(name.encode(), digest_size=32).digest()).digest()


# Kept columns hold only the values of their rows. An Arrow array may hold more than it shows: values under its NULLs, as pandas
# leaves them; text around a substring or of rows that were filtered out, as Polars leaves them; dictionary values that no row
# has. The data of string and list views stay in the order of the source when rows are shuffled. Files and streams of Arrow
# carry all of these.


_EXTENSION = b"ARROW:extension:"


def kept_field(field: pa.Field) -> pa.Field:
    """Return the field of a kept column, without metadata except the name of its type."""
    metadata = {key: value for key, value in (field.metadata or {}).items() if key.startswith(_EXTENSION)}
    return field.with_type(kept_type(field.type)).with_metadata(metadata or None)


def kept_type(kind: pa.DataType) -> pa.DataType:
    """Return a type for the same values without dictionaries and views, whose arrays hold only what they show."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return kept_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        storage = kept_type(kind.storage_type)
        return kind if storage == kind.storage_type else storage
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    return _nested_type(kind)


def _nested_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(kept_field(kind.value_field))
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(kept_field(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kept_field(kind.value_field), kind.list_size)
    if pa.types.is_map(kind):
        return pa.map_(kept_field(kind.key_field), kept_field(kind.item_field), kind.keys_sorted)
    return pa.struct(list(map(kept_field, kind))) if pa.types.is_struct(kind) else kind


def kept(column: pa.Array) -> pa.Array:
    """Return the same rows in their `kept_type`, with only their values in the buffers."""
    if pa.types.is_dictionary(column.type):
        return kept(column.dictionary).take(column.indices)
    if pa.types.is_run_end_encoded(column.type):
        whole = pa.RunEndEncodedArray.from_arrays(column.run_ends, kept(column.values))
        return pc.run_end_decode(whole.slice(column.offset, len(column)))
    kind = kept_type(column.type)
    if isinstance(column.type, pa.BaseExtensionType):
        storage = kept(column.storage)
        return pa.ExtensionArray.from_storage(kind, storage) if kind == column.type else storage
    if pa.types.is_struct(kind) and len(kind):
        parts = [kept(child) for child in struct_parts(column)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=_nulls(column))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(column, kind)
    return _without_hidden(column if column.type == kind else column.cast(kind))


def _list(column: pa.Array, kind: pa.DataType) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    ends = np.concatenate([[0], np.cumsum(lengths)])
    array, offset = (pa.ListArray, pa.int32()) if pa.types.is_list(kind) else (pa.LargeListArray, pa.int64())
    return array.from_arrays(pa.array(ends, offset), kept(column.flatten()), type=kind, mask=_nulls(column))


def _nulls(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _without_hidden(column: pa.Array) -> pa.Array:
    """Return a column without the values under its NULLs."""
    if not column.null_count or pa.types.is_null(column.type):
        return column
    rows = pa.array(np.arange(len(column)), mask=column.is_null().to_numpy(zero_copy_only=False))
    return column.take(rows)


class Projection:
    """What happens to the columns of a stream: the certified mechanism of each perturbed column, and the kept columns."""

    def __init__(
        self, mechanisms: Mapping[str, CertifiedMechanism], keep: tuple[str, ...], permanent: Permanent | None = None
    ) -> None:
        self.mechanisms = mechanisms
        self.keep = keep
        self.permanent = permanent

    @classmethod
    def of(cls, columns: Columns, keep: Iterable[str], permanent: Permanent | None = None) -> Projection:
        """Return the projection for the mechanism of each column, and for the columns to keep.

        The mechanism of a row stands for those of its columns. With ``permanent``, the reports are permanent.
        """
        kept, mechanisms = tuple(dict.fromkeys(names_of(keep, "keep"))), by_column(columns)
        if not mechanisms:
            raise InvalidParameter("there is no column to perturb", "columns={'city': 'krr(epsilon=1, domain=[...])'}")
        if set(kept) & set(mechanisms):
            raise InvalidParameter("a column cannot be both perturbed and kept", "name it once")
        if len({name.casefold() for name in (*mechanisms, *kept)}) < len(mechanisms) + len(kept):
            raise InvalidParameter("two columns have names that differ only in case", "DuckDB takes them for one: rename one")
        return cls({name: certify(mechanism) for name, mechanism in mechanisms.items()}, kept, permanent)

    @property
    def columns(self) -> list[str]:
        """The names of all columns that are read, perturbed or kept."""
        return [*self.mechanisms, *self.keep]

    @property
    def text(self) -> list[str]:
        """The perturbed columns that are text, whatever they look like in a file."""
        values = {name: certified.values for name, certified in self.mechanisms.items()}
        return [
            name
            for name, each in values.items()
            if isinstance(each, Strings) or (isinstance(each, Domain) and family(each.values.type) == "text")
        ]

    @property
    def uncertified(self) -> dict[str, Mechanism]:
        """The mechanism of each perturbed column, without its certificate."""
        return {name: certified.mechanism for name, certified in self.mechanisms.items()}

    def among(self, names: Sequence[str]) -> list[str]:
        """Return the columns of the projection, in the order in which ``names`` has them.

        Raises:
            UnknownName, SourceRefused: if one is missing, or occurs twice.

        """
        check_columns(self.columns, names)
        return [name for name in names if name in set(self.columns)]

    def read(self, names: Sequence[str]) -> list[str]:
        """Return the columns to read: those of the projection, and the user ids of permanent reports."""
        columns = self.among(names)
        user = [] if self.permanent is None else [self.permanent.user]
        check_columns(user, names)
        return [*columns, *(name for name in user if name not in columns)]

    def check_types(self, source: pa.Schema) -> None:
        """Check, before anything is charged, that the mechanisms take the types of their columns.

        Raises:
            WrongType: if one does not.

        """
        for name, mechanism in self.mechanisms.items():
            with of_column(name):
                mechanism.check(pa.nulls(0, source.field(name).type))

    def schema(self, source: pa.Schema) -> pa.Schema:
        """Return the schema of the reports: perturbed columns in the type of their reports, with their fingerprints."""
        reports = {name: pa.field(name, type_of(mechanism.reports)) for name, mechanism in self.mechanisms.items()}
        fields = [reports.get(name) or kept_field(source.field(name)) for name in self.among(source.names)]
        return pa.schema(fields, self.fingerprints)

    @property
    def fingerprints(self) -> dict[str, str]:
        """The metadata that record which mechanism drew each column."""
        return metadata(self.uncertified)

    def check(self, batch: pa.RecordBatch) -> None:
        """Check that each value of a batch can be perturbed; nothing is drawn.

        Raises:
            MissingValue, OutsideDomain, WrongType: if one cannot; the error names the column.

        """
        for name, mechanism in self.mechanisms.items():
            with of_column(name):
                mechanism.check(batch.column(name))

    def perturb(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Draw the reports of one batch."""
        people = None if self.permanent is None else self.permanent.people(batch)
        arrays = [self._column(name, batch.column(name), people) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, column: pa.Array, people: pa.Array | None) -> pa.Array:
        mechanism = self.mechanisms.get(name)
        if mechanism is None:
            return kept(column)
        with of_column(name):
            if self.permanent is None or people is None:
                return self._fresh(mechanism, column)
            return self._reports(mechanism, self.permanent.draw(mechanism, column, people, name))

    @withheld
    def _fresh(self, mechanism: CertifiedMechanism, column: pa.Array) -> pa.Array:
        """Return new reports of a column."""
        return mechanism.perturb(column)

    @withheld
    def _reports(self, mechanism: CertifiedMechanism, drawn: Drawn) -> pa.Array:
        """Return what was drawn as a column of reports."""
        return mechanism.shown(drawn)


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
        types = {name: _compact(mechanism) for name, mechanism in self.mechanisms.items()}
        return pa.schema([pa.field(f.name, types[f.name]) if f.name in types else f for f in super().schema(source)])

    def _fresh(self, mechanism: CertifiedMechanism, column: pa.Array) -> pa.Array:
        if isinstance(mechanism.reports, Domain):
            drawn = positions(mechanism, column, np.dtype(_compact(mechanism).to_pandas_dtype()))
            if drawn is not None:
                return pa.array(drawn)
        return _positions(mechanism, mechanism.draw(column))

    def _reports(self, mechanism: CertifiedMechanism, drawn: Drawn) -> pa.Array:
        return _positions(mechanism, drawn)

    def decoded_schema(self, schema: pa.Schema, *, encoded: bool) -> pa.Schema:
        """Return the schema of the reports of compact batches; ``encoded`` leaves small domains of text as dictionaries."""
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
