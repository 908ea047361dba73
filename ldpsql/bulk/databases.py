"""Tables of PostgreSQL and SQLite as sources and sinks of a run, by streams of Arrow batches through ADBC.

A table has an address: that of its database, ``#`` and its name, such as ``postgresql://host/shop#public.people`` or
``sqlite:///shop.db#people``. What the server says decides whose rows these are, not how the address is written.
"""

from __future__ import annotations

import os
import re
import sqlite3
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection

from ldpsql.bulk.sources import Part, Source, changed
from ldpsql.bulk.staging import already_exists
from ldpsql.domains.columns import plain
from ldpsql.engine.identity import Identity, dotted, split
from ldpsql.errors import DestinationRefused, InvalidParameter, LdpError, OtherMechanism, SourceRefused, UnfinishedRun
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.places import is_address
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.agreement import agree, of_text
from ldpsql.registry.fingerprint import fingerprint
from ldpsql.reports import HashReports, SetReports, SymbolReports

RECORDS = "ldpsql_records"  # the table of SQLite for what other engines keep in comments
_REMARK = "ldpsql release "
_TYPED = "cast it in a view: CREATE VIEW readable AS SELECT amount::double precision AS amount, city::text AS city FROM people"


class Database(ABC):
    """A database of another system, and one of its tables or views."""

    driver: ClassVar[str]
    few: ClassVar[str]  # the condition for rows that show the types of columns

    def __init__(self, address: str) -> None:
        uri, _, name = address.partition("#")
        self.path = split(name)
        if not name or len(self.path) > 2:
            hint = "postgresql://host/shop#public.people, sqlite:///shop.db#people"
            raise InvalidParameter("the address of a table ends in # and its name, perhaps with a schema", hint)
        self.uri = uri

    @staticmethod
    def at(address: str) -> Database:
        """Return the database of an address."""
        return (SQLite if address[:6].lower() == "sqlite" else PostgreSQL)(address)

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """Yield a connection of ADBC, in a transaction that is rolled back at the end unless it was committed.

        Raises:
            SourceRefused: if the driver is not installed, or nobody answers.

        """
        con = self.connect()
        try:
            yield con
        finally:
            _close(con)

    def connect(self) -> Any:
        """Return a connection of ADBC, in a transaction.

        Raises:
            SourceRefused: if the driver is not installed, or nobody answers.

        """
        try:
            return import_module(f"{self.driver}.dbapi").connect(self._location())
        except ImportError:
            problem, hint = f"nothing here opens tables of {self.title}", "python -m pip install 'ldpsql[adbc]'"
        except Exception:  # noqa: BLE001  # the message of the driver may hold the password
            problem, hint = f"{self.title} does not answer", "is the address right, and may you connect?"
        raise SourceRefused(problem, hint)

    @property
    def title(self) -> str:
        """What messages call the system."""
        return type(self).__name__

    @property
    def name(self) -> str:
        """The table as SQL writes it."""
        return ".".join(map(quoted, self.path))

    def _location(self) -> str:
        return self.uri

    @abstractmethod
    def begin(self, con: Any) -> None:
        """Let all reads of a connection see the same rows, if the system can."""

    @abstractmethod
    def columns(self, con: Any) -> list[str]:
        """Return the columns of the table; none if it does not exist."""

    @abstractmethod
    def identity(self, con: Any, rows: str) -> Identity:
        """Return whose rows the table has."""

    @abstractmethod
    def digest(self, con: Any) -> str:
        """Return the number of the rows, and a hash of all of them that does not depend on their order."""

    @abstractmethod
    def place(self, con: Any) -> str:
        """Return the name of the table in a ledger, the same for every spelling of the address."""

    @abstractmethod
    def records(self, con: Any, column: str = "") -> str:
        """Return what is recorded of a column, or of the table: the text of a comment."""

    @abstractmethod
    def record(self, con: Any, text: str, column: str = "") -> None:
        """Record a text of a column, or of the table."""

    @abstractmethod
    def tokens(self, con: Any) -> set[str]:
        """Return the tokens of the releases that are in tables of the database, even if a table was renamed."""

    def transaction(self, con: Any) -> str:  # noqa: ARG002  # SQLite has no other processes that go on
        """Return the number of the transaction of a connection, by which `ended` knows it."""
        return ""

    def ended(self, con: Any, transaction: str) -> bool:  # noqa: ARG002
        """Return whether a transaction was committed or rolled back, so that `tokens` cannot change by it."""
        return True

    @abstractmethod
    def stamp(self, con: Any) -> object:
        """Return what changes with the rows, unless `begin` keeps them as they are."""


