"""The sources of a run: files, tables of DuckDB, frames and streams, and the parts into which they are cut.

A part is read, perturbed and published as one. A stream ends in an error if its files, its rows or its users changed since they
were charged: only what was charged is drawn. It is read to its end before its reports are published, so such an error leaves
nothing behind.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from ldpsql.domains.columns import family, is_frame, is_pandas_frame, pandas_names, pandas_table, plain, shown_class
from ldpsql.engine.connections import cursor_like, cursor_of, stopped_with
from ldpsql.engine.files import (
    READERS,
    FileFormat,
    check_unquoted,
    differing,
    differs,
    files_of,
    folders_of,
    format_of,
    in_query,
    pattern_at,
    reader,
    unreadable,
)
from ldpsql.engine.identity import Identity, digest_of, identity_of, identity_of_files, identity_of_statement
from ldpsql.errors import InvalidParameter, LdpError, SourceRefused, UnknownName, WrongType
from ldpsql.errors.boundary import replaced
from ldpsql.ledger.people import Digest, digest, together
from ldpsql.places import Place
from ldpsql.quoting import quoted, text_literal

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import polars as pl

_SPELLING = "check the spelling; the columns are not listed, since their names may be values"
_FIELD = "make a view in which the field of the struct is a column: CREATE VIEW flat AS SELECT s.x AS x, report FROM reports"


def names_of(argument: Iterable[str], parameter: str) -> tuple[str, ...]:
    """Return the names of columns in an argument."""
    names = tuple(argument) if isinstance(argument, Iterable) and not isinstance(argument, str) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise InvalidParameter(f"{parameter} must be a list of names of columns", f"{parameter}=['region']")
    return names


def check_columns(wanted: Iterable[str], existing: Sequence[str], *, hint_names: bool = True, hint: str = _SPELLING) -> None:
    """Check that each wanted column exists exactly once.

    Args:
        wanted: the names to look for.
        existing: the names of all columns.
        hint_names: whether a hint may name a column with a similar spelling; if not, only one that differs in case: the first
            line of a text file may be somebody's data. A hint never lists all names: those of a PIVOT, or of a file without a
            header, are values.
        hint: what to say if it does not.

    Raises:
        InvalidParameter: if the name of a column is not a string.
        UnknownName: if a column is missing.
        SourceRefused: if a column occurs twice.

    """
    for name in wanted:
        if not isinstance(name, str):
            raise InvalidParameter("the name of a column must be a string", "write the label 0 of a frame as '0'")
        if name not in existing:
            alike = [column for column in existing if column.casefold() == name.casefold()]
            if hint_names:
                alike = alike or get_close_matches(name, existing, n=1)
            raise UnknownName("column", name, alike, _FIELD if name.partition(".")[0] in existing else hint)
        if existing.count(name) > 1:
            raise SourceRefused(f"there are two columns named '{name}'", "rename one")


Frame: TypeAlias = "pl.DataFrame | pl.LazyFrame | pd.DataFrame | pa.Table | pa.RecordBatchReader | DuckDBPyRelation"
Column: TypeAlias = "pa.Array | pa.ChunkedArray | pl.Series | pd.Series | pd.Index | np.ndarray[Any, Any] | Sequence[Any]"
Kind: TypeAlias = FileFormat | Literal["table"]
_LINES = "check the spelling; the first line of a CSV file must name the columns, and every line must have as many fields"
_DELIMITER = re.compile(r"[,;|\t]")


@dataclass(frozen=True)
class Part:
    """One part of a source: its identity, its number of rows (None if unknown), and how it is read.

    ``read`` takes three lists of columns: all that are wanted; those of which only the domain's positions matter, which may
    come encoded by a dictionary; and those that are kept, which come in types that hold all of their values.
    A stream of files that changed meanwhile ends in `SourceRefused`. ``snapshot``, if possible, returns the part as it is now,
    whatever is written later. ``empty``, if reading may begin with much work, such as that of a view, reads the columns without
    a row.
    """

    identity: tuple[Any, ...]
    rows: int | None
    read: Callable[[list[str], Collection[str], Collection[str]], pa.RecordBatchReader]
    snapshot: Callable[[], Part] | None = None
    empty: Callable[[list[str], Collection[str], Collection[str]], pa.RecordBatchReader] | None = None
    files: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What a message calls it: its file, without folders, whose names may hold values; else the source."""
        return _title(self.files)


