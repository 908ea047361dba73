"""Databases of other systems, each with one of its tables or views, through ADBC: PostgreSQL, SQLite, Snowflake, BigQuery.

A table has an address: that of its database, ``#`` and its name, such as ``postgresql://host/shop#public.people`` or
``sqlite:///shop.db#people``. What the server says decides whose rows these are, not how the address is written.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from ldpsql.engine.identity import Identity, dotted, split
from ldpsql.errors import InvalidParameter, SourceRefused
from ldpsql.quoting import quoted, text_literal

RECORDS = "ldpsql_records"  # the table for what other engines keep in comments
REMARK = "ldpsql release "


class Database(ABC):
    """A database of another system, and one of its tables or views."""

    driver: ClassVar[str]  # the package of its driver for ADBC
    few: ClassVar[str]  # the condition for rows that show the types of columns
    replaces: ClassVar[bool] = True  # whether a table can be replaced, or added to, so that others see all of that or nothing
    appends: ClassVar[bool] = True

    def __init__(self, address: str) -> None:
        uri, _, name = address.partition("#")
        self.path = split(name)
        if not name or len(self.path) > 2:
            hint = "postgresql://host/shop#public.people, sqlite:///shop.db#people"
            raise InvalidParameter("the address of a table ends in # and its name, perhaps with a schema", hint)
        self.uri = uri

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
            close(con)

    def connect(self) -> Any:
        """Return a connection of ADBC, in a transaction."""
        try:
            return import_module(f"{self.driver}.dbapi").connect(**self.arguments())
        except ImportError:
            problem, hint = f"nothing here opens tables of {self.title}", f"python -m pip install {self.driver}"
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
        return self.named(self.path[-1])

    def named(self, table: str) -> str:
        """Return a table of the same schema as SQL writes it."""
        return ".".join(map(self.quoted, [*self.path[:-1], table]))

    def quoted(self, name: str) -> str:
        """Return a name as SQL writes it."""
        return quoted(name)

    def arguments(self) -> dict[str, Any]:
        """Return what the driver needs to connect."""
        return {"uri": self.uri}

    def schema(self) -> dict[str, str]:
        """Return what the driver needs to create a table in the schema."""
        return {"db_schema_name": self.path[0]} if self.path[1:] else {}

    def is_there(self) -> bool:
        """Return whether there is such a database, if that is known before anybody connects."""
        return True

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

    def store(
        self, con: Any, reports: pa.RecordBatchReader, sign: Callable[[Any], None], *, replace: bool, append: bool
    ) -> None:
        """Write a stream, so that others see all of it or nothing.

        Args:
            con: a connection.
            reports: the stream.
            sign: called with the connection before others can see the rows; what it records, they see with them.
            replace: whether the table is there, and replaced.
            append: whether the table is there, and added to.

        """
        if replace:
            run(con, f"DROP TABLE {self.name}")
        with con.cursor() as cursor:
            cursor.adbc_ingest(self.path[-1], reports, mode="append" if append else "create", **self.schema())
        sign(con)
        con.commit()


class Recorded(Database):
    """A database without comments: the table `RECORDS` of the same schema holds what is recorded."""

    text: ClassVar[str] = "TEXT"  # the type of texts
    alike: ClassVar[str] = ""  # the collation of names

    @abstractmethod
    def tables(self, con: Any) -> list[str]:
        """Return the names of the tables of the schema."""

    def literal(self, text: str) -> str:
        """Return a text as SQL writes it."""
        return text_literal(text)

    def records(self, con: Any, column: str = "") -> str:
        """Return the lines of `RECORDS`."""
        if RECORDS not in self.tables(con):
            return ""
        return "\n".join(text for (text,) in rows_of(con, f"SELECT record FROM {self.named(RECORDS)} {self._of(column)}"))  # noqa: S608

    def record(self, con: Any, text: str, column: str = "") -> None:
        """Write a line of `RECORDS`, instead of an earlier one."""
        self.make_records(con)
        line = ", ".join(map(self.literal, (self.path[-1], column, text)))
        run(con, f"DELETE FROM {self.named(RECORDS)} {self._of(column)}")  # noqa: S608  # quoted
        run(con, f"INSERT INTO {self.named(RECORDS)} VALUES ({line})")  # noqa: S608

    def make_records(self, con: Any) -> None:
        """Create `RECORDS`, unless it is there."""
        if RECORDS not in self.tables(con):
            fields = ", ".join(f"{field} {self.text}" for field in ("table_name", "column_name", "record"))
            run(con, f"CREATE TABLE {self.named(RECORDS)} ({fields})")

    def forget(self, con: Any) -> None:
        """Remove all lines of the table, which is not there any more."""
        run(con, f"DELETE FROM {self.named(RECORDS)} WHERE table_name = {self.literal(self.path[-1])}{self.alike}")  # noqa: S608

    def tokens(self, con: Any) -> set[str]:
        """Return the tokens in `RECORDS` of tables that exist; those of a renamed table are not found."""
        there = {name.lower() for name in self.tables(con)}
        if RECORDS not in there:
            return set()
        lines = rows_of(con, f"SELECT table_name, record FROM {self.named(RECORDS)} WHERE column_name = ''")  # noqa: S608
        return tokens_in(text for table, text in lines if table.lower() in there)

    def _of(self, column: str) -> str:
        """Return the condition for the lines of a column, or of the table."""
        return f"WHERE table_name = {self.literal(self.path[-1])}{self.alike} AND column_name = {self.literal(column)}"


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
        hashes = 'sum(hashtextextended("ldp row"::text, 0)::numeric)'  # no column of a user has this name
        query = f'SELECT count(*)::text, coalesce({hashes}, 0)::text FROM {self.name} AS "ldp row"'  # noqa: S608  # quoted
        return " ".join(rows_of(con, query)[0])

    def place(self, con: Any) -> str:
        path = self.path if len(self.path) == 2 else (*rows_of(con, "SELECT current_schema()::text")[0], *self.path)
        found = rows_of(con, _NAMED, self.name)
        ((database,),) = rows_of(con, "SELECT current_database()::text")
        return dotted([self._cluster(con), database, *(found[0] if found else path)])

    def records(self, con: Any, column: str = "") -> str:
        query = """SELECT coalesce(d.description, '') FROM pg_description AS d LEFT JOIN pg_attribute AS a
                   ON a.attrelid = d.objoid AND a.attnum = d.objsubid
                   WHERE d.objoid = to_regclass($1) AND d.classoid = 'pg_class'::regclass AND coalesce(a.attname, '') = $2"""
        return "\n".join(text for (text,) in rows_of(con, query, self.name, column))

    def record(self, con: Any, text: str, column: str = "") -> None:
        what = f"COLUMN {self.name}.{quoted(column)}" if column else f"TABLE {self.name}"
        run(con, f"COMMENT ON {what} IS {text_literal(text)}")

    def tokens(self, con: Any) -> set[str]:
        query = "SELECT description FROM pg_description WHERE objsubid = 0 AND description LIKE '%ldpsql release %'"
        return tokens_in(text for (text,) in rows_of(con, query))

    def transaction(self, con: Any) -> str:
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


class SQLite(Recorded):
    """A table of a file of SQLite: its rows are those of the file, under any path, as of a database that DuckDB attaches."""

    driver, few = "adbc_driver_sqlite", "LIMIT 1000"  # values have types, columns do not
    alike = " COLLATE NOCASE"

    def arguments(self) -> dict[str, Any]:
        return {"uri": str(self.file)}

    def schema(self) -> dict[str, str]:
        """Return nothing: there are no schemas."""
        return {}

    def is_there(self) -> bool:
        return self.file.exists()

    @property
    def file(self) -> Path:
        """The file; after ``sqlite:///`` a path, so that an absolute one has four slashes."""
        return Path(re.sub(r"\Asqlite://(/(?=.)|)", "", self.uri, flags=re.IGNORECASE)).absolute()

    def connect(self) -> Any:
        """Return a connection of ADBC, in a transaction."""
        if len(self.path) > 1 and self.path[0].casefold() != "main":
            raise InvalidParameter("a table of SQLite has no schema", "sqlite:///shop.db#people")
        if not self.file.parent.is_dir():
            raise SourceRefused("there is no folder for the file of SQLite", "sqlite:///shop.db is a file of this folder")
        return super().connect()

    def named(self, table: str) -> str:
        return quoted(table)

    def begin(self, con: Any) -> None:
        """Read without a transaction, which would keep others from writing; `stamp` sees that they did."""
        con.adbc_connection.set_autocommit(True)

    def columns(self, con: Any) -> list[str]:
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
        total = count = 0
        with closing(sqlite3.connect(self.file)) as own:
            for row in own.execute(f"SELECT * FROM {self.name}"):  # noqa: S608  # quoted
                total += int.from_bytes(blake2b(repr(row).encode(errors="surrogatepass"), digest_size=16).digest(), "little")
                count += 1
        return f"{count} {total % (1 << 128)}"

    def place(self, con: Any) -> str:  # noqa: ARG002
        return dotted([self.file.resolve().stem.casefold(), "main", self.path[-1].casefold()])

    def tables(self, con: Any) -> list[str]:
        return [name for (name,) in rows_of(con, "SELECT name FROM sqlite_master WHERE type = 'table'")]

    def stamp(self, con: Any) -> object:
        return rows_of(con, "PRAGMA data_version")


