"""Reports that other libraries drew, read into the reports of a mechanism here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, DenseChannel, Drawn, Hadamard, IndependentBits, signs_of
from ldpsql.channels.base import words_of
from ldpsql.domains.domain import Domain
from ldpsql.errors import ImpossibleReport, InvalidParameter, UnknownName
from ldpsql.mechanisms.base import CertifiedValues, Mechanism, certify_values
from ldpsql.reports import SetReports

Format: TypeAlias = Literal["bits", "array", "position", "positions", "xxhash"]
FORMATS: tuple[str, ...] = get_args(Format)
_CELLS = 1 << 22  # hashes at a time
_SHAPES = {
    "bits": "a string of 0 and 1 for each value, such as '0100'",
    "array": "a list of 0 and 1 for each value, such as [0, 1, 0, 0]",
    "position": "a whole number counted from 0",
    "positions": "a list of the positions of values, counted from 0, such as [1, 3]",
    "xxhash": "a symbol and a seed, such as {y: 1, seed: 42} or [1, 42]",
}


def read_foreign(mechanism: Mechanism, column: pa.Array, form: str | None) -> tuple[CertifiedValues, Drawn]:
    """Return a certified mechanism, and the reports of a column without NULLs in its terms: positions, or words.

    Args:
        mechanism: the mechanism that has the probabilities with which the reports were drawn.
        column: the reports, as another library wrote them.
        form: how it wrote them, one of `FORMATS`.

    Raises:
        UnknownName: if there is no such format.
        InvalidParameter: if reports of the mechanism are not written in this format.
        ImpossibleReport: if some reports do not have the format, or cannot occur.

    """
    if form is None or form not in _READERS:
        raise UnknownName("format of reports", form or "", FORMATS)  # NULL in SQL
    certified = certify_values(mechanism)
    if pa.types.is_null(column.type):  # no reports at all, which have any format
        return certified, certified.channel.draw(np.empty(0, dtype=np.int32))
    drawn = _READERS[form](certified, column)
    if not certified.channel.possible(drawn).all():
        raise _refused(form)
    return certified, drawn


def _refused(form: str) -> ImpossibleReport:
    return ImpossibleReport(
        f"some reports do not have the format '{form}', or cannot occur under this mechanism",
        f"each must be {_SHAPES[form]}; other formats are {', '.join(other for other in FORMATS if other != form)}",
    )


def _unfit(certified: CertifiedValues, form: str, fitting: str) -> InvalidParameter:
    others = ", ".join(other for other in FORMATS if other != form)
    return InvalidParameter(
        f"reports of {certified.name} are not read from the format '{form}'", f"it is for {fitting}; other formats are {others}"
    )


def _size(certified: CertifiedValues, form: str) -> int:
    """Return the number of values of a mechanism that reports sets of values."""
    if not isinstance(certified.reports, SetReports):
        raise _unfit(certified, form, "reports that are sets of values, such as those of ldp.encoding and ldp.subset_selection")
    return certified.reports.size


def _bits(certified: CertifiedValues, column: pa.Array) -> Drawn:
    size = _size(certified, "bits")
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type)):
        raise _refused("bits")
    if not pc.all(pc.equal(pc.binary_length(column), size), min_count=0).as_py():
        raise _refused("bits")
    text = np.frombuffer("".join(column.to_pylist()).encode(), dtype=np.uint8)
    return _ones(text.reshape(-1, size) - ord("0"), "bits")


def _array(certified: CertifiedValues, column: pa.Array) -> Drawn:
    numbers = _items(column, "array", _size(certified, "array"))
    return _ones(np.asarray(numbers), "array")


def _ones(numbers: NDArray[np.generic], form: str) -> Drawn:
    """Return rows of 0 and 1 as words."""
    ones = numbers == 1
    if not (ones | (numbers == 0)).all():
        raise _refused(form)
    return words_of(ones)


def _position(certified: CertifiedValues, column: pa.Array) -> Drawn:
    channel = certified.channel
    if isinstance(channel, Hadamard):
        return channel.sets(_whole(column, "position", 1 << channel.bits).astype(np.uint64))
    if isinstance(channel, DenseChannel) and signs_of(channel.weights()) is not None:
        return _whole(column, "position", channel.outputs).astype(np.int32)
    if not isinstance(certified.reports, Domain) or certified.reports != certified.values:
        raise _unfit(certified, "position", "k-RR and Hadamard response")
    return _whole(column, "position", len(certified.reports)).astype(np.int32)


def _positions(certified: CertifiedValues, column: pa.Array) -> Drawn:
    size = _size(certified, "positions")
    lists = _lists(column, "positions")
    held = _whole(lists.flatten(), "positions", size)
    rows = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy(zero_copy_only=False))
    bits = np.zeros((len(lists), size), dtype=np.bool_)
    bits[rows, held] = True
    if bits.sum() != len(held):  # a position twice in a list
        raise _refused("positions")
    return words_of(bits)


def _xxhash(certified: CertifiedValues, column: pa.Array) -> Drawn:
    channel = certified.channel
    if not isinstance(channel, IndependentBits):
        raise _unfit(certified, "xxhash", "ldp.encoding(epsilon, domain, 'olh')")
    symbols = round(TOTAL / channel.other)
    if -(-TOTAL // symbols) != channel.other:
        raise _unfit(certified, "xxhash", "ldp.encoding(epsilon, domain, 'olh')")
    y, seeds = (_whole(part, "xxhash", end) for part, end in zip(_pairs(column), (symbols, TOTAL), strict=True))
    size = channel.size
    step = max(1, _CELLS // size)
    blocks = (slice(at, at + step) for at in range(0, len(y), step))
    parts = [words_of(xxh32(seeds[at], size) % np.uint32(symbols) == y[at, None]) for at in blocks]
    return np.concatenate(parts) if parts else np.empty((0, -(-size // 64)), dtype=np.uint64)


def _pairs(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the symbols and the seeds of a column of structs of both, or of lists of a symbol and a seed."""
    if pa.types.is_struct(column.type):
        if {field.name for field in column.type} != {"y", "seed"}:
            raise _refused("xxhash")
        return column.field("y"), column.field("seed")
    numbers = pa.array(_items(column, "xxhash", 2).T.ravel())
    return numbers[: len(column)], numbers[len(column) :]