def rows_of(con: Any, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Return the rows of a statement."""
    with con.cursor() as cursor:
        cursor.execute(sql, parameters or None)
        return list(cursor.fetchall()) if cursor.description else []


def run(con: Any, sql: str) -> None:
    """Run a statement that returns nothing."""
    with con.cursor() as cursor:
        cursor.execute(sql)


class PostgreSQL(Database):
    """A table of PostgreSQL: its rows are those of a relation of a database of a cluster, under any address and name."""

    driver, few = "adbc_driver_postgresql", "WHERE false"

    def begin(self, con: Any) -> None:
        """Read one snapshot."""
        run(con, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    def columns(self, con: Any) -> list[str]:
        """Return the columns of the table; none if it does not exist."""
        query = "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"
        return [name for (name,) in rows_of(con, f"{query} ORDER BY attnum", self.name)]

    def identity(self, con: Any, rows: str) -> Identity:
        """Return whose rows they are: of the tables behind a view, and of the one of which a table is a part or a child."""
        cluster = self._cluster(con)
        tables = rows_of(con, _BEHIND, self.name)
        base = {dotted([cluster, *path]) for *path, _ in tables}
        inodes = {dotted([f"inode {cluster}", number]) for *_, number in tables}
        itself = self.place(con)
        return Identity(itself, tuple(sorted({itself, *base, *inodes})), tuple(sorted(base)), rows)

    def _cluster(self, con: Any) -> str:
        ((number,),) = rows_of(con, "SELECT system_identifier::text FROM pg_control_system()")
        return f"postgresql {number}"

    def digest(self, con: Any) -> str:
        """Return the number of the rows and the sum of the hashes of their texts, which the server computes."""
        hashes = 'sum(hashtextextended("ldp row"::text, 0)::numeric)'  # no column of a user has this name
        query = f'SELECT count(*)::text, coalesce({hashes}, 0)::text FROM {self.name} AS "ldp row"'  # noqa: S608  # quoted
        return " ".join(rows_of(con, query)[0])

    def place(self, con: Any) -> str:
        """Return the cluster, the database, the schema and the table."""
        path = self.path if len(self.path) == 2 else (*rows_of(con, "SELECT current_schema()::text")[0], *self.path)
        found = rows_of(con, _NAMED, self.name)
        ((database,),) = rows_of(con, "SELECT current_database()::text")
        return dotted([self._cluster(con), database, *(found[0] if found else path)])

    def records(self, con: Any, column: str = "") -> str:
        """Return a comment."""
        query = """SELECT coalesce(d.description, '') FROM pg_description AS d LEFT JOIN pg_attribute AS a
                   ON a.attrelid = d.objoid AND a.attnum = d.objsubid
                   WHERE d.objoid = to_regclass($1) AND d.classoid = 'pg_class'::regclass AND coalesce(a.attname, '') = $2"""
        return "\n".join(text for (text,) in rows_of(con, query, self.name, column))

    def record(self, con: Any, text: str, column: str = "") -> None:
        """Write a comment."""
        what = f"COLUMN {self.name}.{quoted(column)}" if column else f"TABLE {self.name}"
        run(con, f"COMMENT ON {what} IS {text_literal(text)}")

    def tokens(self, con: Any) -> set[str]:
        """Return the tokens in the comments of all tables."""
        query = "SELECT description FROM pg_description WHERE objsubid = 0 AND description LIKE '%ldpsql release %'"
        return _tokens(text for (text,) in rows_of(con, query))

    def transaction(self, con: Any) -> str:
        """Return the number of the transaction of a connection."""
        return str(rows_of(con, "SELECT pg_current_xact_id()::text")[0][0])

    def ended(self, con: Any, transaction: str) -> bool:
        """Return whether a transaction has ended; the server may still commit what a client sent before it went away."""
        return rows_of(con, "SELECT pg_xact_status($1::text::xid8)", transaction) in ([("committed",)], [("aborted",)])

    def stamp(self, con: Any) -> object:  # noqa: ARG002  # one snapshot
        """Return None: `begin` keeps the rows."""
        return None


# The tables that hold the rows of a relation, each by database, schema and name, and its number. A partition and a child stand
# for the whole table above them, and so does a table for what it inherits from: that can only charge too much.
_BEHIND = """
    WITH RECURSIVE behind(oid) AS (
        SELECT to_regclass($1)::oid
        UNION SELECT found.oid FROM behind, LATERAL (
            SELECT d.refobjid FROM pg_rewrite AS r JOIN pg_depend AS d ON d.objid = r.oid AND d.classid = 'pg_rewrite'::regclass
            WHERE r.ev_class = behind.oid AND d.refclassid = 'pg_class'::regclass
            UNION ALL SELECT i.inhparent FROM pg_inherits AS i WHERE i.inhrelid = behind.oid
        ) AS found(oid)
    )
    SELECT current_database()::text, n.nspname::text, c.relname::text, concat(current_database(), ' ', c.oid)
    FROM behind JOIN pg_class AS c USING (oid) JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'f')
    AND NOT EXISTS (SELECT 1 FROM pg_inherits AS i WHERE i.inhrelid = c.oid)"""
_NAMED = """SELECT n.nspname::text, c.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE c.oid = to_regclass($1)"""


class SQLite(Database):
    """A table of a file of SQLite: its rows are those of the file, under any path, as of a database that DuckDB attaches."""

    driver, few = "adbc_driver_sqlite", "LIMIT 1000"  # values have types, columns do not

    def _location(self) -> str:
        return str(self.file)

    @property
    def file(self) -> Path:
        """The file; after ``sqlite:///`` a path, so that an absolute one has four slashes."""
        return Path(re.sub(r"\Asqlite://(/(?=.)|)", "", self.uri, flags=re.IGNORECASE)).absolute()

    def connect(self) -> Any:
        """Return a connection of ADBC, in a transaction.

        Raises:
            SourceRefused: if there is no folder for the file, the driver is not installed, or the file is not a database.

        """
        if len(self.path) > 1 and self.path[0].casefold() != "main":
            raise InvalidParameter("a table of SQLite has no schema", "sqlite:///shop.db#people")
        if not self.file.parent.is_dir():
            raise SourceRefused("there is no folder for the file of SQLite", "sqlite:///shop.db is a file of this folder")
        return super().connect()

    @property
    def name(self) -> str:
        """The table as SQL writes it."""
        return quoted(self.path[-1])

    def begin(self, con: Any) -> None:
        """Read without a transaction, which would keep others from writing; `stamp` sees that they did."""
        con.adbc_connection.set_autocommit(True)

    def columns(self, con: Any) -> list[str]:
        """Return the columns of the table; none if it does not exist."""
        return [name for (name,) in rows_of(con, f"SELECT name FROM pragma_table_info({text_literal(self.path[-1])})")]  # noqa: S608

    def identity(self, con: Any, rows: str) -> Identity:
        """Return whose rows they are: of the tables that SQLite reads for this name."""
        stem, inode = self.file.resolve().stem.casefold(), f"inode {os.stat(self.file).st_dev} {os.stat(self.file).st_ino}"
        tables = {table.casefold() for table in self._read()}
        base = {dotted([stem, "main", table]) for table in tables}
        itself = self.place(con)
        names = {itself, *base, *(dotted([inode, "main", table]) for table in tables)}
        return Identity(itself, tuple(sorted(names)), tuple(sorted(base)), rows)

    def _read(self) -> set[str]:
        tables: set[str] = set()

        def authorize(action: int, table: str | None, *_: object) -> int:
            if action == sqlite3.SQLITE_READ and table:
                tables.add(table)
            return sqlite3.SQLITE_OK

        with closing(sqlite3.connect(self.file)) as con:
            con.set_authorizer(authorize)
            con.execute(f"EXPLAIN SELECT * FROM {self.name}")  # noqa: S608  # quoted
            views = {name.casefold() for (name,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'view'")}
        return {table for table in tables if table.casefold() not in views and table != "sqlite_master"}

    def digest(self, con: Any) -> str:  # noqa: ARG002
        """Return the number of the rows and the sum of the hashes of their texts."""
        total = count = 0
        with closing(sqlite3.connect(self.file)) as own:
            for row in own.execute(f"SELECT * FROM {self.name}"):  # noqa: S608  # quoted
                total += int.from_bytes(blake2b(repr(row).encode(errors="surrogatepass"), digest_size=16).digest(), "little")
                count += 1
        return f"{count} {total % (1 << 128)}"

    def place(self, con: Any) -> str:  # noqa: ARG002
        """Return the file and the table."""
        return dotted([self.file.resolve().stem.casefold(), "main", self.path[-1].casefold()])

    def records(self, con: Any, column: str = "") -> str:
        """Return the lines of `RECORDS`."""
        if not rows_of(con, f"SELECT name FROM sqlite_master WHERE name = '{RECORDS}'"):  # noqa: S608
            return ""
        place = f"({text_literal(self.path[-1])}, {text_literal(column)})"
        query = f"SELECT record FROM {RECORDS} WHERE (table_name, column_name) = {place}"  # noqa: S608  # quoted
        return "\n".join(text for (text,) in rows_of(con, query))

    def record(self, con: Any, text: str, column: str = "") -> None:
        """Write a line of `RECORDS`, instead of an earlier one."""
        run(con, f"CREATE TABLE IF NOT EXISTS {RECORDS} (table_name TEXT, column_name TEXT, record TEXT)")
        table, name = text_literal(self.path[-1]), text_literal(column)
        run(con, f"DELETE FROM {RECORDS} WHERE table_name = {table} AND column_name = {name}")  # noqa: S608
        run(con, f"INSERT INTO {RECORDS} VALUES ({table}, {name}, {text_literal(text)})")  # noqa: S608

    def tokens(self, con: Any) -> set[str]:
        """Return the tokens in `RECORDS` of tables that exist; those of a renamed table are not found."""
        if not rows_of(con, f"SELECT name FROM sqlite_master WHERE name = '{RECORDS}'"):  # noqa: S608
            return set()
        return _tokens(text for (text,) in rows_of(con, f"SELECT record FROM {RECORDS} WHERE column_name = ''"))  # noqa: S608

    def stamp(self, con: Any) -> object:
        """Return the version of the file."""
        return rows_of(con, "PRAGMA data_version")


def _tokens(texts: Iterable[str]) -> set[str]:
    return {token for text in texts for token in re.findall(f"{_REMARK}([0-9a-f]{{32}})", text or "")}


def source_at(address: str) -> Source:
    """Return the table at an address as a source of one part, whose rows are the same whenever it is read.

    Raises:
        SourceRefused: if there is no such table.

    """
    database = Database.at(address)
    if isinstance(database, SQLite) and not database.file.exists():
        raise SourceRefused(
            "there is no such file of SQLite", "an absolute path has four slashes: sqlite:////data/shop.db#people"
        )
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
        _close(con)
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

    weakref.finalize(read, _close, con)
    part = Part(("database", place, before), int(count), read, empty=empty)
    return Source(names, [part], named=address, whose=whose)


def _close(con: Any) -> None:
    with suppress(Exception):  # the server may be gone
        con.rollback()
    with suppress(Exception):
        con.close()


def _stream(con: Any, database: Database, wanted: list[str], condition: str = "") -> pa.RecordBatchReader:
    """Return columns of a table as a stream, in types that the reports can keep.

    Raises:
        SourceRefused: if a column has a type that no domain has.

    """
    cursor = con.cursor()
    with _reading():
        cursor.execute(f"SELECT {', '.join(map(quoted, wanted))} FROM {database.name} {condition}")  # noqa: S608  # quoted
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


@contextmanager
def _replaced(refusal: type[LdpError], problem: str, hint: str) -> Iterator[None]:
    """Replace an error of the driver within a ``with`` block, whose message may hold values."""
    try:
        yield
    except LdpError:
        raise
    except Exception:  # noqa: BLE001  # whatever the driver raises
        failed = True
    else:
        failed = False
    if failed:
        raise refusal(problem, hint)


_reading = partial(
    _replaced,
    SourceRefused,
    "the database stopped answering, or refused to read the table",
    "may you read it? is it still there?",
)
_writing = partial(
    _replaced, DestinationRefused, "the database cannot be written", "is it there, and may you create tables in the schema?"
)


@dataclass(frozen=True)
class _Marks:
    """The fingerprints that a table will record, next to those that it has."""

    database: Database
    mechanisms: Mapping[str, Mechanism]
    before: Mapping[str, str]

    def check(self) -> None:
        """Refuse to add reports to those of another mechanism.

        Raises:
            OtherMechanism: if a column holds reports of another mechanism.

        """
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
            self.database.record(con, "\n".join(filter(None, [earlier, *(f"{_REMARK}{one}" for one in token.split())])))


class DatabaseSink:
    """The table of a run in another system, like `TableSink`: written in one transaction, which its server commits or not.

    Raises:
        InvalidParameter: if it is both to be replaced and appended to.

    """

    encoded = False  # text comes as it is, not as a dictionary

    def __init__(self, address: str, *, replace: bool, append: bool) -> None:
        if replace and append:
            raise InvalidParameter("a table is either replaced or appended to", "choose one")
        self._database, self.replace, self.append = Database.at(address), replace, append
        with self._database.connected() as con, _writing():
            self.there, self.place = bool(self._database.columns(con)), self._database.place(con)
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
            with self._database.connected() as own, Database.at(source).connected() as other:
                read = Database.at(source).identity(other, "")
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
        mode = "append" if self.append and self.there else "create"
        named = (
            {"db_schema_name": self._database.path[0]}
            if isinstance(self._database, PostgreSQL) and self._database.path[1:]
            else {}
        )
        with self._database.connected() as con:
            if self.replace and self.there:
                run(con, f"DROP TABLE {self._database.name}")
            with con.cursor() as cursor:
                stream = pa.RecordBatchReader.from_batches(schema, batches)
                cursor.adbc_ingest(self._database.path[-1], stream, mode=mode, **named)
            self._transaction = self._database.transaction(con)
            then(con)
            con.commit()

    def tokens(self) -> set[str]:
        """Return the tokens of the releases that are in tables of the database.

        Raises:
            UnfinishedRun: if the server has not ended the transaction of this run yet.

        """
        with self._database.connected() as con, _writing():
            if self._transaction and not self._database.ended(con, self._transaction):
                raise UnfinishedRun("the server has not ended the transaction of this run", "run again with --resume")
            return self._database.tokens(con)


def columns_of_reports(name: str, reports: Any) -> list[str]:
    """Return the columns of other systems that hold the reports of a column; those of structs are named after its fields."""
    kind = reports.type if hasattr(reports, "type") else reports.values.type
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
