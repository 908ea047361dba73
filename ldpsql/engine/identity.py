"""The identity of a source of rows: whose rows a table, a view, a file or a statement reads, whatever it is called.

    people, PEOPLE, main.people, "people"   warehouse.main.people: catalog, schema and table in lowercase
    a table of an attached database         the same by any alias; and by the device and the inode of the database's file
    a view                                  itself, and the tables and files that it reads
    a view or a macro that reads neither    a digest of the SQL that makes its rows
    people.parquet, ./*.parquet             the files, by their absolute paths without links, and by device and inode
    read_parquet('peo' || 'ple.parquet')    any file: `COMPUTED`
    https://me:key@host/a.csv?sig=...       https://host/a.csv, without what opens it
    a frame, a stream, any other name       not identified: only what it is called

Policies, charges and guards look sources up here. A ledger charges a name together with every name that may mean the same:
`people`, from an older ledger or typed by hand, also stands for `warehouse.main.people`, and a database file for all of its
tables. This can only charge too much.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from glob import glob, has_magic
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql.engine.functions import MARK
from ldpsql.errors import SourceRefused
from ldpsql.places import pattern_of
from ldpsql.quoting import quoted, text_literal

_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^".\s](?:[^".]*[^".\s])?))\s*(\.|$)')
_QUOTED = re.compile(r"'((?:[^']|'')*)'|\"((?:[^\"]|\"\")*)\"|\$(\w*)\$(.*)\$\3\$", re.DOTALL)  # a token that is text or a name
_WORD = re.compile(r"\w+")
_FILE = re.compile(r"[/\\]|\.(parquet|pq|csv|tsv|json|jsonl|ndjson|arrow|feather|gz|zst)$", re.IGNORECASE)
_LOCAL = re.compile(r"file:(//(localhost)?)?(?=/)", re.IGNORECASE)
_READER = re.compile(r"read_|\w+_scan$", re.IGNORECASE)
_EXPLAIN = re.compile(r"\A\s*EXPLAIN\b\s*(ANALYZE\b\s*)?(\(\s*(ANALYZE|FORMAT)\b[\w\s,]*\))?", re.IGNORECASE)
_COMPUTING = re.compile(  # they take names, or SQL
    r"\b(query|query_table|perturb_rows|read_\w+|\w+_(scan|query)|parquet_\w+|sniff_csv|glob|json_execute_serialized_sql)\b",
    re.IGNORECASE,
)
_TAKES_SQL = re.compile(r"(\w+_)?query|json_execute_serialized_sql", re.IGNORECASE)
_TAKES_TABLES = re.compile(r"query_table|perturb_rows", re.IGNORECASE)
_DOTTED = re.compile(r"[iq](?:\.[iq])+")  # in the letters of `_lexed`
_PLAIN_CALL = re.compile(r"(?:[ft]\((?:s|\[s(?:,s)*\]|q|[iq](?:\.[iq])+)|t\(i)[,)]")
_UNCALLED = re.compile(r'"?(inode|rows|body) ')
_FRAMES = {"ARROW_SCAN", "PANDAS_SCAN"}
_NAMES = {"DUCKDB_TABLES", "DUCKDB_VIEWS"}  # what every statement reads that draws next to a ledger or policies
_DATABASE = (".duckdb", ".db", ".ddb")
_TEXTS = """SELECT NULL, view_name, sql, [] FROM duckdb_views() WHERE NOT internal
            UNION ALL SELECT database_name, function_name, macro_definition, parameters FROM duckdb_functions()
            WHERE contains(function_type, 'macro') AND macro_definition IS NOT NULL AND NOT internal"""
_USER = re.compile(r"(?<=://)[^/]*@")  # with a password
_SIGNATURE = re.compile(r"[?#][^/?#]*=.*", re.DOTALL)  # without =, ? may be a pattern of files
_QUERY = re.compile(r"(https?://[^?#]*)[?#].*", re.DOTALL | re.IGNORECASE)  # on the web it never is: it may be a bare token
# password=..., Pwd=..., motherduck_token=... of a connection string; its value may be quoted, also within a string of SQL.
_CREDENTIAL = re.compile(
    r"""(?<![\w/])(\w*(?:pass(?:w(?:or)?d|phrase)?|pwd|auth|credentials?|sas|token|secret|signature|(?:account|access|api|private)_?key)\s*=)
    \s*(?:''.*?''|'(?:\\.|[^'\\])*'|"(?:""|[^"])*"|(?:\\.|[^\s;'"\\])*)""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)

