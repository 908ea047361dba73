"""Tables of other systems as sources and sinks of a run, by streams of Arrow batches through ADBC."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection

from ldpsql.bulk.engines import REMARK, BigQuery, Database, PostgreSQL, Snowflake, SQLite, close, rows_of
from ldpsql.bulk.sources import Part, Source, changed
from ldpsql.bulk.staging import already_exists
from ldpsql.domains.columns import plain
from ldpsql.engine.identity import Identity
from ldpsql.errors import DestinationRefused, InvalidParameter, LdpError, OtherMechanism, SourceRefused, UnfinishedRun
from ldpsql.errors.boundary import replaced
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.places import DATABASES, Place
from ldpsql.registry.agreement import agree, of_text
from ldpsql.registry.documents import fingerprint
from ldpsql.registry.registry import registry
from ldpsql.reports import HashReports, SetReports, SymbolReports

_TYPED = "cast it in a view: CREATE VIEW readable AS SELECT amount::double precision AS amount, city::text AS city FROM people"
_BUILT_IN = dict(zip(DATABASES, (PostgreSQL, PostgreSQL, SQLite, Snowflake, BigQuery), strict=True))


def is_address(given: object) -> bool:
    """Return whether this is the address of a table in a database of another system, such as ``sqlite:///shop.db#people``."""
    return isinstance(given, str) and _kind(given) is not None


def database_at(address: str) -> Database:
    """Return the database of an address, with its table."""
    kind = _kind(address)
    if kind is None:
        raise InvalidParameter(
            "nothing here opens databases of this scheme", f"one of {', '.join((*_BUILT_IN, *registry().databases))}"
        )
    return kind(address)


def _kind(address: str) -> type[Database] | None:
    scheme = Place.of(address).scheme
    return (_BUILT_IN.get(scheme) or registry().databases.get(scheme)) if scheme else None


