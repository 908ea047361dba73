"""The columns that a function of SQL takes, written as annotations, and checked before every call.

DuckDB passes a function in Python any number of columns of any type, also if a user calls one that only macros should call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeAlias, get_type_hints

import pyarrow as pa

from ldpsql.domains.columns import family, plain
from ldpsql.engine.functions import guarded
from ldpsql.errors import InvalidParameter

_HINT = "functions whose names start with __ldp are for the macros of ldp, which document what they take"


@dataclass(frozen=True)
class Takes:
    """What a column holds.

    Args:
        what: the kind of its values, for messages.
        holds: whether a column of a type can hold them; a column of NULL always can.
        nulls: whether values may be NULL.

    """

    what: str
    holds: Callable[[pa.DataType], bool]
    nulls: bool = True


def _is_text(kind: pa.DataType) -> bool:
    own = kind.value_type if pa.types.is_dictionary(kind) else kind
    return family(own) == "text"


def _is_setting(kind: pa.DataType) -> bool:
    """Return whether all values within values of a type are text, numbers and booleans, which Python can hold."""
    if pa.types.is_nested(kind):
        return all(_is_setting(kind.field(i).type) for i in range(kind.num_fields))
    return _is_text(kind) or family(kind) == "number" or _is_boolean(kind) or pa.types.is_null(kind)


def _is_boolean(kind: pa.DataType) -> bool:
    return pa.types.is_boolean(kind) or kind == pa.bool8()  # the latter with SET arrow_lossless_conversion


def structs_with(*names: str) -> Callable[[pa.DataType], bool]:
    """Return whether a type is a STRUCT with these fields."""
    return lambda kind: pa.types.is_struct(kind) and set(names) <= set(kind.names)


def lists_of(holds: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    """Return whether a type is a LIST of such values, or of NULL."""
    return lambda kind: pa.types.is_list(kind) and (holds(kind.value_type) or pa.types.is_null(kind.value_type))


Column: TypeAlias = pa.ChunkedArray
Handles: TypeAlias = Annotated[pa.ChunkedArray, Takes("a handle", pa.types.is_integer, nulls=False)]
Texts: TypeAlias = Annotated[pa.ChunkedArray, Takes("text", _is_text)]
Wholes: TypeAlias = Annotated[pa.ChunkedArray, Takes("a whole number", pa.types.is_integer)]
Doubles: TypeAlias = Annotated[pa.ChunkedArray, Takes("a DOUBLE", pa.types.is_float64)]
Booleans: TypeAlias = Annotated[pa.ChunkedArray, Takes("a BOOLEAN", _is_boolean)]
Settings: TypeAlias = Annotated[pa.ChunkedArray, Takes("text, a number, or a list or STRUCT of them", _is_setting)]
Options: TypeAlias = Annotated[
    pa.ChunkedArray, Takes("a STRUCT of text and numbers", lambda kind: pa.types.is_struct(kind) and _is_setting(kind))
]
PlainOptions: TypeAlias = Annotated[
    pa.ChunkedArray,
    Takes(
        "a STRUCT of text and numbers, none of them a list",
        lambda kind: pa.types.is_struct(kind) and not any(pa.types.is_nested(one.type) for one in kind) and _is_setting(kind),
    ),
]
Structs: TypeAlias = Annotated[pa.ChunkedArray, Takes("a STRUCT", pa.types.is_struct)]
Lists: TypeAlias = Annotated[pa.ChunkedArray, Takes("a LIST", pa.types.is_list)]
TextLists: TypeAlias = Annotated[pa.ChunkedArray, Takes("a list of text", lists_of(_is_text))]
WholeLists: TypeAlias = Annotated[pa.ChunkedArray, Takes("a list of whole numbers", lists_of(pa.types.is_integer))]


_SCALARS = (Column, Lists)


def same_in_all_rows(names: str, *columns: Column) -> list[Any]:
    """Return the one value of each column."""
    chosen = [plain(column).unique().to_pylist() for column in columns]
    if any(len(distinct) > 1 for distinct in chosen):
        raise InvalidParameter(f"{names} must not change from row to row")
    return [one for (one,) in chosen]


def by_row(*kinds: Any, returns: pa.DataType | None = None) -> Callable[[Callable[..., Any]], Callable[..., pa.Array]]:
    """Return a decorator that makes a function of one row a `guarded` function of columns.

    Args:
        kinds: for each column what it holds, such as `Texts`. The function takes its value of the row as Python has it; of a
            `Column`, which may hold anything, and of `Lists`, as a scalar of Arrow.
        returns: the type of the column of results; by default what Arrow infers.

    """

    def of_columns(function: Callable[..., Any]) -> Callable[..., pa.Array]:
        def call(*columns: pa.ChunkedArray) -> pa.Array:
            each = (
                plain(one) if kind in _SCALARS else plain(one).to_pylist() for one, kind in zip(columns, kinds, strict=True)
            )
            return pa.array([function(*row) for row in zip(*each, strict=True)], returns)

        names = [f"column_{place}" for place in range(len(kinds))]
        call.__name__, call.__doc__, call.__annotations__ = (
            function.__name__,
            function.__doc__,
            dict(zip(names, kinds, strict=True)),
        )
        call.__signature__ = Signature([Parameter(name, Parameter.POSITIONAL_ONLY) for name in names])  # type: ignore[attr-defined]
        return guarded(call)

    return of_columns


@dataclass(frozen=True)
class Arguments:
    """What a function takes: a kind for each of its parameters, None for any, and how many of them a call may leave out."""

    kinds: tuple[Takes | None, ...]
    required: int
    further: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Arguments | None:
        """Return what a function takes, by its annotations; None if it is not one of columns, as those for Polars."""
        hints = get_type_hints(function, include_extras=True)
        parameters = list(signature(function).parameters.values())
        if not all(_is_column(hints.get(one.name)) for one in parameters):
            return None
        named = [one for one in parameters if one.kind is not Parameter.VAR_POSITIONAL]
        kinds = (_taken(hints.get(one.name)) for one in named)
        required = sum(one.default is Parameter.empty for one in named)
        return cls(tuple(kinds), required, len(named) < len(parameters))

    def check(self, columns: Sequence[pa.ChunkedArray]) -> None:
        """Refuse columns of other types, or of another number."""
        misfit = _misfit(self, tuple(column.type for column in columns))
        if misfit:
            raise InvalidParameter(misfit, _HINT)
        for place, (kind, column) in enumerate(zip(self.kinds, columns, strict=False), 1):
            if kind is not None and not kind.nulls and column.null_count:
                raise InvalidParameter(f"argument {place} must be {kind.what}, and is NULL", _HINT)


def _is_column(hint: Any) -> bool:
    return any(getattr(one, "__origin__", one) is pa.ChunkedArray for one in _alternatives(hint))


def _taken(hint: Any) -> Takes | None:
    """Return what an annotation says of its column, also of one that a call may leave out."""
    return next((one.__metadata__[0] for one in _alternatives(hint) if hasattr(one, "__metadata__")), None)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return (hint, *getattr(hint, "__args__", ()))


@lru_cache(maxsize=4096)
def _misfit(arguments: Arguments, types: tuple[pa.DataType, ...]) -> str:
    """Return what is wrong with columns of these types; '' if nothing is."""
    least, most = arguments.required, len(arguments.kinds)
    if len(types) < least or (len(types) > most and not arguments.further):
        return f"this function takes {least}{'' if least == most else f' to {most}'} arguments, and got {len(types)}"
    for place, (kind, own) in enumerate(zip(arguments.kinds, types, strict=False), 1):
        if kind is not None and not (kind.holds(own) or pa.types.is_null(own)):
            return f"argument {place} must be {kind.what}"
    return ""