COMPUTED = "files of computed names"  # the source of a query that reads files that no string names
UNIDENTIFIED = "not identified"  # the source of a frame, a stream, or a name that stands for nothing


@dataclass(frozen=True)
class Identity:
    """Whose rows a source has.

    Args:
        name: what the history of a ledger calls the data.
        names: everything that the rows are charged to and that policies look up: the name, and the views, tables, files, inodes
            and bodies of SQL behind it.
        base: those of them that hold the rows: tables, files and bodies. Empty if the source is not identified.
        rows: the number of the rows as they are now, and a hash of all of them in any order; empty if nobody asked.

    """

    name: str
    names: tuple[str, ...]
    base: tuple[str, ...] = ()
    rows: str = ""

    @classmethod
    def named(cls, name: str) -> Identity:
        """Return the identity of a name without a connection to look it up in: it is not identified."""
        return cls(canonical(name), (canonical(name),))

    @property
    def source(self) -> str:
        """What the history says was read: the first table or file, and how many there are."""
        more = len(self.base) - 1
        return f"{self.base[0]} and {more} more" if more > 0 else next(iter(self.base), UNIDENTIFIED)

    def called(self, other: Identity) -> Identity:
        """Return this source under the name of another one, which is charged too."""
        return replace(self, name=other.name, names=tuple(sorted({*self.names, *other.names})))

    def state(self, key: bytes) -> str:
        """Return a name of the rows as they are now in their files and databases, under a key; '' if they are not known."""
        inodes = tuple(name for name in self.names if name.lstrip('"').startswith("inode "))
        names = inodes if len(inodes) == len(self.base) else self.base  # a link, an alias and a new file name keep the inode
        holders = sorted({name if is_path(name) else split(name)[0] for name in names})  # a table that is renamed: its database
        digest = blake2b(json.dumps([holders, self.rows]).encode(), key=key, digest_size=16)
        return f"rows {digest.hexdigest()}" if self.base and self.rows else ""

    def within(self, other: Identity) -> bool:
        """Whether all tables and files of this source are among those of another; files of computed names are in no others."""
        known = [its for its in other.base if its != COMPUTED]
        return all(one in other.base or (one != COMPUTED and any(alike(one, its) for its in known)) for one in self.base)


def is_called(name: str) -> bool:
    """Return whether a name is one that people give to data: not an inode, a digest of rows or of SQL."""
    return _UNCALLED.match(name) is None


def is_path(name: str) -> bool:
    """Return whether a name is a path or the name of a file."""
    return _FILE.search(name) is not None


def without_secrets(name: str) -> str:
    """Return a name without passwords and tokens; an address without its user and query, since these can hold them.

    >>> without_secrets("https://me:secret@host/people.parquet?sig=abc")
    'https://host/people.parquet'
    >>> without_secrets("dbname=shop password=secret host=db")
    'dbname=shop password= host=db'
    """
    name = _CREDENTIAL.sub(r"\1", name)
    return _SIGNATURE.sub("", _QUERY.sub(r"\1", _USER.sub("", name))) if "://" in name else name


def canonical(name: str) -> str:
    """Return a name as the ledger keeps it: lowercase and unquoted, unless it is a path; an address without its secrets."""
    name = without_secrets(name)
    return name if _FILE.search(name) else dotted(parts(name))


def dotted(path: Iterable[str]) -> str:
    """Return the parts of a name as one string, which `parts` reads back."""
    return ".".join(quoted(part) if set(part) & set('."') or _FILE.search(f".{part}") else part for part in path)


