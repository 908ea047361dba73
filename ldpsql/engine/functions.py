"""What a plugin hands to a DuckDB connection: scalar functions in Python, and macros as SQL text."""

from __future__ import annotations

import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from ldpsql.errors import Interrupted, LdpError, NotPrivate, PluginError, UnknownName
from ldpsql.errors.boundary import internal
from ldpsql.quoting import quoted, text_literal

if TYPE_CHECKING:
    import pyarrow as pa

    from ldpsql.engine.arguments import Arguments


# Macros in a catalog of ldpsql:
MARK = "_ldpsql_made_this"  # distinguishes it from a database of the user's
CATALOG_NUMBER = "_catalog"  # its number
GUARD_MACRO = "_guard"  # the number of its guard; without one, its own number below zero
ALLOWED_MACRO = "_allowed"  # (handle, drawn): the handle, after a check of policies and guard if there are any
HISTOGRAM_MACRO = "_histogram"  # (report, keep): how often each report occurs, a MAP
GUARD_MARK = "__ldp_guarded"  # the function, outside those catalogs, that marks an instance with a guard
R = TypeVar("R")
_NAMES = (
    "abs|alias|any_value|arg_max|bool_or|cast_to_type|ceil|concat_ws|contains|count|current_database"
    "|current_schema|current_setting|encode|ends_with|error|flatten|format|from_json|greatest|histogram|json_remove|len|length|list"
    "|list_concat|list_contains|list_filter|list_reduce|list_select|list_sum|list_transform|list_zip|lower|map|map_keys|map_values|max"
    "|min|pow|range|regexp_full_match|repeat|replace|round|row|row_number|split_part|starts_with|struct_concat|struct_extract"
    "|struct_extract_at|struct_update|sum|to_json|typeof"
)
# A string, a quoted name or a comment, which stays as it is, or the name of a function of DuckDB that macros call.
_BUILT_IN = re.compile(rf"'[^']*'|\"[^\"]*\"|--[^\n]*|(?<![\w.\"])({_NAMES})(?=\()")
_SCALAR = re.compile(r"\b__ldp_")
_CATALOG = re.compile(r"\bldp\.")
_CREATED = re.compile(r'CREATE\s+(?:OR\s+REPLACE\s+)?(?:MACRO|FUNCTION)\s+ldp\."?(\w+)', re.IGNORECASE)

