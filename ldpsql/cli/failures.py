"""Turns an exception into one line, a hint and an exit code, without a raw value.

DuckDB's messages show values if they are about data (casts, constraints, CSV lines). Messages about the statement are passed on
in the words of `ldpsql.errors.boundary`; of all others only the kind is reported.
"""

from __future__ import annotations

import re
from os.path import isdir
from typing import NamedTuple

import duckdb

from ldpsql.errors import Interrupted, LdpError
from ldpsql.errors.boundary import of_sql, withheld_message, without_values

_MISSING = re.compile(r"Function with name \"?(?:ldp\.)?(\w+)\"? does not exist", re.IGNORECASE)
_NO_OVERLOAD = re.compile(r"Macro \"?\w+\"?\(\) does not support the supplied arguments")
_CANDIDATE = re.compile(r"Macro \"?(\w+)\"?\(\) does not support .*?Candidate macros:\n\t([^\n]+)", re.DOTALL)
_AFTER_MECHANISM = re.compile(r"\(reports, report, m, (\w+)[,)]")  # an argument without which nothing is answered
_OPTION = re.compile(r"\b(deadline|stop|confidence|intervals|misfit|tolerance|max_iterations)\s*:?=", re.IGNORECASE)
_NOT_FOUND = re.compile(
    r"Referenced column \"(\w+)\"|has multiple\b.* that match the supplied arguments"
    r"|at or near \"=\"|can't be cast to the destination type VARCHAR\[\]",
    re.DOTALL,
)
_NO_BRACES = re.compile(r"\bldp\.perturb_rows\s*\([^,;()]+,\s*\w+\s*[=,]", re.IGNORECASE)
_ARGUMENT = re.compile(r"\b(\w+) := ")
_NO_TABLE = re.compile(r"Table with name \"?(.+?)\"? does not exist")
_KEEP = re.compile(r"\bkeep\s*:?=", re.IGNORECASE)
_NO_COLUMN = re.compile(r"\(STRING_LITERAL|Could not convert string '(\w+)' to ")  # a column where nothing is read yet
_BY = re.compile(r"\bldp\.\w+\s*\([^;]*\bby\s*:=([^;]*)", re.IGNORECASE)
_EXPLAINED = {  # words of DuckDB that do not say what to do, and hold no value
    "unordered_map::at": (
        "DuckDB cannot run this statement",
        "DuckDB 2.0.0 fails if LATERAL holds a function that draws and a column from outside: draw in the SELECT list",
    ),
    'The "structure" argument in function "from_json" must be a constant expression': (
        "a column or a subquery holds a mechanism as text",
        "make it with a constructor, such as ldp.krr(1, ['a', 'b']); write the text in a call, and a macro with brackets",
    ),
    "More than one row returned by a subquery": (
        "a subquery of several rows stands in the place of one value",
        "a list of them is one value: write (SELECT list(city) FROM cities)",
    ),
    "Table function cannot contain subqueries": (
        "a subquery stands in the place of a table",
        "name it first: WITH t AS (SELECT ...) FROM ldp.estimate(t, city)",
    ),
    "Unexpected quote in the middle of a qualified name component": (
        "the name of a table holds a quotation mark, which DuckDB does not read after FROM ldp.",
        """write the name as a string, with its quotes: FROM ldp.perturb_rows('shop."my ""own"" table"', {city: city()})""",
    ),
    'Function "read_': (
        "a call stands in the place of a table",
        "write the path itself, such as FROM ldp.estimate('reports.csv', city, city())",
    ),
    "is a table function but it was used as a scalar function": (
        "a function that returns rows stands in the place of a value",
        "write it after FROM, such as FROM ldp.perturb_rows(people, {city: city()})",
    ),
    'is a Macro Function. "DISTINCT", "FILTER"': (
        "DuckDB allows DISTINCT, FILTER and ORDER BY only in its own aggregates",
        "instead of FILTER (WHERE c), write CASE WHEN c THEN report END for the report: NULL reports are not counted",
    ),
    "Catalog Error: Aggregate Function with name": (
        "OVER follows a function that is not one of DuckDB's own aggregates",
        "instead of OVER (PARTITION BY k), estimate in a subquery with GROUP BY k, and join its rows by k",
    ),
}


class Failure(NamedTuple):
    """What the user reads about an exception."""

    code: str
    message: str
    hint: str
    exit_code: int