def parts(name: str) -> tuple[str, ...]:
    """Return the parts of a dotted name or of a path in lowercase; any other string is one part."""
    name = without_secrets(name)  # older ledgers hold addresses as they were written
    read = Path(name).parts if is_path(name) and not _is_quoted(name) else split(name)
    return tuple(part.casefold() for part in read)


def _is_quoted(name: str) -> bool:
    """Return whether a name is one in SQL with quotes: "income/expenses" is a table, and /data/a"b".csv no name in SQL."""
    return '"' in name and split(name) != (name.strip(),)


def split(name: str) -> tuple[str, ...]:
    """Return the parts of a dotted name without their quotes; any other string is one part."""
    read, at = [], 0
    while match := _PART.match(name, at):
        read.append(match[1].replace('""', '"') if match[1] else match[2])
        at = match.end()
        if not match[3]:
            return tuple(read)
    return (name.strip(),)


def alike(one: str, other: str) -> bool:
    """Whether two names may stand for the same people: they end alike, and the shorter one only leaves parts out."""
    if one == other:
        return True
    short, long = sorted((parts(one), parts(other)), key=len)
    if COMPUTED in (one, other):
        return any(_FILE.search(name) for name in (one, other))
    if _holds(one, other) or _holds(other, one):
        return True
    if _FILE.search(one) or _FILE.search(other):
        return long[-len(short) :] == short or _is_same_file(one, other)
    rest = iter(long)
    return long[-1] == short[-1] and all(part in rest for part in short)  # warehouse.people is warehouse.main.people


def _holds(file: str, table: str) -> bool:
    """Whether a file is the database of a table."""
    return Path(file).suffix in _DATABASE and not _FILE.search(table) and Path(file).stem.casefold() == parts(table)[0]


def _is_same_file(one: str, other: str) -> bool:
    """Whether two absolute paths now lead to one file, such as a hard link."""
    with suppress(OSError, ValueError):
        return os.path.isabs(one) and os.path.isabs(other) and os.path.samefile(one, other)
    return False


def identity_of(cursor: DuckDBPyConnection, name: str, *, rows: bool = False) -> Identity:
    """Return the identity of a table, a view, a file, a pattern or any other name on a connection.

    Args:
        cursor: a cursor of the connection, to look names up in; DuckDB's optimizer may be off in it afterwards.
        name: as `query_table` takes it, or any other name.
        rows: whether to read all rows, so that a ledger recognises them in another part.

    """
    query = f"FROM query_table({text_literal(name)})"
    scans = [] if "://" in name else _scans(cursor, query) or []  # on the network: only DuckDB opens it
    path, text = bool(_FILE.search(name) or has_magic(name)), f"{text_literal(name)} {name}"
    found = _identity(cursor, name, scans, text if _functions(scans) or (path and not _tables(scans)) else "")
    view = None if _FILE.search(name) else next((dotted(view) for view in _views(cursor) if alike(name, dotted(view))), None)
    if view and not found.base and not _functions(scans) & _FRAMES:
        bodies = sorted(one.sql.partition(" AS ")[2] or one.sql for one in _Texts(cursor).reached(text)[1:])
        body = f"body {blake2b(json.dumps(bodies).encode(), digest_size=16).hexdigest()}"
        found = replace(found, names=(body,), base=(body,))
    itself = view or _own_name(name, found.base)
    names = tuple(sorted({itself, *found.names}))
    return Identity(itself, names, found.base, digest_of(cursor, query) if rows and found.base else "")


def identity_of_statement(cursor: DuckDBPyConnection, sql: str, *, unless_by_value: bool = False) -> Identity | None:
    """Return the identity of all tables, views and files that a statement reads; None if DuckDB cannot plan it here.

    Args:
        cursor: a cursor of the connection; DuckDB's optimizer may be off in it afterwards.
        sql: the statement.
        unless_by_value: whether to return None, too, if a parameter or a variable, whose values are not known here, may be the
            name of what it reads.

    """
    reached = _Texts(cursor, ours=False).reached(sql) if unless_by_value else None
    scans = None if reached and _reads_by_value(sql, reached) else _scans(cursor, sql)
    if scans is None:
        return None
    found = _identity(cursor, "a statement", scans, sql if _functions(scans) else "", reached)
    words = {*_WORD.findall(sql.casefold()), *(part for text in _strings(sql) for part in parts(text))}
    views = {dotted(view) for view in _views(cursor) if view[-1] in words}
    return replace(found, names=tuple(sorted({*found.names, *views})))


