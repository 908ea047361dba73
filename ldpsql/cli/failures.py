"""How an exception becomes one line, a hint and an exit code, without a raw value.

DuckDB's messages show values where it read data (casts, constraints, CSV lines). Those about the statement are passed on in the
words of `ldpsql.errors.wording`; of all others only the kind is said.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import duckdb

from ldpsql.errors import Interrupted, LdpError
from ldpsql.errors.wording import ours, speakable, withheld_message

_MISSING = re.compile(r"Function with name \"?(?:ldp\.)?(\w+)\"? does not exist", re.IGNORECASE)
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


class StatementFailed(Exception):
    """A statement of DuckDB's own failed; ``failure`` is what may be told of it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def failure(error: Exception | KeyboardInterrupt, typed: str) -> Failure:
    """Return what may be told of an exception; ``typed`` is what the user wrote."""
    if isinstance(error, KeyboardInterrupt | Interrupted):
        return Failure("", "interrupted", "", Interrupted.exit_code)
    if isinstance(error, StatementFailed):
        return error.failure
    if isinstance(error, LdpError):
        return Failure(error.code, error.message, error.hint, error.exit_code)
    if isinstance(error, duckdb.Error):
        return _of_duckdb(error, typed)
    if isinstance(error, OSError) and error.errno is not None:  # those without a number are Arrow's, and may quote a file
        cause = f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
        return Failure("LDP902", cause, "is the path right, and may it be read and written?", 1)
    return Failure("LDP901", *withheld_message(error), 1)


def _of_duckdb(error: duckdb.Error, typed: str) -> Failure:
    if quoted := ours(error):
        exit_codes = {cls.code: cls.exit_code for cls in _tree(LdpError)}
        return Failure(quoted[1], quoted[2], quoted[3] or "", exit_codes.get(quoted[1], 1))
    if explained := next((words for text, words in _EXPLAINED.items() if text in str(error)), None):
        return Failure("LDP903", *explained, 1)
    message = speakable(error, typed)
    if message is None:
        return Failure("LDP901", *withheld_message(error), 1)
    hint = _about_a_plugin(str(error)) or "DuckDB's own words about the statement"
    return Failure("LDP903", message, hint, 1)


def _about_a_plugin(message: str) -> str:
    """Return what to do if the function that does not exist is one of a plugin that is not used; else nothing."""
    from ldpsql.registry.registry import registry  # only after a failure

    missing = _MISSING.search(message)
    unused = [
        plugin for plugin in registry().plugins if missing and plugin.status != "ok" and plugin.name == missing[1].lower()
    ]
    return f"the plugin '{unused[0].name}' is {unused[0].status}: {unused[0].reason}" if unused else ""


def _tree(cls: type[LdpError]) -> list[type[LdpError]]:
    return [cls, *(leaf for child in cls.__subclasses__() for leaf in _tree(child))]
