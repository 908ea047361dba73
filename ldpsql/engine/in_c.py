"""What C draws for SQL: `learn` describes the mechanisms to it; and what it leaves to Python, a vector of DuckDB at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Mapping
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Convolution, DenseChannel, IndependentBits, KeepOrSpread, Levels, OrthogonalHash, PrivateHash
from ldpsql.channels.costs import VECTOR
from ldpsql.domains.domain import Domain
from ldpsql.domains.unlisted import Numbers
from ldpsql.engine.door import open_door
from ldpsql.errors import NOT_PERTURBED, InternalError, Interrupted, InvalidParameter, LdpError
from ldpsql.errors.boundary import internal
from ldpsql.mechanisms.base import CertifiedMechanism
from ldpsql.mechanisms.trees import node_reports
from ldpsql.reports import HashReports, ListedHashReports, SetReports

# The types of columns by their numbers in DuckDB.
_WIDTHS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
TYPES = dict(enumerate(("bool", *_WIDTHS, "float32", "float64", "timestamp[us]", "date32"), 1)) | {17: "string"}
_NUMBERS = {pa.type_for_alias(name): number for number, name in TYPES.items()}
_STORED = TYPES | {1: "uint8", 12: "int64", 13: "int32"}  # as what DuckDB stores a value
_BITS, _TEXT = 1, 17  # Arrow has eight booleans to an octet
_RECIPE = 128  # octets of a recipe without its table
_MOST_SPAN = 1 << 24  # from the least to the most of a list of numbers that is looked up by subtraction
_MOST_OCTETS = 1 << 29  # of all lists and tables together, which C keeps as long as the process lives
_HELD: list[int] = []  # octets of each
_LEARNT: set[int] = set()  # handles
_LISTS: dict[Hashable, int | None] = {}  # where C has a list of values: by the domain, or by how numbers are placed
_Listing: TypeAlias = Callable[[Domain], int | None]  # returns where C has a list for a domain
# How a channel draws in C: the number of its structure in door.c, its whole numbers, and its table.
_Recipe: TypeAlias = tuple[int, tuple[int, ...], NDArray[Any] | None]
_RECIPES: dict[type, Callable[[Any], _Recipe]] = {
    KeepOrSpread: lambda channel: (0, (channel.spread,), None),
    DenseChannel: lambda channel: (1, (channel.tables.bits,), channel.tables.packed),
    Convolution: lambda channel: (2, (channel.tables.bits, channel.outputs), channel.tables.packed),
    IndependentBits: lambda channel: (3, (channel.own, channel.other), None),
    PrivateHash: lambda channel: (4, channel.numbers, None),
    OrthogonalHash: lambda channel: (4, channel.numbers, channel.hashes),
    Levels: lambda channel: (5, (0,), channel.tree),
}
_FORMS = {IndependentBits: SetReports, PrivateHash: HashReports, OrthogonalHash: ListedHashReports}  # others list their reports


@cache
def kernels() -> ctypes.CDLL | None:
    """Return the library that draws for SQL; None if SQL draws in Python."""
    library = open_door()
    if isinstance(library, str):
        return None
    whole, array = ctypes.c_uint64, ctypes.c_void_p
    library.ldpsql_list_whole.argtypes = (ctypes.c_int, whole, array)
    library.ldpsql_list_text.argtypes = (whole, ctypes.c_char_p, array)
    library.ldpsql_list_interval.argtypes = (whole, array, ctypes.c_bool)
    library.ldpsql_list_whole.restype = library.ldpsql_list_text.restype = library.ldpsql_list_interval.restype = array
    library.ldpsql_learn.argtypes = (ctypes.c_int64, ctypes.c_int, array, array, array, array, ctypes.c_size_t)
    library.ldpsql_learn.restype = ctypes.c_bool
    library.ldpsql_recipe.argtypes = (ctypes.c_int, array, array, array, array, ctypes.c_size_t)
    library.ldpsql_recipe.restype = array
    library.ldpsql_draw.argtypes = (array, ctypes.c_int, ctypes.c_int, array, ctypes.c_size_t, array, array, array, array)
    library.ldpsql_type.argtypes, library.ldpsql_type.restype = (array, array), ctypes.c_bool
    return library


def learn(handle: int, mechanism: CertifiedMechanism) -> None:
    """Draw with a mechanism in C from now on, if its channel has a recipe there, and C can look its values up.

    Args:
        handle: the number of the mechanism; draws that a ledger counts have one below 0, and stay in Python.
        mechanism: the mechanism.

    """
    if handle in _LEARNT or handle < 0:
        return
    _LEARNT.add(handle)
    if (library := kernels()) is not None:
        looked_up, listed = partial(_looked_up, library), partial(_listed, library)
        _describe(mechanism, looked_up, listed, partial(library.ldpsql_learn, handle))


def _describe(mechanism: CertifiedMechanism, looked_up: _Listing, listed: _Listing, described: Callable[..., Any]) -> Any:
    """Describe a mechanism to C, if its channel has a recipe there.

    Args:
        mechanism: the mechanism.
        looked_up: returns where C has a list of what stands for its values.
        listed: returns where C has a list of what stands for its reports, if they are the values of a domain.
        described: takes the structure, the lists of values and reports, the numbers, and the table with its octets.

    Returns:
        what ``described`` returns; None if there is no recipe.

    """
    channel, values, reports = mechanism.channel, mechanism.values, mechanism.reports
    if type(channel) not in _RECIPES or not isinstance(values, Domain) or not _has_form(mechanism):
        return None
    try:
        mechanism.check_cost(VECTOR)
    except InvalidParameter:
        return None  # Python refuses each vector
    structure, numbers, table = _RECIPES[type(channel)](channel)
    if table is None and isinstance(channel, (OrthogonalHash, Levels)):
        return None
    of_values = looked_up(values)
    of_reports = listed(reports) if isinstance(reports, Domain) else None
    table = np.empty(0) if table is None else np.ascontiguousarray(table)
    if of_values is None or (isinstance(reports, Domain) and of_reports is None) or not _has_room(table.nbytes + _RECIPE):
        return None
    padded = np.array([*numbers, 0, 0, 0], np.uint64)
    return described(structure, of_values, of_reports, padded.ctypes.data, table.ctypes.data, table.nbytes)


def _has_form(mechanism: CertifiedMechanism) -> bool:
    """Return whether the reports have the form in which C writes those of the channel."""
    channel, reports = mechanism.channel, mechanism.reports
    if isinstance(channel, Levels):
        return reports == node_reports(channel)
    form = _FORMS.get(type(channel))
    return isinstance(reports, Domain) if form is None else type(reports) is form


def positions(mechanism: CertifiedMechanism, column: pa.Array, kind: np.dtype[Any]) -> NDArray[Any] | None:
    """Return the positions of new reports of a column in the domain of the reports, drawn in one pass without Python's lock.

    Returns:
        None if Python has to draw the column, or refuses it.

    """
    library = kernels()
    if library is None or column.null_count or not len(column):
        return None
    coded = pa.types.is_dictionary(column.type)  # each value is looked up once
    recipe = mechanism.derived(_recipe_of_codes if coded else _recipe_of_positions)
    if recipe is None:
        return None
    mechanism.check_cost(len(column))
    if coded:
        try:
            column = pc.take(pa.array(mechanism.codes(column.dictionary)), column.indices, boundscheck=False)
        except NOT_PERTURBED:
            return None
    number = _NUMBERS.get(column.type, _TEXT)
    if number in (_BITS, _TEXT):
        return None
    drawn = np.empty(len(column), kind)
    values = column.buffers()[1].address + column.offset * column.type.bit_width // 8
    out = _NUMBERS[pa.from_numpy_dtype(kind)]
    failure = library.ldpsql_draw(recipe, number, out, values, len(column), None, drawn.ctypes.data, None, None)
    return None if failure else drawn


def _recipe_of_positions(mechanism: CertifiedMechanism) -> int | None:
    """Return where C has a recipe that draws positions in the domain of the reports."""
    return _recipe(mechanism, _looked_up)


def _recipe_of_codes(mechanism: CertifiedMechanism) -> int | None:
    """Return where C has a recipe that draws such positions from positions in the domain of the values."""
    return _recipe(mechanism, _positions_in)


def _recipe(mechanism: CertifiedMechanism, looked_up: Callable[[ctypes.CDLL, Domain], int | None]) -> int | None:
    library = kernels()
    if library is None or not isinstance(mechanism.reports, Domain):
        return None
    described = partial(looked_up, library), partial(_positions_in, library), library.ldpsql_recipe
    recipe: int | None = _describe(mechanism, *described)
    return recipe


def _positions_in(library: ctypes.CDLL, domain: Domain) -> int | None:
    return _listed(library, Domain(pa.array(np.arange(len(domain)))))


def _looked_up(library: ctypes.CDLL, values: Domain) -> int | None:
    """Return where C has a list of the values of a mechanism; None if it cannot look them up."""
    if not isinstance(values, Numbers):
        own = np.array_equal(values.codes(values.values), np.arange(len(values)))
        return _listed(library, values) if own else None
    key = (*values.placing, values.clip)
    if key not in _LISTS:
        placing = np.array(values.placing, np.float64)  # arrays must live until C has read them
        _LISTS[key] = library.ldpsql_list_interval(len(values), placing.ctypes.data, values.clip)
    return _LISTS[key]


def _listed(library: ctypes.CDLL, domain: Domain) -> int | None:
    """Return where C has a list of the values of a domain; None if there is no such list."""
    if domain not in _LISTS:
        _LISTS[domain] = (_list_of_text if pa.types.is_string(domain.type) else _list_of_whole)(library, domain)
    return _LISTS[domain]


def _list_of_text(library: ctypes.CDLL, domain: Domain) -> int | None:
    texts = [text.encode() for text in domain.values.to_pylist()]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    if ends[-1] >= 1 << 31 or not _has_room(int(ends[-1]) + 48 * len(texts)):  # a text has 16 octets, and 2 to 4 slots of 8
        return None
    narrow = ends.astype(np.int32)
    address: int | None = library.ldpsql_list_text(len(texts), b"".join(texts), narrow.ctypes.data)
    return address


def _list_of_whole(library: ctypes.CDLL, domain: Domain) -> int | None:
    number = _NUMBERS.get(domain.type)
    if number is None or pa.types.is_floating(domain.type):
        return None
    stored = domain.values.cast(pa.type_for_alias(_STORED[number]))
    least, most = pc.min_max(stored).as_py().values()
    room = 4 * (most - least + 1) if most - least < _MOST_SPAN else 32 * len(stored)  # 2 to 4 slots of 8
    if most >= 1 << 63 or not _has_room(8 * len(stored) + room):
        return None
    whole = stored.cast(pa.int64()).to_numpy()
    address: int | None = library.ldpsql_list_whole(number, len(whole), whole.ctypes.data)
    return address


def _has_room(octets: int) -> bool:
    if sum(_HELD) + octets > _MOST_OCTETS:
        return False
    _HELD.append(octets)
    return True


class _Question(ctypes.Structure):
    """A vector that a function in Python is to answer: ``question`` of ``door.c``."""

    _fields_ = (
        ("own", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("types", ctypes.c_void_p),
        ("columns", ctypes.c_void_p),
        ("type", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("message", ctypes.c_void_p),
        ("room", ctypes.c_uint64),
    )


def answered(address: int, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Answer a vector with the function of its name.

    Args:
        address: of the ``question`` that C asks. The result, or the message of an error, is written into it.
        functions: functions of columns, by name.

    """
    question = _Question.from_address(address)
    name = ctypes.c_char_p.from_address(question.own).value or b""
    try:
        columns = pa.RecordBatch._import_from_c(question.columns, question.types).columns  # as nanoarrow does
        if not columns:
            raise InvalidParameter("this function needs arguments", "call those of ldp, which it is a part of")
        result = functions[name.decode()](*(pa.chunked_array([column]) for column in columns))
        kind = _type_of(question.own)
        whole = result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result
        if len(whole) != question.count:
            raise InternalError("there are not as many results as rows", "please report the function")
        batch = pa.RecordBatch.from_arrays([whole if whole.type == kind else whole.cast(kind)], [""])
        batch._export_to_c(question.result, question.type)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # its text may hold a raw value
        _refuse(question, error, name.decode())


@cache
def _type_of(own: int) -> pa.DataType:
    """Return the type of Arrow of what a function returns, where C describes it."""
    library, written = kernels(), (ctypes.c_uint64 * 9)()  # an ArrowSchema
    if library is None or not library.ldpsql_type(own, ctypes.addressof(written)):
        raise InternalError("a function has no type in Arrow", "please report the function")
    return pa.Schema._import_from_c(ctypes.addressof(written)).field(0).type


def _refuse(question: _Question, error: Exception | KeyboardInterrupt, name: str) -> None:
    """Write the message of an error, of the function of this name."""
    if isinstance(error, KeyboardInterrupt):
        error = Interrupted()
    refusal = error if isinstance(error, LdpError) else internal(error, name)
    refusal.before = ""
    message = str(refusal).encode()[: question.room - 1].decode(errors="ignore").encode() + b"\0"
    ctypes.memmove(question.message, message, len(message))