_ONLY_MACROS = re.compile(
    r'(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:CREATE\s+(?:OR\s+REPLACE\s+)?(?:MACRO|FUNCTION)|COMMENT\s+ON\s+MACRO)\s+ldp\."?[^\W_]\w*"?[\s(]',
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Scalar:
    """A module-level Arrow function: takes one Arrow column of any type per argument, returns one column of type ``returns``.

    ``draws=True`` declares that every call draws a new report; lint and dbt then know that SQL with such a call perturbs.
    ``volatile=True`` makes DuckDB call the function for every row, without folding or merging calls. A function that draws is
    volatile, and a volatile function is taken to draw unless it declares ``draws=False``.
    """

    name: str
    function: Callable[..., Any]
    returns: str
    volatile: bool = False
    draws: bool | None = None

    def __post_init__(self) -> None:
        """Set the defaults of ``draws`` and ``volatile`` so that nothing that draws is missed."""
        object.__setattr__(self, "draws", self.volatile if self.draws is None else self.draws)
        object.__setattr__(self, "volatile", bool(self.volatile or self.draws))

    def names(self) -> list[str]:
        """Return the one name that the function takes, as a list."""
        return [self.name]

    def check(self) -> None:
        """Refuse a name that is not a plain identifier."""
        if type(self.name) is not str or not self.name.isidentifier():
            raise PluginError("a Scalar needs a plain name", "letters, digits and _")


@dataclass(frozen=True)
class Macros:
    """SQL text that creates macros in the catalog ``ldp``; `attach` replaces that by the catalog's real name."""

    text: str

    @classmethod
    def beside(cls, module_file: str) -> Macros:
        """Return the macros in the ``.sql`` file next to a module."""
        return cls(Path(module_file).with_suffix(".sql").read_text(encoding="utf-8"))

    def names(self) -> list[str]:
        """Return the names of the macros that the text creates."""
        return _CREATED.findall(self.text)

    def check(self) -> None:
        """Refuse text that does more than create macros and comment on them, or whose names begin with _.

        Raises:
            PluginError: if it does. Names with _ are ldpsql's own, such as the guard of a ledger.

        """
        if type(self.text) is not str or not all(_ONLY_MACROS.match(statement) for statement in _statements(self.text)):
            raise PluginError(
                "Macros may only hold CREATE MACRO ldp.NAME(...) and COMMENT ON MACRO ldp.NAME", "NAME must not begin with _"
            )

    def statements(self, catalog: str) -> str:
        """Return the text for a catalog of this name."""
        named = qualified(self.text)
        if catalog != "ldp":  # which errors show as it is
            named = _CATALOG.sub(lambda _: f"{quoted(catalog)}.", named)
        return _SCALAR.sub("system.main.__ldp_", named)


def qualified(text: str) -> str:
    """Return SQL that calls functions of DuckDB in system.main: a macro of the user's with the same name would hide them."""
    return _BUILT_IN.sub(lambda found: f"system.main.{found[1]}" if found[1] else found[0], text)


def _statements(text: str) -> list[str]:
    """Return the statements of a text as DuckDB separates them; a text that it cannot read is refused when it is run."""
    import duckdb  # noqa: PLC0415  # needed only if a third party offers macros

    try:
        return [statement.query for statement in duckdb.extract_statements(text)]
    except duckdb.Error:
        return []


@cache
def _taken_by(function: Callable[..., Any]) -> Arguments | None:
    """Return what a function takes, read from its annotations at the first call."""
    from ldpsql.engine.arguments import Arguments  # noqa: PLC0415  # loads Arrow, which no connection needs

    return Arguments.of(function)


_ANY_COLUMNS = inspect.signature(lambda *columns: None)  # noqa: ARG005  # only the signature matters


def guarded(function: Callable[..., R]) -> Callable[..., R]:
    """Let only ldpsql's own errors out of a function, with nothing attached: any other may hold a raw value.

    The wrapper takes any number of arguments of any type, as the function in DuckDB does, and refuses those that do not fit
    the annotations of the function; see `ldpsql.engine.arguments`.
    """

    def call(*columns: Any) -> R:
        try:
            if takes := _taken_by(function):
                takes.check(columns)
            return function(*columns)
        except LdpError as error:
            refusal = error
        except KeyboardInterrupt:
            refusal = Interrupted()
        except Exception as error:  # noqa: BLE001  # the text of any other error stays here
            refusal = internal(error, function.__name__)
        del columns
        # Raised outside of the handlers, so that no other exception and no frame with a column comes along.
        refusal.__context__ = refusal.__cause__ = None
        refusal.before = "\n"
        raise refusal.with_traceback(None)

    call.__name__, call.__doc__, call.__annotations__ = function.__name__, function.__doc__, {}
    call.__wrapped__ = function  # type: ignore[attr-defined]
    call.__signature__ = _ANY_COLUMNS  # type: ignore[attr-defined]  # DuckDB asks for it in each attach
    return call


@contextmanager
def names_withheld() -> Iterator[None]:
    """Leave the name out of an error about an unknown name: in SQL it may come from a column."""
    try:
        yield
    except UnknownName as error:
        raise error.unnamed() from None


_SQL_TYPES = {"int": "BIGINT", "float": "DOUBLE", "float | None": "DOUBLE", "str": "VARCHAR", "bool": "BOOLEAN"}
_ARROW_TYPES = {"int": "int64", "float": "float64", "float | None": "float64", "str": "string", "bool": "bool_"}


def arrow_fields(result: type) -> list[pa.Field]:
    """Return the plain fields of a dataclass as Arrow fields."""
    import pyarrow as pa  # noqa: PLC0415  # slow to import, and no connection needs it

    return [pa.field(f.name, getattr(pa, _ARROW_TYPES[str(f.type)])()) for f in fields(result)]


def struct_fields(result: type) -> str:
    """Return the plain fields of a dataclass as names and types of a SQL STRUCT."""
    return ", ".join(f'"{f.name}" {_SQL_TYPES[str(f.type)]}' for f in fields(result))


def struct_type(result: type) -> str:
    """Return the SQL type of a dataclass of plain fields."""
    return f"STRUCT({struct_fields(result)})"


def struct_text(fields: dict[str, str]) -> str:
    """Return a SQL struct of named expressions."""
    return "{" + ", ".join(f"{text_literal(name)}: {expression}" for name, expression in fields.items()) + "}"


# Checks that a whole statement uses one mechanism, across all calls of a function, which each get 2,048 rows.
#
# A mechanism that changes from row to row may be made from the value itself, such as ``ldp.krr(0.1, [city, 'none'])``. In a
# sorted table, one call of a function may see a single value only, so the handles of all calls must be compared.

_KEPT = 10_000  # expressions; the least recently used one is forgotten first


class Statements:
    """The first handle that each expression of each statement was called with, in all threads."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._first: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._kept = kept
        self._numbers = count(1)
        self._lock = Lock()

    def number(self) -> int:
        """Return a number for one expression of one statement."""
        return next(self._numbers)

    def check(self, expression: str, transaction: int, handle: int) -> None:
        """Check a handle against the one that the expression had first in this transaction."""
        with self._lock:
            first = self._first.setdefault((expression, transaction), handle)
            self._first.move_to_end((expression, transaction))
            if len(self._first) > self._kept:
                self._first.popitem(last=False)
        if handle != first:
            raise changing()


def changing() -> NotPrivate:
    """Return the error for a mechanism that is not the same in the whole statement."""
    return NotPrivate(
        "the mechanism changes from row to row",
        "declare one mechanism, without a column in it; for users with an epsilon of their own there is "
        "ldp.perturb(x, MAP {'low': ldp.krr(1, ...), 'high': ldp.krr(3, ...)}, level)",
    )


STATEMENTS = Statements()
