"""Columns of a run: the mechanism of each, alone or as a part of a row, and whether a source has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from ldpsql.engine.sql_struct import columns_of
from ldpsql.errors import InvalidParameter, SourceRefused, UnknownName
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.parts import Parts
from ldpsql.mechanisms.rows import RowMechanism
from ldpsql.names import ROW
from ldpsql.registry.registry import registry

_SPELLING = "check the spelling; the columns are not listed, since their names may be values"
_EXAMPLE = "columns={'city': 'krr(epsilon=1, domain=[...])'}"
_FIELD = "make a view in which the field of the struct is a column: CREATE VIEW flat AS SELECT s.x AS x, report FROM reports"
Columns: TypeAlias = Mapping[str, Mechanism | str] | Mechanism | str  # by column, or of a row


def names_of(argument: Iterable[str], parameter: str) -> tuple[str, ...]:
    """Return the names of columns in an argument.

    Raises:
        InvalidParameter: if it is one string, whose letters would be the names, or contains anything else than names.

    """
    names = tuple(argument) if isinstance(argument, Iterable) and not isinstance(argument, str) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise InvalidParameter(f"{parameter} must be a list of names of columns", f"{parameter}=['region']")
    return names


def by_column(columns: Columns, read: Callable[[Mechanism | str], Mechanism] | None = None) -> dict[str, Mechanism]:
    """Return the mechanism of each column; that of a row holds those of its columns.

    Args:
        columns: the mechanism of each column, or of a row.
        read: returns the mechanism that a text writes or names; by default the registry does.

    Raises:
        InvalidParameter: if a single mechanism is not that of a row, or a column is not named by a string.

    """
    read = read or registry().mechanism
    if isinstance(columns, Mapping):
        if not all(isinstance(name, str) for name in columns):
            raise InvalidParameter("the names of columns must be strings", _EXAMPLE)
        return {name: read(mechanism) for name, mechanism in columns.items()}
    row = read(columns)
    parts = columns_of(row)
    if getattr(row, "single", False):
        raise InvalidParameter(
            f"{row.name} draws one column of each row, so it needs the row in one column", "perturb a column of structs"
        )
    if not parts:
        raise InvalidParameter("a mechanism without the name of its column", _EXAMPLE)
    return dict(parts)


def drawn_apart(columns: Sequence[str], mechanism: Mechanism) -> dict[str, Mechanism]:
    """Return the mechanism that drew each column of reports; several columns were drawn by those of a row, one by one.

    Raises:
        InvalidParameter: if several columns are not columns of the mechanism.

    """
    if len(columns) == 1:
        return {columns[0]: mechanism}
    parts = dict(columns_of(mechanism))
    if len(set(columns)) < len(columns) or not parts.keys() >= set(columns):
        needed = f"the columns of the row are {', '.join(parts)}" if parts else f"{mechanism.name} has one column"
        raise InvalidParameter("these are not the columns of the mechanism", needed)
    return {name: parts[name] for name in columns}


def row_part(columns: Sequence[str], mechanism: Mechanism) -> Mechanism:
    """Return the mechanism of the reports of some columns of a row: that of the row of these columns."""
    parts = columns_of(mechanism)
    if not isinstance(mechanism, RowMechanism) or not 1 < len(columns) < len(parts):
        return mechanism
    return type(mechanism)(columns=Parts(part for part in parts if part.column in columns))


def row_of(columns: Mapping[str, Mechanism]) -> Mechanism:
    """Return the mechanism of a row of these columns."""
    return registry().mechanism({Mechanism.kind: ROW, "columns": columns})


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