def _reads_by_value(sql: str, reached: Sequence[_Text]) -> bool:
    """Return whether a parameter or a variable may be the name of what a statement reads."""
    texts = " ".join(one.sql for one in reached)
    open_to_values = "getvariable" in texts.casefold() or any(one.named_parameters for one in duckdb.extract_statements(sql))
    return open_to_values and _COMPUTING.search(texts) is not None


def identity_of_files(name: str, files: Sequence[str], rows: str = "") -> Identity:
    """Return the identity of files that exist, which a path, a folder, a pattern or a URL names."""
    paths = {str(Path(file).resolve()) for file in files if "://" not in file}
    found = paths | {without_secrets(file) for file in files if "://" in file}
    itself = min(found) if len(found) == 1 else canonical(name) if "://" in name else os.path.abspath(name)
    return Identity(itself, tuple(sorted({itself, *found, *map(_inode, paths)})), tuple(sorted(found)), rows)


def digest_of(cursor: DuckDBPyConnection, query: str, *parameters: object) -> str:
    """Return the number of rows of a query, and a hash of all of them that does not depend on their order.

    Raises:
        SourceRefused: if they cannot be read. DuckDB's own message is dropped: it may hold raw values.

    """
    with suppress(duckdb.Error):
        counted = f"SELECT count(*), coalesce(sum(hash(__rows)), 0) FROM ({query}\n) AS __rows"  # noqa: S608  # a query of ours
        return " ".join(map(str, cursor.execute(counted, parameters or None).fetchall()[0]))
    raise SourceRefused(
        "the rows of the source cannot be read to their end, so a ledger cannot recognise them",
        "a ledger that charges by row reads all columns: make a view of those that can be read",
    )


def table_of(cursor: DuckDBPyConnection, name: str) -> tuple[str, ...] | None:
    """Return catalog, schema and name of a table in lowercase; None if the name does not read exactly one table.

    Args:
        cursor: DuckDB's optimizer may be off in it afterwards.
        name: as SQL writes it.

    """
    scans = [] if "://" in name else _scans(cursor, f"FROM query_table({text_literal(name)})") or []
    tables = [parts(table) for kind, table in scans if kind == "Table"]
    return tables[0] if len(tables) == 1 else None


def destination_of(cursor: DuckDBPyConnection, name: str) -> str:
    """Return the table of a name as `Identity.base` calls it, or the one that the name would make; a path or address as it is.

    Args:
        cursor: DuckDB's optimizer may be off in it afterwards.
        name: as SQL writes it.

    """
    if "://" in name or (is_path(name) and not _is_quoted(name)):
        return name
    table = table_of(cursor, name) or split(name.casefold())
    if len(table) == 1:
        (here,) = cursor.execute("SELECT lower(current_database()), lower(current_schema())").fetchall()
        table = (*here, *table)
    return dotted([_databases(cursor).get(table[0], table)[0], *table[1:]]) if len(table) == 3 else dotted(table)


def _identity(
    cursor: DuckDBPyConnection, name: str, scans: list[tuple[str, str]], text: str, reached: Sequence[_Text] | None = None
) -> Identity:
    """Return the identity of what a plan scans; its files are those that a text names, also through views and macros."""
    databases, tables = _databases(cursor), [parts(table) for table in _tables(scans)]
    files: set[str] = set()
    if text:
        settings = "SELECT current_setting('home_directory'), current_setting('file_search_path')"
        ((home, searched),) = cursor.execute(settings).fetchall()
        folders = home or os.path.expanduser("~"), ["", *filter(None, (searched or "").split(","))]
        reached = reached or _Texts(cursor, ours=False).reached(text)
        files = files.union(*(_existing(string, folders) for one in reached for string in _strings(one.sql)))
        seen = files and not any(map(_computes_names, reached))
        if not seen and any(_READER.match(read) for read in _functions(scans) - _FRAMES):
            files.add(COMPUTED)
    base = {dotted([databases[catalog][0], *rest]) for catalog, *rest in tables} | files
    inodes = {dotted([databases[catalog][1], *rest]) for catalog, *rest in tables if databases[catalog][1]}
    inodes |= {_inode(file) for file in files if os.path.isfile(file)}
    return Identity(name, tuple(sorted(base | inodes)), tuple(sorted(base)))