def source_at(address: str) -> Source:
    """Return the table at an address as a source of one part, whose rows are the same whenever it is read."""
    database = database_at(address)
    if not database.is_there():
        hint = "an absolute path has four slashes: sqlite:////data/shop.db#people"
        raise SourceRefused(f"there is no such file of {database.title}", hint)
    con = database.connect()  # it keeps the snapshot until nobody holds the source
    try:
        with _reading():
            database.begin(con)
            names = database.columns(con)
        if not names:
            raise SourceRefused(
                f"there is no table '{'.'.join(database.path)}' there", "schema.name after the #, in its own case"
            )
        with _reading():
            ((count,),) = rows_of(con, f"SELECT count(*) FROM {database.name}")  # noqa: S608  # quoted
            before, place = database.stamp(con), database.place(con)
    except LdpError:
        close(con)
        raise

    def read(wanted: list[str], _: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:  # noqa: ARG001
        reader = _stream(con, database, wanted)

        def batches() -> Iterator[pa.RecordBatch]:
            with _reading():
                yield from reader
                reader.close()
                now = database.stamp(con)
            if now != before:
                raise changed()

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    def empty(wanted: list[str], _: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:  # noqa: ARG001
        return _stream(con, database, wanted, database.few).read_all().schema.empty_table().to_reader()

    def whose(_: DuckDBPyConnection, rows: bool) -> Identity:
        with _reading():
            return database.identity(con, database.digest(con) if rows else "")

    weakref.finalize(read, close, con)
    part = Part(("database", place, before), int(count), read, empty=empty)
    return Source(names, [part], named=address, whose=whose)


def _stream(con: Any, database: Database, wanted: list[str], condition: str = "") -> pa.RecordBatchReader:
    """Return columns of a table as a stream, in types that the reports can keep."""
    cursor = con.cursor()
    with _reading():
        cursor.execute(f"SELECT {', '.join(map(database.quoted, wanted))} FROM {database.name} {condition}")  # noqa: S608  # quoted
        reader = cursor.fetch_record_batch()
    for field in reader.schema:
        if isinstance(field.type, pa.BaseExtensionType) or pa.types.is_nested(field.type):
            raise SourceRefused(f"the column '{field.name}' has a type of {database.title} that changes on the way", _TYPED)
    schema = pa.schema([field.remove_metadata() for field in reader.schema])

    def batches() -> Iterator[pa.RecordBatch]:
        with cursor:  # it closes its stream when nobody holds it
            for batch in reader:
                yield batch.cast(schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


_reading = partial(
    replaced,
    lambda _: SourceRefused(
        "the database stopped answering, or refused to read the table",
        "may you read it? is it still there? has each of its columns values of one type, as SQLite need not have?",
    ),
)
_writing = partial(
    replaced,
    lambda _: DestinationRefused("the database cannot be written", "is it there, and may you create tables in the schema?"),
)


@dataclass(frozen=True)
class _Marks:
    """The fingerprints that a table will record, next to those that it has."""

    database: Database
    mechanisms: Mapping[str, Mechanism]
    before: Mapping[str, str]

    def check(self) -> None:
        """Refuse to add reports to those of another mechanism."""
        for column, text in self.before.items():
            if not agree(of_text(text), [fingerprint(self.mechanisms[column])]):
                raise OtherMechanism(
                    f"another mechanism drew the reports in the column '{column}'", "write the new reports into another table"
                )

    def write(self, con: Any, token: str, *, appended: bool) -> None:
        """Write the fingerprints, and the token of a release, in the transaction that writes the table."""
        for column, mechanism in self.mechanisms.items():
            first = columns_of_reports(column, certify(mechanism).reports)[0]
            if not (appended and not self.before[column]):  # nobody knows what drew the rows that are there
                self.database.record(con, fingerprint(mechanism), first)
        if token:
            earlier = self.database.records(con)
            self.database.record(con, "\n".join(filter(None, [earlier, *(f"{REMARK}{one}" for one in token.split())])))


class DatabaseSink:
    """The table of a run in another system, like `TableSink`: written in one transaction, which its server commits or not.

    Raises:
        DestinationRefused: if the database cannot do it so that others see all of that or nothing.

    """

    encoded = False  # text comes as it is, not as a dictionary

    def __init__(self, address: str, *, replace: bool, append: bool) -> None:
        self._database, self.replace, self.append = database_at(address), replace, append
        with self._database.connected() as con, _writing():
            self.there, self.place = bool(self._database.columns(con)), self._database.place(con)
        if self.there and ((replace and not self._database.replaces) or (append and not self._database.appends)):
            problem = (
                f"a table of {self._database.title} that is there cannot be {'replaced' if replace else 'added to'} at once"
            )
            raise DestinationRefused(problem, "write the reports into another table")
        self._transaction, self._forms = "", dict[str, Any]()

    def check(self, source: str, columns: Iterable[str]) -> None:  # noqa: ARG002  # its types are known when it is written
        """Check that the table can be written.

        Raises:
            DestinationExists: if the table is there, and neither to be replaced nor appended to.
            DestinationRefused: if the source reads it.

        """
        if self.there and not (self.replace or self.append):
            raise already_exists(".".join(self._database.path))
        if self.there and is_address(source):
            with self._database.connected() as own, database_at(source).connected() as other:
                read = database_at(source).identity(other, "")
                if {*self._database.identity(own, "").base} & {*read.base}:
                    raise DestinationRefused("the destination is the source itself", "write the reports into another table")

    def marking(self, mechanisms: Mapping[str, Mechanism]) -> _Marks:
        """Return the marks of the columns of reports, whose forms `write` needs."""
        self._forms = {name: certify(one).reports for name, one in mechanisms.items()}
        with self._database.connected() as con, _writing():
            firsts = {name: columns_of_reports(name, form)[0] for name, form in self._forms.items()}
            before = {name: self._database.records(con, first) if self.there else "" for name, first in firsts.items()}
        return _Marks(self._database, mechanisms, before)

    def write(self, reports: pa.RecordBatchReader, then: Callable[[Any], None]) -> None:
        """Write a stream into the table, and call ``then`` in its transaction before this is committed."""
        schema = pa.schema([field for one in reports.schema for field in _fields(one, self._forms.get(one.name))])
        batches = (_flat(batch, self._forms, schema) for batch in reports)
        stream = pa.RecordBatchReader.from_batches(schema, batches)

        def sign(con: Any) -> None:
            self._transaction = self._database.transaction(con)
            then(con)

        with self._database.connected() as con:
            self._database.store(con, stream, sign, replace=self.replace and self.there, append=self.append and self.there)

    def tokens(self) -> set[str]:
        """Return the tokens of the releases that are in tables of the database."""
        with self._database.connected() as con, _writing():
            if self._transaction and not self._database.ended(con, self._transaction):
                raise UnfinishedRun("the server has not ended the transaction of this run", "run again with --resume")
            return self._database.tokens(con)


def columns_of_reports(name: str, reports: Any) -> list[str]:
    """Return the columns of other systems that hold the reports of a column; those of structs are named after its fields."""
    kind = reports.type
    return [f"{name}_{field.name}" for field in kind] if pa.types.is_struct(kind) else [name]


def _fields(field: pa.Field, form: Any) -> list[pa.Field]:
    if pa.types.is_struct(field.type):
        # a seed of 64 bits is text: other systems have no unsigned numbers
        wide = {"seed": pa.string()} if isinstance(form, HashReports) else {}
        return [pa.field(f"{field.name}_{one.name}", wide.get(one.name) or _wider(one.type)) for one in field.type]
    if isinstance(form, SymbolReports):
        return [pa.field(field.name, pa.int64())]
    return [pa.field(field.name, pa.string() if isinstance(form, SetReports) else _wider(field.type))]


def _wider(kind: pa.DataType) -> pa.DataType:
    """Return the type in which every system has the values: for unsigned numbers, one with a sign."""
    signed = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}
    return signed.get(kind, pa.int16() if kind == pa.int8() else kind)


def _flat(batch: pa.RecordBatch, forms: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return reports in columns that every system has: sets as text of bits, structs as a column for each field."""
    columns: list[pa.Array] = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        own, form = plain(column), forms.get(field.name)
        if pa.types.is_struct(field.type):
            columns += [pc.struct_field(own, one.name) for one in field.type]
        elif isinstance(form, SymbolReports):
            columns.append(own.flatten())
        else:
            columns.append(_bits(own, form) if isinstance(form, SetReports) else own)
    cast = [one.cast(field.type) for one, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def _bits(column: pa.Array, form: SetReports) -> pa.Array:
    """Return sets as texts of one bit for each value."""
    words = form.read(column).astype("<u8", copy=False)
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")[:, : form.size] + np.uint8(48)
    ends = np.arange(0, len(column) + 1, dtype=np.int32) * np.int32(form.size)
    return pa.Array.from_buffers(pa.string(), len(column), [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(bits))])
