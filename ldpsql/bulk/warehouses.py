"""Tables of Snowflake and BigQuery through ADBC, where a statement that makes a table commits at once.

Reports go into another table first, which one statement then publishes. Sources: the references of SQL of Snowflake and of
GoogleSQL, and of the drivers of ADBC.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from ldpsql.bulk.engines import Recorded, rows_of, run
from ldpsql.engine.identity import Identity, dotted
from ldpsql.errors import InvalidParameter, SourceRefused

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