def close(con: Any) -> None:
    """Close a connection, and roll back what it has not committed."""
    with suppress(Exception):  # the server may be gone
        con.rollback()
    with suppress(Exception):
        con.close()


def tokens_in(texts: Iterable[str]) -> set[str]:
    """Return the tokens of releases that comments or records hold."""
    return {token for text in texts for token in re.findall(f"{REMARK}([0-9a-f]{{32}})", text or "")}


# Tables of Snowflake and BigQuery through ADBC, where a statement that makes a table commits at once.
#
# Reports go into another table first, which one statement then publishes. Sources: the references of SQL of Snowflake and of
# GoogleSQL, and of the drivers of ADBC.

_OPTION = "adbc."  # parameters of an address that go to the driver as they are


class Staged(Recorded):
    """A table that is written under another name, and published by one statement: it is renamed, or added to the table."""

    few, replaces = "LIMIT 0", False

    @abstractmethod
    def renamed(self, table: str) -> str:
        """Return the statement that gives a table of the schema the name of this one."""

    @abstractmethod
    def facts(self, con: Any) -> tuple[str, str, str]:
        """Return BASE TABLE unless it is a view, and when it was made and changed: '' if unknown or not there."""

    @abstractmethod
    def account(self, con: Any) -> list[str]:
        """Return whose tables these are, the database, and the schema."""

    def begin(self, con: Any) -> None:
        """Read without a transaction: a statement reads one snapshot, and `stamp` sees what changes between two."""

    def identity(self, con: Any, rows: str) -> Identity:
        """Return whose rows they are."""
        kind, made, _ = self.facts(con)
        if kind != "BASE TABLE":
            raise SourceRefused(f"a view of {self.title} does not say whose rows it has", "perturb the table behind it")
        account, database, _ = self.account(con)
        itself = self.place(con)
        names = (dotted([f"made {account}", database, made]), itself) if made else (itself,)  # it may have been renamed
        return Identity(itself, names, (itself,), rows)

    def place(self, con: Any) -> str:
        return dotted([*self.account(con), self.path[-1]])

    def stamp(self, con: Any) -> object:
        """Return when the table was changed, or what it holds where nobody knows when."""
        facts = self.facts(con)
        return facts if facts[2] else (facts, self.digest(con))

    def store(
        self,
        con: Any,
        reports: pa.RecordBatchReader,
        sign: Callable[[Any], None],
        *,
        replace: bool,  # noqa: ARG002  # `replaces` is false
        append: bool,
    ) -> None:
        staged = f"ldpsql_{token_hex(8)}"
        self.make_records(con)
        try:
            with con.cursor() as cursor:
                cursor.adbc_ingest(staged, reports, mode="create", **self.schema())
            con.commit()
            if append:
                run(con, self.added(staged, reports.schema.names))
                sign(con)
            else:
                self.forget(con)  # a run that ended here left records of a table that is not there
                sign(con)
                con.commit()
                run(con, self.renamed(staged))
            con.commit()
        finally:
            self.drop(con, staged)

    def added(self, table: str, columns: list[str]) -> str:
        """Return the statement that adds the rows of a table of the schema to this one."""
        names = ", ".join(map(self.quoted, columns))
        return f"INSERT INTO {self.name} ({names}) SELECT {names} FROM {self.named(table)}"  # noqa: S608  # quoted

    def drop(self, con: Any, table: str) -> None:
        """Remove a table of the schema if it is there, and what is not committed."""
        with suppress(Exception):  # the server may be gone; nobody knows the name
            con.rollback()
            run(con, f"DROP TABLE IF EXISTS {self.named(table)}")
            con.commit()


