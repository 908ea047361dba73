"""How an exception becomes one line, a hint and an exit code, without a raw value.

DuckDB's messages show values where it read data (casts, constraints, CSV lines). Those that can only speak of the statement
and of names are passed on; of all others only the kind is said.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import duckdb

from ldpsql.errors import Interrupted, LdpError

_TELLABLE = (
    duckdb.ParserException,
    duckdb.SyntaxException,
    duckdb.CatalogException,
    duckdb.BinderException,
    duckdb.PermissionException,
    duckdb.IOException,
    duckdb.ConnectionException,
    duckdb.OutOfMemoryException,
)
_OURS = re.compile(r"[\w ]+: Python exception [\w ]+: \w+: \[(LDP\d{3})\] (.*?)\.(?: Hint: (.*?)\.?)?", re.DOTALL)
_WITHOUT_CANDIDATES = re.compile(r"\s*Candidate bindings:.*")  # in a CSV file without names, the first person's values
_EXPLAINED = {  # words of DuckDB that say nothing of what to do, and no value
    "unordered_map::at": (
        "DuckDB cannot run this statement",
        "DuckDB 2.0 fails where a function that draws stands in LATERAL beside a column from outside: draw in the SELECT list",
    ),
    'The "structure" argument in function "from_json" must be a constant expression': (
        "a mechanism is given as text by a column or a subquery",
        "make it there with its constructor, such as ldp.krr(1, ['a', 'b']), or write the text into the call",
    ),
}


class Failure(NamedTuple):
    """What is told of an exception."""

    code: str
    message: str
    hint: str
    exit_code: int


def failure(error: BaseException) -> Failure:
    """Return what may be told of an exception."""
    if isinstance(error, KeyboardInterrupt | Interrupted):
        return Failure("", "interrupted", "", Interrupted.exit_code)
    if isinstance(error, LdpError):
        return Failure(error.code, error.message, error.hint, error.exit_code)
    message = str(error).strip()
    quoted = _OURS.fullmatch(message) if isinstance(error, duckdb.Error) else None
    if quoted:  # an error of ours, in the words of DuckDB
        exit_codes = {cls.code: cls.exit_code for cls in _tree(LdpError)}
        return Failure(quoted[1], quoted[2], quoted[3] or "", exit_codes.get(quoted[1], 1))
    if isinstance(error, OSError):
        told = f"{error.strerror or 'a file cannot be used'}: {error.filename}" if error.filename else message
        return Failure("LDP902", told, "is the path right, and may it be read and written?", 1)
    return _of_duckdb(error, message)


def _of_duckdb(error: BaseException, message: str) -> Failure:
    """Return what may be told of an exception of DuckDB or of a library."""
    explained = next((told for words, told in _EXPLAINED.items() if words in message), None)
    if isinstance(error, duckdb.Error) and explained:
        return Failure("LDP903", *explained, 1)
    if isinstance(error, _TELLABLE):
        hint = "DuckDB's own words about the statement; ldpsql doctor tells whether a plugin is missing"
        return Failure("LDP903", _WITHOUT_CANDIDATES.sub("", message), hint, 1)
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Exception").removesuffix("Error")).lower()
    source = "DuckDB" if isinstance(error, duckdb.Error) else "a library"
    hint = "its message may show raw values; run the statement in DuckDB itself to read it"
    return Failure("LDP901", f"{source} stopped with an error of the kind '{kind}'", hint, 1)


def _tree(cls: type[LdpError]) -> list[type[LdpError]]:
    return [cls, *(leaf for child in cls.__subclasses__() for leaf in _tree(child))]