def _title(files: Sequence[str]) -> str:
    return f"the file '{Place(files[0]).path.name}'" if len(files) == 1 else "the source"


def cut_short(title: str) -> SourceRefused:
    """Return the error for a source that could not be read to its end."""
    hint = "is it complete, and does every column have one type, with dates in JSON such as 2026-01-31?"
    return SourceRefused(f"{title} could not be read to its end", hint)


@dataclass(frozen=True)
class Source:
    """The names of the columns, the parts, the files and their format; a stream can be read only ``once``.

    ``header`` is False if the names may be values: the keys of JSON, and the first line of a CSV file of text alone. Above
    numbers or dates, a line of text is a header.
    ``named`` is the name of a table, and ``users`` holds the user ids that were read from the source, until they are charged.
    ``whose`` returns whose rows they are, from a cursor and whether to read all of them; a frame or a stream is not identified.
    ``query`` reads files that are neither a table nor Arrow's, and ``differing`` holds the columns of which the type in the
    first file does not hold what is in another.
    """

    names: list[str]
    parts: list[Part]
    once: bool = False
    files: tuple[str, ...] = ()
    kind: Kind | None = None
    header: bool = True
    named: str = ""
    users: list[Any] = field(default_factory=list)
    whose: Callable[[DuckDBPyConnection, bool], Identity] = field(default=lambda *_: Identity("", ()))
    query: str = ""
    differing: Set[str] = frozenset()

    @property
    def rows(self) -> int | None:
        """The number of rows, None if it is not known beforehand."""
        sizes = [part.rows for part in self.parts]
        return None if None in sizes else sum(rows or 0 for rows in sizes)

    def check(self, columns: Iterable[str]) -> None:
        """Check that each column exists exactly once.

        Raises:
            UnknownName, SourceRefused: if a column is missing, or occurs twice.

        """
        columns = list(columns)
        if self.kind == "csv" and len(self.names) == 1 and _DELIMITER.search(self.names[0]) and self.names[0] not in columns:
            raise SourceRefused(
                "the lines of the CSV file cannot be split into columns",
                "every line must have as many fields as the first one; quote a field that contains the delimiter",
            )
        hint = {"hint": _LINES} if self.kind == "csv" else {}
        check_columns(columns, self.names, hint_names=self.header, **hint)
        if named := sorted(self.differing & {*columns}):
            raise differs(named[0])

    def check_folders(self, columns: Iterable[str]) -> None:
        """Check that no column is the name of folders ``column=value/``, since all files of one value are read in a row."""
        if self.kind != "arrow" and (named := sorted(folders_of(self.files) & set(columns))):
            raise SourceRefused(
                f"the folders of the source are named after the values of the column '{named[0]}'",
                "read them into a table first: CREATE TABLE people AS FROM 'folder/**/*.parquet'",
            )


Read: TypeAlias = Callable[[list[str], Collection[str], Collection[str]], pa.RecordBatchReader]