class Snowflake(Staged):
    """A table of Snowflake, such as ``snowflake://USER@ACCOUNT/SHOP/PUBLIC?warehouse=SMALL#PEOPLE``.

    SNOWFLAKE_PASSWORD holds the password. Parameters that begin with ``adbc.`` are options of the driver.
    """

    driver = "adbc_driver_snowflake"

    def arguments(self) -> dict[str, Any]:
        address = urlsplit(self.uri)
        database, _, schema = address.path.strip("/").partition("/")
        given = dict(parse_qsl(address.query))
        options = {
            "adbc.snowflake.sql.client_option.use_high_precision": "false",  # whole numbers are not decimals
            "adbc.snowflake.sql.account": address.hostname or "",
            "username": unquote(address.username or ""),
            "password": unquote(address.password or "") or os.environ.get("SNOWFLAKE_PASSWORD", ""),
            "adbc.snowflake.sql.db": database,
            "adbc.snowflake.sql.schema": schema,
        }
        named = {f"adbc.snowflake.sql.{name}": value for name, value in given.items() if name in ("warehouse", "role")}
        passed = {name: value for name, value in given.items() if name.startswith(_OPTION)}
        return {"db_kwargs": {name: value for name, value in (options | named | passed).items() if value}}

    def literal(self, text: str) -> str:
        """Return a text as SQL writes it: a backslash stands before other characters."""
        return super().literal(text.replace("\\", "\\\\"))

    def renamed(self, table: str) -> str:
        return f"ALTER TABLE {self.named(table)} RENAME TO {self.name}"

    def account(self, con: Any) -> list[str]:
        schema = f"coalesce({self.literal(self.path[0])}, current_schema())" if self.path[1:] else "current_schema()"
        ((region, account, database, schema),) = rows_of(
            con, f"SELECT current_region(), current_account(), current_database(), {schema}"
        )
        return [f"snowflake {region} {account}", database, schema]

    def facts(self, con: Any) -> tuple[str, str, str]:
        query = "SELECT table_type, to_varchar(created), to_varchar(last_altered) FROM information_schema.tables"
        found = rows_of(con, f"{query} WHERE {self._here()} AND table_name = {self.literal(self.path[-1])}")
        return found[0] if found else ("", "", "")

    def tables(self, con: Any) -> list[str]:
        return [name for (name,) in rows_of(con, f"SELECT table_name FROM information_schema.tables WHERE {self._here()}")]  # noqa: S608

    def columns(self, con: Any) -> list[str]:
        query = f"SELECT column_name FROM information_schema.columns WHERE {self._here()}"  # noqa: S608
        return [
            name
            for (name,) in rows_of(con, f"{query} AND table_name = {self.literal(self.path[-1])} ORDER BY ordinal_position")
        ]

    def _here(self) -> str:
        return f"table_schema = {self.literal(self.path[0]) if self.path[1:] else 'current_schema()'}"

    def digest(self, con: Any) -> str:
        return " ".join(map(str, rows_of(con, f"SELECT count(*), hash_agg(*) FROM {self.name}")[0]))  # noqa: S608  # quoted