def _own_name(name: str, base: tuple[str, ...]) -> str:
    """Return what the history calls a name that is no view: the table or the file itself, or the pattern of several files."""
    files = [one for one in base if _FILE.search(one) or one == COMPUTED]
    ours = [one for one in base if one not in files and parts(one)[-1] == parts(name)[-1]]
    if ours or len(files) == 1:
        return min(ours or files)
    return os.path.abspath(name) if files and "://" not in name else canonical(name)


def _scans(cursor: DuckDBPyConnection, sql: str) -> list[tuple[str, str]] | None:
    """Return the tables and functions that DuckDB's plan reads, before the optimizer removes any; None if there is no plan."""
    sql = _EXPLAIN.sub("", sql, count=1)  # EXPLAIN ANALYZE runs what cannot be explained twice
    for optimizer in ("disable", "enable"):  # it removes tables that give no rows, but some plans need it
        cursor.execute(f"PRAGMA {optimizer}_optimizer")
        with suppress(duckdb.Error):
            statements = duckdb.extract_statements(sql)
            if len(statements) != 1:  # DuckDB would explain the first and run the others
                return None
            parameters = dict.fromkeys(statements[0].named_parameters)
            ((_, plan),) = cursor.execute(f"EXPLAIN (FORMAT json) {sql}", parameters or None).fetchall()
            return list(_read(json.loads(plan)))
    return None


def _read(plan: Any) -> Iterator[tuple[str, str]]:
    for node in plan:
        details = node.get("extra_info") or {}
        yield from ((kind, str(details[kind])) for kind in ("Table", "Function") if kind in details)
        yield from _read(node.get("children") or [])


def _tables(scans: Iterable[tuple[str, str]]) -> set[str]:
    return {read for kind, read in scans if kind == "Table"}


def _functions(scans: Iterable[tuple[str, str]]) -> set[str]:
    return {read for kind, read in scans if kind == "Function"} - _NAMES


def _databases(cursor: DuckDBPyConnection) -> dict[str, tuple[str, str]]:
    """Return two names of each database, since an alias is only another spelling: those of its file and of the file's inode.

    The name of the file is without folder and suffix; a database without a file has only its own name.
    """
    rows = cursor.execute("SELECT database_name, path FROM duckdb_databases()").fetchall()
    files = {name: Path(path).resolve() if path and Path(path).is_file() else None for name, path in rows}
    return {
        name.casefold(): (name.casefold(), "") if file is None else (file.stem.casefold(), _inode(str(file), changing=True))
        for name, file in files.items()
    }