def unchanged(files: Sequence[str], read: Read, stamp: Callable[[str], object]) -> Read:
    """Return ``read`` with a check: the stream ends in an error if the stamp of a file changed since this call."""
    before = [stamp(file) for file in files]

    def checked(wanted: list[str], encoded: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        reader = read(wanted, encoded, kept)

        def batches() -> Iterator[pa.RecordBatch]:
            with replaced(lambda _: cut_short(_title(files))):
                yield from reader
            for file, earlier in zip(files, before, strict=True):
                try:
                    now = stamp(file)
                except (OSError, duckdb.Error):  # it is gone
                    now = None
                if now != earlier:
                    raise changed(f"the file '{Place(file).path.name}'")

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    return checked


def witnessed(source: Source, user: str | None, keep: Collection[str]) -> Source:
    """Return a source with its user ids, whose streams end in an error if their rows are of other users.

    Raises:
        UnknownName, SourceRefused: if the column does not exist, or the source can be read only once.

    """
    if user is None:
        return source
    source.check([user])
    source = readable_twice(source)
    pairs = [_with_users(part, user, keep) for part in source.parts]
    kind = pairs[0][1].type  # of ids that may be none
    users = pa.chunked_array([chunk for _, ids in pairs for chunk in ids.chunks], type=kind)
    return replace(source, parts=[part for part, _ in pairs], users=[users])


def readable_twice(source: Source) -> Source:
    """Return a source whose tables are as they are now, whatever is written later."""
    if source.once:
        raise SourceRefused("a stream cannot be read twice, for its user ids and to perturb", "pass a frame or a file")
    return replace(source, parts=[part.snapshot() if part.snapshot else part for part in source.parts])


def counted(source: Source) -> Source:
    """Return a source whose streams end in an error if they have fewer rows than were counted: shuffling then hides less."""
    return replace(source, parts=[replace(part, read=_all_rows(part)) for part in source.parts])


def _all_rows(part: Part) -> Read:
    def checked(wanted: list[str], encoded: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        reader = part.read(wanted, encoded, kept)

        def batches() -> Iterator[pa.RecordBatch]:
            rows = 0
            for batch in reader:
                rows += batch.num_rows
                yield batch
            if rows < (part.rows or 0):
                raise changed()

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    return checked


def _with_users(part: Part, user: str, keep: Collection[str]) -> tuple[Part, pa.ChunkedArray]:
    """Return a part that checks its user ids, and these ids as they are charged."""
    ids = _column(part, user, keep)
    expected = digest(ids)
    if user in keep:  # perhaps in a type of its own; an id is the same user in any type
        ids = _column(part, user, ())
    return replace(part, identity=(*part.identity, *expected), read=_compared(part.read, user, expected)), ids


def _column(part: Part, name: str, keep: Collection[str]) -> pa.ChunkedArray:
    reader = part.read([name], (), keep)
    kind = reader.schema.field(name).type
    with replaced(lambda _: cut_short(part.title)):
        return pa.chunked_array([batch.column(name) for batch in reader], type=kind)


def _compared(read: Read, user: str, expected: Digest) -> Read:
    """Return ``read`` with a check: the user ids are read, too, compared at the end, and not passed on."""

    def compared(wanted: list[str], encoded: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        reader = read([*wanted, *({user} - set(wanted))], [name for name in encoded if name != user], kept)
        names = [name for name in reader.schema.names if name in wanted]

        def batches() -> Iterator[pa.RecordBatch]:
            drawn: Digest = (0, 0, 0)
            for batch in reader:
                drawn = together(drawn, digest(batch.column(user)))
                yield batch.select(names)
            if drawn != expected:
                raise changed()

        return pa.RecordBatchReader.from_batches(pa.schema([reader.schema.field(name) for name in names]), batches())

    return compared


def changed(what: str = "the source") -> SourceRefused:
    """Return the error for a source that changed while it was read."""
    return SourceRefused(
        f"{what} changed while it was read, so its reports may be of people who were not charged",
        "nothing was published; run again with --replace, replace=True, while nobody writes to it",
    )


BATCH_ROWS = 122_880  # a row group of DuckDB


def rows_of(file: str) -> list[int]:
    """Return the number of rows of each row group."""
    metadata = pq.read_metadata(file)
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def plain_batches(
    files: Sequence[str], wanted: Iterable[str], encoded: Iterable[str], groups: range | None = None
) -> pa.RecordBatchReader | None:
    """Return columns of files, or of some row groups of one; None unless all files have them with the same plain types.

    Text in the columns ``encoded`` comes as a dictionary and positions in it, as in the file, so each string is looked up once.
    """
    names = set(wanted)
    schemas = [pa.schema([field for field in pq.read_schema(file) if field.name in names]) for file in files]
    common = schemas[0].remove_metadata()
    if len(common) != len(names) or not all(map(common.equals, schemas)) or not all(map(family, common.types)):
        return None

    texts = [field.name for field in common if pa.types.is_string(field.type) and field.name in set(encoded)]
    for name in texts:
        common = common.set(common.get_field_index(name), pa.field(name, pa.dictionary(pa.int32(), pa.string())))

    def batches() -> Iterator[pa.RecordBatch]:
        for file in files:
            with pq.ParquetFile(file, memory_map=True, read_dictionary=texts) as opened:
                read = range(opened.metadata.num_row_groups) if groups is None else groups
                yield from opened.iter_batches(BATCH_ROWS, row_groups=list(read), columns=common.names, use_threads=False)

    return pa.RecordBatchReader.from_batches(common, batches())


_COMPARABLE = {"UUID": "VARCHAR", "JSON": "VARCHAR", "UHUGEINT": "HUGEINT"}  # types that no domain has, and the type to compare
_SETTINGS = {
    "arrow_lossless_conversion": True,  # otherwise a UHUGEINT may become -1, and a BIT other bytes
    "produce_arrow_string_view": False,  # a view in a UNION cannot be written
    "arrow_output_list_view": False,
}


def selected(
    con: DuckDBPyConnection,
    wanted: list[str],
    kept: Collection[str],
    relation: Callable[[DuckDBPyConnection], Any],
    snapshot: DuckDBPyConnection | None = None,
) -> pa.RecordBatchReader:
    """Return columns of a relation, read on a cursor of its own, so that the connection is free to write.

    Columns that are ``kept`` come as they are, others in a type that can be compared with the values of a domain. A cursor of
    `snapshot_of` reads tables as they were at its first read.
    """
    cursor = snapshot or cursor_like(con)
    for setting, value in _SETTINGS.items():
        cursor.execute(f"SET SESSION {setting} = {value}")
    rows = relation(cursor)
    types = dict(zip(rows.columns, map(str, rows.types), strict=True))
    compared = {name: _COMPARABLE[types[name]] for name in wanted if name not in kept and types[name] in _COMPARABLE}
    columns = [f"{quoted(name)}{f'::{compared[name]} AS {quoted(name)}' if name in compared else ''}" for name in wanted]
    reader = rows.project(", ".join(columns)).to_arrow_reader(BATCH_ROWS)
    plainly = {f.name: plain(pa.array([], f.type)).type for f in reader.schema if isinstance(f.type, pa.BaseExtensionType)}
    schema = pa.schema([field.with_type(plainly.get(field.name, field.type)) for field in reader.schema])

    def batches() -> Iterator[pa.RecordBatch]:
        with stopped_with(con, cursor):
            for batch in reader:
                yield pa.RecordBatch.from_arrays([_plain(column) for column in batch.columns], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def snapshot_of(con: DuckDBPyConnection) -> DuckDBPyConnection:
    """Return a cursor like the connection that sees tables as they are at its first read, whatever is written later."""
    cursor = cursor_like(con)
    cursor.execute("BEGIN")
    return cursor


def _plain(column: pa.Array) -> pa.Array:
    """Return booleans and HUGEINTs in the types that every reader of Arrow knows, and other columns as they are."""
    return plain(column) if isinstance(column.type, pa.BaseExtensionType) else column


def batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream.

    Raises:
        SourceRefused: if the stream fails. Its own message may quote values, so it is dropped.

    """
    hint = "does every batch have the types that the stream declares?"
    with replaced(lambda _: SourceRefused("the stream could not be read to its end", hint)):
        yield from reader


def stream(frame: Any, wanted: Collection[str]) -> pa.RecordBatchReader:
    """Return a frame as a stream of record batches with at least the wanted columns.

    Raises:
        WrongType: if the frame neither speaks Arrow's stream interface nor is a pandas frame.
        UnknownName, SourceRefused: if a pandas frame lacks a column, or has it twice.

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


PART_ROWS = 8_000_000  # per part of a file that is cut at its row groups


def stored(con: DuckDBPyConnection, place: Place, *, split: bool, text: Collection[str]) -> Source:
    """Return the files that a path, a URL, a folder or a pattern stands for, cut into parts if ``split``."""
    _refuse_address(place.text)
    place.open_to(con)
    kind, files = files_of(con, place)

    def whose(cursor: DuckDBPyConnection, rows: bool) -> Identity:
        return identity_of_files(place.text, files, _rows(cursor, kind, files) if rows else "")

    opened = _joined(con, kind, files[:1] if split else files, text)
    parts = [part for file in files for part in _parts_of(con, kind, file, text)] if split else opened.parts
    with cursor_of(con) as cursor:
        changed = differing(cursor, files) if kind == "parquet" else ()
    return replace(opened, parts=parts, files=tuple(files), kind=kind, whose=whose, differing=frozenset(changed))


_ROWS = """SELECT * EXCLUDE (file_row_number) FROM read_parquet($1, hive_partitioning := true, file_row_number := true)
           WHERE file_row_number >= $2 AND file_row_number < $3"""  # whole row groups, which DuckDB finds by row numbers


def _rows(cursor: DuckDBPyConnection, kind: FileFormat, files: list[str]) -> str:
    """Return what distinguishes the rows of files from others; see `digest_of`."""
    if kind != "arrow":
        return digest_of(cursor, READERS[kind], files)
    cursor.register("__ldpsql_rows", _arrow(files).parts[0].read([], (), ()))
    return digest_of(cursor, 'FROM "__ldpsql_rows"')


def _joined(con: DuckDBPyConnection, kind: FileFormat, files: list[str], text: Collection[str]) -> Source:
    """Return files as one part."""
    if kind == "arrow":
        return _arrow(files)
    local = not Place(files[0]).is_url
    with cursor_of(con) as cursor:
        query = reader(cursor, kind, files, text)
        opened = cursor.sql(query, params=[files])
        names, types = opened.columns, {str(column) for column in opened.types}

    def read(wanted: list[str], encoded: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        direct = plain_batches(files, wanted, encoded) if kind == "parquet" and local else None
        return direct or selected(con, wanted, kept, lambda at: at.sql(query, params=[files]))

    rows = sum(sum(rows_of(file)) for file in files) if kind == "parquet" and local else None
    stamp = _stamp if local else partial(_stamp_at_url, con)
    part = Part(("files", *map(stamp, files)), rows, unchanged(files, read, stamp), files=tuple(files))
    header = kind == "parquet" or (kind == "csv" and types != {"VARCHAR"})
    return Source(names, [part], header=header, query=in_query(query, files))


def _parts_of(con: DuckDBPyConnection, kind: FileFormat, file: str, text: Collection[str]) -> list[Part]:
    """Return the parts of one file: ranges of row groups if it is Parquet, otherwise all of it."""
    if kind != "parquet" or Place(file).is_url:
        return _joined(con, kind, [file], text).parts
    sizes, parts, first = rows_of(file), [], 0
    for last in range(1, len(sizes) + 1):
        if sum(sizes[first:last]) >= PART_ROWS or last == len(sizes):
            parts.append(_row_groups(con, file, sizes, range(first, last)))
            first = last
    return parts or _joined(con, kind, [file], text).parts


def _row_groups(con: DuckDBPyConnection, file: str, sizes: list[int], groups: range) -> Part:
    before, rows = sum(sizes[: groups.start]), sum(sizes[groups.start : groups.stop])

    def read(wanted: list[str], encoded: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        query = partial(DuckDBPyConnection.sql, query=_ROWS, params=[[file], before, before + rows])
        return plain_batches([file], wanted, encoded, groups) or selected(con, wanted, kept, query)

    return Part(("row groups", _stamp(file), groups.start, groups.stop), rows, unchanged([file], read, _stamp), files=(file,))


def _arrow(files: list[str]) -> Source:
    if len(files) > 1:
        raise SourceRefused("only one Arrow file can be read at a time", "use Parquet for many")

    def read(*_: Collection[str]) -> pa.RecordBatchReader:
        place = Place(files[0])
        opened = place.files_system().open(place.text) if place.is_url else pa.memory_map(place.text)
        try:
            reader = pa.ipc.open_file(opened)
        except pa.ArrowInvalid:
            hint = "write a stream of Arrow, which may end anywhere, with pyarrow.ipc.new_file instead of new_stream"
            raise SourceRefused(f"'{place.path.name}' is not a complete Arrow file", hint) from None
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        return pa.RecordBatchReader.from_batches(reader.schema, batches)

    stamp = ("files", _stamp(files[0]))
    return Source(read().schema.names, [Part(stamp, None, unchanged(files, read, _stamp), files=(files[0],))])


def _stamp(file: str) -> list[Any]:
    """Return the name of a file, and what its content cannot change without."""
    state = Place(file).state()
    if state is None:
        raise FileNotFoundError(file)
    return [Place(file).shown, *state]


def _stamp_at_url(con: DuckDBPyConnection, file: str) -> list[Any]:
    """Return the name, the size and the time of a file that DuckDB opens."""
    with cursor_of(con) as cursor:
        found = cursor.execute("SELECT size, last_modified::VARCHAR FROM read_blob(?)", [file]).fetchall()
    return [Place(file).shown, *found]


def source_of(
    con: DuckDBPyConnection, source: Any, *, split: bool = False, text: Collection[str] = (), counted: bool = False
) -> Source:
    """Return the source that a table name, a path, or an Arrow stream stands for.

    Args:
        con: the database with the tables; a cursor of it reads, which sees neither its temporary tables nor its variables.
        source: the name of a table or view; a file, a folder of Parquet files or a pattern with ``*``, by its path or its URL;
            a frame of Arrow, Polars or pandas.
        split: cut files into parts; otherwise the source is one part.
        text: the columns that are text, whatever their values look like in a CSV or JSON file.
        counted: count the rows of a table; those of a view may take as long as its query.

    Raises:
        SourceRefused: if it does not exist or cannot be read. The engine's own message is dropped: it may hold raw values.

    """
    from ldpsql.bulk.databases import is_address, source_at  # noqa: PLC0415  # which makes sources

    try:
        if not isinstance(source, str | os.PathLike):
            return _streamed(source)
        place = Place.of(source)
        if is_address(source):
            return source_at(str(source))
        if not isinstance(source, str) or place.is_url or place.is_pattern or format_of(place.path):
            return stored(con, place, split=split, text=text)
        try:
            return _table(con, source, counted=counted)
        except duckdb.CatalogException:
            return stored(con, place, split=split, text=text)
    except LdpError as error:
        refusal = error
    except Exception:  # noqa: BLE001  # DuckDB, Arrow, the file system: messages may quote what is in the file
        is_url = isinstance(source, str | os.PathLike) and Place.of(source).is_url
        refusal = unreadable(_called(source), is_url=is_url)
    refusal.__context__ = refusal.__cause__ = None
    raise refusal.with_traceback(None)


def _refuse_address(source: str) -> None:
    """Refuse the address of a table of another system where reports are read."""
    from ldpsql.bulk.databases import is_address  # noqa: PLC0415  # which makes sources

    if is_address(source):
        raise SourceRefused(
            "the address of a table in another database can only be perturbed: reports are not read from there",
            "pass a table of Ibis to ldpsql.estimate, or run there the query that ldpsql export-sql writes",
        )


def _called(source: Any) -> str:
    return f"'{Place.of(source).shown}'" if isinstance(source, str | os.PathLike) else "this frame"


def sql_of(con: DuckDBPyConnection, source: str, columns: Iterable[str] = (), text: Collection[str] = ()) -> str:
    """Return the name of a table, or a path, as the string that ``query_table`` takes, if it exists and has these columns.

    A file that DuckDB cannot read by itself, or whose values it would change, becomes a view of this connection, which no file
    has the name of. A path is quoted: otherwise DuckDB could take its suffix for the name of a Python variable of the caller.
    ``text`` is that of `source_of`.

    Raises:
        SourceRefused: if it does not exist, cannot be read, or is in a database of another system.
        UnknownName: if it has no such column.

    """
    _refuse_address(source)
    opened = source_of(con, source, text=text)
    opened.check(columns)
    if not opened.files:
        return text_literal(source)
    place = pattern_at(Place.of(source))
    if opened.kind == "parquet" and place.path.suffix == ".parquet" and not opened.differing:
        return text_literal(quoted(place.text))
    view = f"{place.text}, as it is"
    if opened.query:
        con.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(view)} AS {opened.query}")
    else:
        from pyarrow.dataset import dataset  # noqa: PLC0415  # slow to import

        system = place.files_system() if place.is_url else None
        files = opened.files if system is None else [system._strip_protocol(file) for file in opened.files]
        con.register(view, dataset(files, format="ipc", filesystem=system))
    return text_literal(quoted(view))


def _streamed(frame: Any) -> Source:
    if isinstance(frame, pa.RecordBatchReader):
        return Source(frame.schema.names, [Part(("stream",), None, lambda *_: frame)], once=True)
    if is_pandas_frame(frame):
        part = Part(("stream",), len(frame), lambda wanted, *_: stream(frame, wanted))
        return Source(pandas_names(frame), [part])
    rows = getattr(frame, "num_rows", getattr(frame, "height", None))
    streamed = Source(stream(frame, ()).schema.names, [Part(("stream",), rows, lambda wanted, *_: stream(frame, wanted))])
    return replace(streamed, whose=partial(_of_relation, frame)) if isinstance(frame, DuckDBPyRelation) else streamed


def _of_relation(relation: DuckDBPyRelation, cursor: DuckDBPyConnection, rows: bool) -> Identity:
    """Return whose rows a relation of DuckDB has; it is not identified if it is of another connection."""
    sql = relation.sql_query()
    found = identity_of_statement(cursor, sql) or Identity("", ())
    return replace(found, rows=digest_of(cursor, sql)) if rows and found.base else found


def _table(con: DuckDBPyConnection, name: str, *, counted: bool) -> Source:
    with cursor_of(con) as cursor:
        check_unquoted(cursor, name)
        table = cursor.table(name)
        rows = table.aggregate("count(*)").to_arrow_table().column(0)[0].as_py() if counted else None
        names = table.columns
    return Source(
        names,
        [_table_part(con, name, rows)],
        kind="table",
        named=name,
        whose=lambda at, every: identity_of(at, name, rows=every),
    )


def _table_part(con: DuckDBPyConnection, name: str, rows: int | None, snapshot: DuckDBPyConnection | None = None) -> Part:
    def read(wanted: list[str], _: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        return selected(con, wanted, kept, lambda at: at.table(name), snapshot)

    def empty(wanted: list[str], _: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        return selected(con, wanted, kept, lambda at: at.table(name).limit(0))

    return Part(("table", name), rows, read, lambda: _table_part(con, name, None, snapshot_of(con)), empty=empty)