class StatementFailed(Exception):
    """DuckDB refused a statement; ``failure`` is what the user may read about it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def failure(error: Exception | KeyboardInterrupt, typed: str) -> Failure:
    """Return what the user may read about an exception; ``typed`` is what the user wrote."""
    if isinstance(error, KeyboardInterrupt | Interrupted):
        return Failure("", "interrupted", "", Interrupted.exit_code)
    if isinstance(error, StatementFailed):
        return error.failure
    if isinstance(error, LdpError):
        return Failure(error.code, error.message, error.hint, error.exit_code)
    if isinstance(error, duckdb.Error):
        return _of_duckdb(error, typed)
    if isinstance(error, OSError) and error.errno is not None:  # errors without a number are Arrow's, and may quote a file
        cause = f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
        return Failure("LDP902", cause, "is the path right, and do you have permission to read and write it?", 1)
    return Failure("LDP901", *withheld_message(error), 1)


def in_options(error: duckdb.Error) -> LdpError | duckdb.Error:
    """Return an error of ldpsql that SQL raised with options in its hint instead of SQL's arguments; any other as it is."""
    if (ours := of_sql(error)) is None:
        return error
    LdpError.__init__(ours, ours.message, _ARGUMENT.sub(r"--\1 ", ours.hint))
    return ours


def _of_duckdb(error: duckdb.Error, typed: str) -> Failure:
    if ours := of_sql(error, typed):
        return Failure(ours.code, ours.message, ours.hint, ours.exit_code)
    if explained := next((words for text, words in _EXPLAINED.items() if text in str(error)), None):
        return Failure("LDP903", *explained, 1)
    message = without_values(error, typed)
    if message is None:
        withheld, hint = withheld_message(error)
        better = _about_an_equals_sign(str(error), typed) or _about_the_mechanism(str(error), typed)
        return Failure("LDP901", withheld, better or hint, 1)
    hint = _about_a_plugin(str(error)) or _about_an_option(message, typed) or _about_the_mechanism(str(error), typed)
    hint = hint or _about_a_folder(str(error)) or _about_braces(message, typed)
    hint = hint or _about_an_equals_sign(message, typed) or _about_arguments(str(error), typed)
    return Failure("LDP903", message, hint or "DuckDB's own words about the statement", 1)


def _about_an_option(message: str, typed: str) -> str:
    """Return where an option of an estimator belongs if a macro that takes an estimator was called with it, else nothing."""
    option = _OPTION.search(typed)
    if not option or not _NO_OVERLOAD.search(message):
        return ""
    return f"options of the estimator belong in its text, such as estimator := 'ibu({option[1].lower()}=...)'"


def _about_the_mechanism(message: str, typed: str) -> str:
    """Return which argument is missing if a table function got a condition or an expression but no mechanism, else nothing."""
    no_keep = _NO_OVERLOAD.search(message) and "reports, report, m BLOB" in message and _KEEP.search(typed)
    unread, key = _NO_COLUMN.search(message), _BY.search(typed)
    if not no_keep and not (unread and key and re.search(rf"\b{unread[1] or ''}\b", key[1])):
        return ""
    what = "with keep" if no_keep else "with an expression as the key"
    return f"{what}, pass the mechanism too; ldp.mechanism('reports', 'city') returns the one that is recorded"


def _about_a_folder(message: str) -> str:
    """Return how to name a folder if one has the name of the missing table, else nothing."""
    name = missing[1] if (missing := _NO_TABLE.search(message)) else ""
    return f"a folder is written with a slash, '{name}/': without one, only a table is meant" if isdir(name) else ""


def _about_braces(message: str, typed: str) -> str:
    """Return how to name the columns of a table that is to be perturbed if one stands outside of braces, else nothing."""
    if not _NOT_FOUND.search(message) or not _NO_BRACES.search(typed):
        return ""
    return "columns stand in braces, each with its mechanism: FROM ldp.perturb_rows(people, {city: city()})"


def _about_an_equals_sign(message: str, typed: str) -> str:
    """Return how to name an argument if a function was called with ``name = value``, which compares a column, else nothing."""
    missing = _NOT_FOUND.search(message)
    name = missing and (missing[1] or r"\w+")
    compared = name and re.search(rf"\bldp\.\w+\s*\((?:[^;]*?[(,])?\s*({name})\s*=(?![=>])", typed, re.IGNORECASE)
    return f"named arguments are written with :=, such as {compared[1]} := ..." if compared else ""


def _about_arguments(message: str, typed: str) -> str:
    """Return the arguments of a function of ldpsql that was called with others, else nothing."""
    called = _CANDIDATE.search(message)
    if not called or not re.search(rf"\bldp\.{called[1]}\s*\(", typed, re.IGNORECASE):
        return ""
    needed = _AFTER_MECHANISM.search(called[2])
    recorded = f"; if the reports record their mechanism, name the argument: {needed[1]} := ..." if needed else ""
    return f"write ldp.{called[2]}".replace('"', "") + recorded


def _about_a_plugin(message: str) -> str:
    """Return why a plugin is not used if the missing function belongs to one, or an empty string."""
    from ldpsql.registry.registry import registry  # only after a failure

    missing = _MISSING.search(message)
    unused = [
        plugin for plugin in registry().plugins if missing and plugin.status != "ok" and plugin.name == missing[1].lower()
    ]
    return f"the plugin '{unused[0].name}' is {unused[0].status}: {unused[0].reason}" if unused else ""