def _lists(column: pa.Array, form: str) -> pa.Array:
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise _refused(form)
    return column


def _items(column: pa.Array, form: str, size: int) -> NDArray[np.generic]:
    """Return lists of ``size`` numbers each, shape ``(lists, size)``."""
    lists = _lists(column, form)
    items = lists.flatten()
    kind = items.type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not numeric or items.null_count or not pc.all(pc.equal(lists.value_lengths(), size), min_count=0).as_py():
        raise _refused(form)
    return np.asarray(items.to_numpy(zero_copy_only=False).reshape(-1, size))


def _whole(column: pa.Array, form: str, end: int) -> NDArray[np.uint64]:
    """Return whole numbers from 0 up to ``end``, exclusive."""
    if not pa.types.is_integer(column.type) or column.null_count:
        raise _refused(form)
    if not pc.all(pc.greater_equal(column, pa.scalar(0, column.type)), min_count=0).as_py():
        raise _refused(form)
    numbers = column.cast(pa.uint64()).to_numpy(zero_copy_only=False)
    if (numbers > np.uint64(end - 1)).any():
        raise _refused(form)
    return np.asarray(numbers)


_READERS: dict[str, Callable[[CertifiedValues, pa.Array], Drawn]] = {
    "bits": _bits,
    "array": _array,
    "position": _position,
    "positions": _positions,
    "xxhash": _xxhash,
}


# The hash XXH32 of decimal numbers, as multi-freq-ldpy and pure-ldp hash values for local hashing.
#
# Yann Collet, xxHash, specification version 0.1.1. Texts of up to 15 bytes are enough for numbers.


_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (
    np.uint32(prime) for prime in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
)
_LOW = np.uint64(0xFFFFFFFF)


def xxh32(seeds: NDArray[np.uint64], size: int) -> NDArray[np.uint32]:
    """Return the hashes of the texts '0' .. 'size - 1' under each seed, shape ``(seeds, size)``.

    Of a seed, the lower 32 bits count.

    >>> xxh32(np.array([7], dtype=np.uint64), 124)[0, 123]
    np.uint32(3315430999)
    """
    begun = (seeds & _LOW).astype(np.uint32)[:, None]
    out = np.empty((len(seeds), size), dtype=np.uint32)
    for digits in range(1, len(str(size - 1)) + 1):
        first, end = 10 ** (digits - 1) if digits > 1 else 0, min(size, 10**digits)
        out[:, first:end] = _hashed(begun, np.arange(first, end), digits)
    return out


def _hashed(seeds: NDArray[np.uint32], numbers: NDArray[np.int64], digits: int) -> NDArray[np.uint32]:
    """Return the hashes of numbers of so many digits: four digits at a time, then those that are left."""
    text = (numbers[:, None] // 10 ** np.arange(digits - 1, -1, -1) % 10 + ord("0")).astype(np.uint8)
    word = seeds + _PRIME_5 + np.uint32(digits)
    for at in range(0, digits // 4 * 4, 4):
        lane = np.ascontiguousarray(text[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint32)
        word = _rotated(word + lane * _PRIME_3, 17) * _PRIME_4
    for at in range(digits // 4 * 4, digits):
        word = _rotated(word + text[:, at].astype(np.uint32) * _PRIME_5, 11) * _PRIME_1
    word = (word ^ (word >> np.uint32(15))) * _PRIME_2
    word = (word ^ (word >> np.uint32(13))) * _PRIME_3
    return np.asarray(word ^ (word >> np.uint32(16)))


def _rotated(word: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    return np.asarray((word << np.uint32(by)) | (word >> np.uint32(32 - by)))
