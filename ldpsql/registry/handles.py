"""Whole numbers that stand for mechanisms, plans and grids inside a query.

DuckDB folds the function that makes a handle to one constant at plan time, so a query reads a mechanism once and each row
carries eight bytes instead of a domain. Handles live as long as the process: a prepared statement may hold one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from threading import Lock
from typing import Any, Generic, TypeVar

import pyarrow as pa

from ldpsql.caches import ByteCache, footprint
from ldpsql.channels.costs import Cost
from ldpsql.domains.columns import family, plain, python_value
from ldpsql.domains.composite import Product, of_columns
from ldpsql.domains.domain import Domain
from ldpsql.engine.functions import names_withheld
from ldpsql.engine.sql_struct import pinned
from ldpsql.errors import InvalidParameter, InvalidSpec, UnknownName
from ldpsql.estimates.estimate import check_single
from ldpsql.estimates.question import Asked
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import ReportSource, operator_of
from ldpsql.inference.mixed import Mixed, Unperturbed
from ldpsql.mechanisms.base import Mechanism, certify, certify_values
from ldpsql.mechanisms.certified import SpecKey
from ldpsql.mechanisms.region import Region
from ldpsql.mechanisms.spec import Parts, parts_of
from ldpsql.names import IBU, INV, KRR
from ldpsql.registry.registry import Registry, registry

H = TypeVar("H", bound=Hashable)
V = TypeVar("V")
_COLUMNS = "columns"  # the parameter with the mechanisms of a row; elsewhere it is a number
_UNDER_ONE = re.compile(r"\.[0-9]+", re.ASCII)


class Handles(Generic[H]):
    """A growing list of distinct things; equal things have equal handles."""

    def __init__(self) -> None:
        self._things: list[H] = []
        self._numbers: dict[SpecKey, int] = {}
        self._lock = Lock()

    def number(self, thing: H) -> int:
        """Return the handle of a thing."""
        key = SpecKey(thing)
        with self._lock:
            if key not in self._numbers:
                self._things.append(thing)
                self._numbers[key] = len(self._things) - 1
            return self._numbers[key]

    def things(self) -> list[H]:
        """Return all things, in the order of their handles."""
        with self._lock:
            return list(self._things)

    def thing(self, number: int | None) -> H:
        """Return what a handle stands for."""
        if number is None or not 0 <= number < len(self._things):
            raise InvalidParameter(
                "this is not the number of anything in this process", "pass the mechanism itself, not its handle"
            )
        return self._things[number]

    def each(self, handles: pa.ChunkedArray, make: Callable[[H], V]) -> list[V]:
        """Return what is made of the thing of each row, once for rows with the same handle.

        Raises:
            InvalidParameter: if all rows together would hold too much.

        """
        column, held = plain(handles).to_pylist(), Cost()
        made: dict[int | None, V] = {}
        for number, rows in Counter(column).items():
            made[number] = make(self.thing(number))
            held += Cost(bytes=rows * footprint(made[number]))
            held.check(f"the answers in {len(column):,} rows", "ask once, in a statement without FROM")
        return [made[number] for number in column]


MECHANISMS: Handles[Mechanism] = Handles()
SOURCES: Handles[Mechanism | Mixed] = Handles()
ASKED: Handles[Asked] = Handles()
GRIDS: Handles[Region] = Handles()
_LATEST: list[tuple[Registry, pa.StructScalar, int]] = []  # one, the latest that was read, without floats
_NUMBERS: ByteCache[tuple[Registry, bytes], int] = ByteCache(1 << 24, lambda key, _: len(key[1]))


def numbers(column: pa.Array, number: Callable[[pa.Scalar], int]) -> list[int]:
    """Return a number for each row; neighbours that are equal, as after a join, are read once."""
    rows = len(column)
    if rows and column.slice(1).equals(column.slice(0, rows - 1)):
        return [number(column[0])] * rows
    half = rows // 2
    return numbers(column.slice(0, half), number) + numbers(column.slice(half), number) if rows else []


def mechanism_number(spec: pa.Scalar) -> int:
    """Return the handle of a mechanism; raises what `read_mechanism` raises.

    A statement mentions its mechanism several times. A STRUCT is read once, unless it may contain names in the settings. If a
    subquery returns it, each vector has it again, so it is compared with the latest one first.
    """
    if not isinstance(spec, pa.StructScalar) or not spec.is_valid or _COLUMNS in spec.type.names:
        return MECHANISMS.number(read_mechanism(spec))
    plugins = registry()
    for known, latest, number in tuple(_LATEST):  # as it is now: another thread may replace it at any moment
        if known is plugins and latest.equals(spec):
            return number
    number = _NUMBERS.remembered((plugins, _exact(spec)), lambda _: MECHANISMS.number(read_mechanism(spec)))
    if not _has_floats(spec.type):
        _LATEST[:] = [(plugins, spec, number)]
    return number


@lru_cache(maxsize=256)
def _has_floats(kind: pa.DataType) -> bool:
    """Return whether a type contains numbers of which two with different bits are equal: 0.0 and -0.0."""
    inner = [kind.value_type] if pa.types.is_dictionary(kind) else [kind.field(i).type for i in range(kind.num_fields)]
    return pa.types.is_floating(kind) or any(map(_has_floats, inner))


def _exact(spec: pa.Scalar) -> bytes:
    """Return the type and the bits of a value, as a stream of Arrow."""
    batch, stream = pa.record_batch([pa.repeat(spec, 1)], ["spec"]), pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return stream.getvalue().to_pybytes()


def read_mechanism(spec: pa.Scalar) -> Mechanism:
    """Read a mechanism from the STRUCT that its SQL constructor makes, from its text, or its name in the settings.

    Raises:
        InvalidSpec, UnknownName, and what the mechanism itself refuses: if it cannot be read. A name may come from a column,
            so it is not in the message.

    """
    if isinstance(spec, pa.DictionaryScalar):  # an ENUM
        spec = spec.value
    if isinstance(spec, pa.StringScalar) and spec.is_valid:
        with names_withheld():
            return registry().mechanism(spec.as_py())
    if not spec.is_valid:
        raise InvalidSpec("the mechanism is NULL", "does the subquery that returns it return a row?")
    if not isinstance(spec, pa.StructScalar):
        raise InvalidSpec("this is not a mechanism", "make one with its constructor, such as ldp.krr(1, ['a', 'b'])")
    fields = _fields(spec)
    with names_withheld():
        return registry().mechanism(fields)


_LEVELS = "write MAP {'low': ldp.krr(1, ...), 'high': ldp.krr(3, ...)}, or {'a': ldp.krr(...), 'b': ldp.oue(...)}"


def read_levels(by_level: pa.Scalar) -> Mixed:
    """Read the mechanisms of levels; see `read_source`."""
    if isinstance(by_level, pa.MapScalar) and by_level.is_valid and len(by_level):
        levels, mechanisms = by_level.values.field(0), [read_level(spec) for spec in by_level.values.field(1)]
    elif isinstance(by_level, pa.StructScalar) and by_level.is_valid:
        names = by_level.type.names
        levels, mechanisms = pa.array(names), [read_level(by_level[name]) for name in names]
    else:
        raise InvalidSpec("this is not a map from levels to mechanisms", _LEVELS)
    levels = plain(levels)
    return Mixed(Domain(levels.dictionary_decode() if pa.types.is_dictionary(levels.type) else levels), tuple(mechanisms))


def read_level(spec: pa.Scalar) -> Mechanism | Unperturbed:
    """Read the mechanism of a level, or ``ldp.krr('infinity', ...)``: people who publish the value itself.

    Source: Murakami, Hino, Sakuma, "Toward distribution estimation under local differential privacy with small samples",
    PoPETs 2018, section 5.1: k-RR whose epsilon is infinite is the identity.
    """
    if not isinstance(spec, pa.StructScalar) or not spec.is_valid or "epsilon" not in spec.type.names:
        return read_mechanism(spec)
    fields = _fields(spec)
    if fields["mechanism"] != KRR or fields["epsilon"] not in _INFINITE:
        return read_mechanism(spec)
    with names_withheld():
        return Unperturbed(certify_values(registry().mechanism({**fields, "epsilon": "1"})).values)


def _fields(spec: pa.StructScalar) -> dict[str, Any]:
    """Return the parameters in the STRUCT of a mechanism."""
    read = {_COLUMNS: _columns}
    fields: dict[str, Any] = {name: read.get(name, _plain_value)(spec[name]) for name in spec.type.names}
    for name, fingerprint in (fields.pop("pinned", None) or {}).items():
        if not len(fields[name]):  # a list may have replaced it, as with struct_update
            fields[name] = pinned(fingerprint)
    if fields.get("mechanism") in registry().mechanisms:
        parameters = registry().mechanisms[fields["mechanism"]].model_fields
        fields = {name: value for name, value in fields.items() if name == "mechanism" or name in parameters}
    return fields


def read_estimator(spec: Estimator | str | Mapping[str, Any], **options: object) -> Estimator:
    """Read an estimator from its text, or a mapping of its options with its name under ``estimator``.

    Args:
        spec: the estimator.
        options: options that replace those of the estimator.

    Raises:
        InvalidSpec, UnknownName: if it cannot be read; the message does not have the name.
        NotApplicable: if it has to learn from all groups first. A query passes groups some at a time.

    """
    with names_withheld():
        estimator = registry().estimator(spec)
        if options:
            estimator = registry().estimator({"estimator": estimator.name, **estimator.given(), **options})
    check_single(estimator)
    return estimator


_INFINITE = ("inf", "infinity", "Infinity")
_ROWS = "write ldp.row({city: ldp.krr(1, ['a', 'b']), ...}) or ldp.joint_krr(1, {city: ['a', 'b'], ...})"


def read_parts(columns: pa.Scalar) -> Parts | Product:
    """Read the mechanisms of the columns of a row from a STRUCT of them, or their domains from a STRUCT of lists.

    Raises:
        InvalidSpec, UnknownName, InvalidParameter: if they cannot be read, or cannot be the columns of a row.

    """
    read = _columns(columns)
    if not isinstance(read, dict):
        raise InvalidSpec("the columns of a row must be a struct with the name of each column", _ROWS)
    lists = any(isinstance(value, pa.Array) for value in read.values())
    return of_columns(read) if lists else parts_of(read)


def is_mechanism(value: pa.StructScalar) -> bool:
    """Return whether this is the STRUCT of one mechanism."""
    return "mechanism" in value.type.names and str(value["mechanism"]) in registry().mechanisms


def _columns(value: pa.Scalar) -> Any:
    """Return a struct of mechanisms with each of them read, anything else as a plain value."""
    if not isinstance(value, pa.StructScalar) or not value.is_valid:
        return _plain_value(value)
    if is_mechanism(value):
        raise InvalidSpec("this is one mechanism, and a row needs that of each column by its name", _ROWS)
    return {name: _column(value[name]) for name in value.type.names}


def _column(value: pa.Scalar) -> Any:
    """Return the mechanism of a column, or the list of its values."""
    if isinstance(value, pa.ListScalar):
        return _plain_value(value)
    if not isinstance(value, pa.StructScalar | pa.StringScalar | pa.DictionaryScalar):
        raise InvalidSpec("each column of a row needs a mechanism, or the list of its values for ldp.joint_krr", _ROWS)
    return MECHANISMS.thing(mechanism_number(value))


def _plain_value(value: pa.Scalar) -> Any:
    """Return a list of plain values as an array, so that it keeps its type; anything else as a Python value."""
    if isinstance(value, pa.ListScalar) and value.is_valid:
        items = value.values
        kind = items.type.value_type if pa.types.is_dictionary(items.type) else items.type
        return items if family(kind) else python_value(value)
    python = python_value(value)
    # DuckDB writes the number .5 as it was typed, without a digit before the point.
    return f"0{python}" if isinstance(python, str) and _UNDER_ONE.fullmatch(python) else python


def without_inversion(source: Mechanism | ReportSource, estimator: Estimator) -> Estimator | None:
    """Return the estimator that takes the place of an inversion for means of a channel that has no useful inverse; else None.

    The unbiased mean and variance need no inversion of the whole channel, only a law of the reports for their errors.
    """
    if estimator.name != INV or not any(map(_hazy, source.mechanisms if isinstance(source, Mixed) else [source])):
        return None
    return read_estimator({"estimator": IBU} | {name: getattr(estimator, name) for name in Estimator.model_fields})


def _hazy(source: Mechanism | ReportSource | Unperturbed) -> bool:
    """Return whether reports can be listed and hardly distinguish neighbouring values; lists of reports may."""
    if not isinstance(source, Mechanism):
        return not isinstance(source, Unperturbed)
    return isinstance(certify(source).reports, Domain) and operator_of(source).bounding_weights is not None


# Mechanisms that SQL declared by name, with ``ldp.declare``: each catalog has its own names.

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)


class Declarations:
    """Mechanisms by catalog and name. SQL does not distinguish upper from lower case, so neither do the names."""

    def __init__(self) -> None:
        self._mechanisms: dict[int, dict[str, Mechanism]] = {}
        self._lock = Lock()

    def declare(self, catalog: int, name: str, mechanism: Mechanism, *, replace: bool = False) -> None:
        """Certify a mechanism and store it under a name.

        Args:
            catalog: the number of the catalog.
            name: the name, of letters, digits and _.
            mechanism: the mechanism.
            replace: whether it takes the place of another mechanism of that name.

        Raises:
            InvalidParameter: if the name is not a plain one, or that of another mechanism.
            NotPrivate, InvalidParameter, PluginError: if the mechanism cannot be certified.

        """
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidParameter("a declared mechanism needs a name of letters, digits and _", "for example item")
        certify(mechanism)
        with self._lock:
            names = self._mechanisms.setdefault(catalog, {})
            if not replace and names.get(name.casefold(), mechanism) != mechanism:
                raise InvalidParameter(
                    "another mechanism, or another version of its domain, is declared under this name",
                    "choose another name, such as item_2, or replace := true",
                )
            names[name.casefold()] = mechanism

    def declared(self, catalog: int, name: str) -> Mechanism:
        """Return the mechanism of a name."""
        names = self.names(catalog)
        if not isinstance(name, str) or name.casefold() not in names:
            raise UnknownName("declared mechanism", str(name), names, "SELECT ldp.declare('item', ldp.krr(...)) declares one")
        return names[name.casefold()]

    def names(self, catalog: int) -> dict[str, Mechanism]:
        """Return all mechanisms of a catalog by their names, in alphabetical order."""
        with self._lock:
            return dict(sorted(self._mechanisms.get(catalog, {}).items()))

    def everywhere(self) -> list[Mechanism]:
        """Return the mechanisms of all catalogs."""
        with self._lock:
            return [mechanism for declared in self._mechanisms.values() for mechanism in declared.values()]


DECLARATIONS = Declarations()