class BigQuery(Staged):
    """A table of BigQuery: ``bigquery://PROJECT/DATASET#people``, with the credentials of the environment.

    Parameters that begin with ``adbc.`` are options of the driver, such as those for credentials in a file.
    """

    driver, text, appends = "adbc_driver_bigquery", "STRING", False  # the driver has no transactions

    def __init__(self, address: str) -> None:
        super().__init__(address)
        parts = urlsplit(self.uri)
        self._project, self._dataset = parts.hostname or "", parts.path.strip("/") or (self.path[0] if self.path[1:] else "")
        self._options = {name: value for name, value in parse_qsl(parts.query) if name.startswith(_OPTION)}
        if not (self._project and self._dataset):
            raise InvalidParameter(
                "the address of a table of BigQuery names project and dataset", "bigquery://PROJECT/DATASET#people"
            )

    def arguments(self) -> dict[str, Any]:
        option = "adbc.bigquery.sql."
        place = {f"{option}project_id": self._project, f"{option}dataset_id": self._dataset}
        return {"db_kwargs": {f"{option}auth_type": f"{option}auth_type.auth_bigquery"} | place | self._options}

    def schema(self) -> dict[str, str]:
        """Return nothing: the connection has the dataset."""
        return {}

    def quoted(self, name: str) -> str:
        """Return a name as SQL writes it."""
        if "`" in name or "\\" in name:
            raise InvalidParameter(
                "no name of BigQuery has a backtick or a backslash", "rename the column in a table of its own"
            )
        return f"`{name}`"

    def named(self, table: str) -> str:
        return ".".join(map(self.quoted, (self._project, self._dataset, table)))

    def literal(self, text: str) -> str:
        """Return a text as SQL writes it: between double quotes, as JSON does."""
        return json.dumps(text)

    def renamed(self, table: str) -> str:
        return f"ALTER TABLE {self.named(table)} RENAME TO {self.quoted(self.path[-1])}"

    def account(self, con: Any) -> list[str]:  # noqa: ARG002  # the address says it
        """Return the project, and twice the dataset: there are no schemas."""
        return [f"bigquery {self._project}", self._dataset, self._dataset]

    def facts(self, con: Any) -> tuple[str, str, str]:
        query = f"""SELECT if(type = 1, 'BASE TABLE', 'VIEW'), CAST(creation_time AS STRING), CAST(last_modified_time AS STRING)
                    FROM {self.named("__TABLES__")} WHERE table_id = {self.literal(self.path[-1])}"""  # noqa: S608  # quoted
        found = rows_of(con, query)
        return found[0] if found else ("", "", "")

    def tables(self, con: Any) -> list[str]:
        return [name for (name,) in rows_of(con, f"SELECT table_id FROM {self.named('__TABLES__')}")]  # noqa: S608

    def columns(self, con: Any) -> list[str]:
        found = f"{self.named('INFORMATION_SCHEMA')}.COLUMNS WHERE table_name = {self.literal(self.path[-1])}"
        return [name for (name,) in rows_of(con, f"SELECT column_name FROM {found} ORDER BY ordinal_position")]  # noqa: S608

    def digest(self, con: Any) -> str:
        hashes = "sum(CAST(farm_fingerprint(to_json_string(ldp_row)) AS BIGNUMERIC))"
        query = f"SELECT concat(count(*), ' ', {hashes}) FROM {self.name} AS ldp_row"  # noqa: S608  # quoted
        return str(rows_of(con, query)[0][0])