def _views(cursor: DuckDBPyConnection) -> list[tuple[str, ...]]:
    """Return catalog, schema and name of each view; the catalog is the name of its database."""
    databases = _databases(cursor)
    rows = cursor.execute("SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    return [(databases[catalog.casefold()][0], *(part.casefold() for part in rest)) for catalog, *rest in rows]


def _inode(file: str, *, changing: bool = False) -> str:
    """Return the name of a file by its device and inode, under which it is known after it was renamed.

    The system gives the inode of a file that was deleted to another one. So the time of the last change belongs to the name,
    unless the file is ``changing`` as long as it exists, as a database does.
    """
    status = os.stat(file)
    return f"inode {status.st_dev} {status.st_ino}" + ("" if changing else f" {status.st_mtime_ns}")


class _Text(NamedTuple):
    """SQL, and the names of its parameters if it is the body of a macro."""

    sql: str
    parameters: Sequence[str] = ()


class _Texts:
    """The SQL of the views and macros of a connection by their names; views of one name in several schemas may all be meant.

    Args:
        cursor: a cursor of the connection.
        ours: whether to include the macros of ldpsql.

    """

    def __init__(self, cursor: DuckDBPyConnection, *, ours: bool = True) -> None:
        self._texts: dict[str, list[_Text]] = {}
        rows = cursor.execute(_TEXTS).fetchall()
        made = {catalog for catalog, called, *_ in rows if called == MARK}
        for catalog, called, *text in rows:
            if catalog not in made or (ours and not called.startswith("_")):
                self._texts.setdefault(called.casefold(), []).append(_Text(*text))

    def reached(self, sql: str) -> list[_Text]:
        """Return a text and those of all views and macros that it names, directly or through others."""
        left, waiting, seen = dict(self._texts), [_Text(sql)], list[_Text]()
        while waiting:
            seen.append(text := waiting.pop())
            quoted_names = (part for string in _strings(text.sql) for part in (string.casefold(), *parts(string)))
            words = {*_WORD.findall(text.sql.casefold()), *quoted_names}
            for called in words & left.keys():
                waiting += left.pop(called)
        return seen


def _strings(text: str) -> list[str]:
    """Return the strings and the quoted names in SQL, and names with dots, which may be those of files."""
    codes, tokens = _lexed(text)
    alone = (token for code, token in zip(codes, tokens, strict=True) if code in "sq")
    return [*alone, *("".join(tokens[match.start() : match.end()]) for match in _DOTTED.finditer(codes))]


def _computes_names(text: _Text) -> bool:
    """Return whether SQL calls a function that takes SQL, or one that takes names with more than strings or a name.

    A parameter of a macro stands for whatever its callers and its default compute.
    """
    codes, _ = _lexed(text.sql, {name.casefold() for name in text.parameters})
    return "g(" in codes or codes.count("f(") + codes.count("t(") > len(_PLAIN_CALL.findall(codes))


def _lexed(text: str, parameters: Set[str] = frozenset()) -> tuple[str, list[str]]:
    """Return a letter for each token of SQL, as DuckDB reads it, and the tokens without quotes; comments are left out.

    The letters are t for a function that takes tables, f for another one that takes names, g for one that takes SQL, s for a
    string, p for a parameter, q for another name in quotes and i for another name or word; x stands for other tokens of several
    characters.
    """
    octets, found = text.encode(), duckdb.tokenize(text)
    codes, tokens = [], []
    for (start, kind), end in zip(found, [*(start for start, _ in found[1:]), len(octets)], strict=True):
        token = octets[start:end].decode(errors="replace").strip()
        if kind == duckdb.token_type.comment:
            continue
        match, code = _QUOTED.fullmatch(token), "i" if _WORD.fullmatch(token) else token if len(token) == 1 else "x"
        if match:
            token = (match[1] or "").replace("''", "'") or (match[2] or "").replace('""', '"') or match[4] or ""
            code = "s" if match[2] is None else "q"
        if code in "iq" and _COMPUTING.fullmatch(token):
            code = "g" if _TAKES_SQL.fullmatch(token) else "t" if _TAKES_TABLES.fullmatch(token) else "f"
        elif code in "iq" and token.casefold() in parameters:
            code = "p"
        codes.append(code)
        tokens.append(token)
    return "".join(codes), tokens


def _existing(path: str, folders: tuple[str, list[str]]) -> set[str]:
    """Return the files of a path, a folder or a pattern, with links resolved; an address without its secrets."""
    path = _LOCAL.sub("", path, count=1) if _LOCAL.match(path) else path
    if "://" in path:
        return {without_secrets(path)}
    if not path or "\0" in path:
        return set()
    home, searched = folders
    path = f"{home}{path[1:]}" if path.startswith("~/") else path
    return set().union(*(_matching(os.path.join(folder, path)) for folder in searched))


def _matching(path: str) -> set[str]:
    files = {path, *glob(pattern_of(path), recursive=True, include_hidden=True)}  # as DuckDB finds them
    return {str(Path(file).resolve()) for file in files if os.path.isfile(file)}
