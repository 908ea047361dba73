"""What C draws for SQL: `learn` describes the mechanisms to it; and what it leaves to Python, a vector of DuckDB at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.channels import KeepOrSpread
from ldpsql.domains.domain import Domain
from ldpsql.engine.door import open_door
from ldpsql.errors import InternalError, Interrupted, LdpError
from ldpsql.errors.boundary import internal
from ldpsql.mechanisms.base import CertifiedMechanism

TYPES = {2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32", 9: "uint64", 17: "string"}
_MOST_NUMBERS = 1 << 24  # from the smallest to the largest number of a domain
_MOST_OCTETS = 1 << 28  # of all domains together, which C keeps as long as the process lives
_LEARNT: dict[int, int] = {}  # octets by handle


@cache
def kernels() -> ctypes.CDLL | None:
    """Return the library that draws for SQL; None if SQL draws in Python."""
    library = open_door()
    if isinstance(library, str):
        return None
    number, whole, array = ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p
    library.ldpsql_learn_whole.argtypes = (number, whole, whole, array)
    library.ldpsql_learn_text.argtypes = (number, whole, whole, ctypes.c_char_p, array)
    library.ldpsql_write.argtypes = (array, array, array, array)
    library.ldpsql_learn_whole.restype = library.ldpsql_learn_text.restype = ctypes.c_bool
    return library


def learn(handle: int, mechanism: CertifiedMechanism) -> None:
    """Draw with a mechanism in C from now on, if it is k-ary randomised response over whole numbers or text.

    Args:
        handle: the number of the mechanism; draws that a ledger counts have one below 0, and stay in Python.
        mechanism: the mechanism.

    """
    if handle in _LEARNT or handle < 0:
        return
    _LEARNT[handle] = 0
    channel, values, library = mechanism.channel, mechanism.values, kernels()
    if library is None or type(channel) is not KeepOrSpread or not isinstance(values, Domain) or mechanism.reports != values:
        return
    kind = values.values.type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        return
    if not np.array_equal(values.codes(values.values), np.arange(channel.size)):
        return
    if pa.types.is_string(kind):
        _learn_text(library, handle, channel, [text.encode() for text in values.values.to_pylist()])
    else:
        _learn_whole(library, handle, channel, values.values.to_pylist())


def _learn_whole(library: ctypes.CDLL, handle: int, channel: KeepOrSpread, numbers: list[int]) -> None:
    span = max(numbers) - min(numbers)
    if span < _MOST_NUMBERS and max(numbers) < 1 << 63 and _has_room(handle, 4 * span + 8 * len(numbers)):
        whole = np.array(numbers, np.int64)  # it must live until C has read it
        library.ldpsql_learn_whole(handle, channel.size, channel.spread, whole.ctypes.data)


def _learn_text(library: ctypes.CDLL, handle: int, channel: KeepOrSpread, texts: list[bytes]) -> None:
    if _has_room(handle, sum(map(len, texts)) + 144 * len(texts)):  # a text has 16 octets, and 4 to 8 slots of 16
        ends = np.cumsum([len(text) for text in texts], dtype=np.int32)
        library.ldpsql_learn_text(handle, channel.size, channel.spread, b"".join(texts), ends.ctypes.data)


def _has_room(handle: int, octets: int) -> bool:
    if sum(_LEARNT.values()) + octets > _MOST_OCTETS:
        return False
    _LEARNT[handle] = octets
    return True


class _Call(ctypes.Structure):
    """A vector that Python is to draw: ``call`` of ``door.c``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int32),
        ("out_type", ctypes.c_int32),
        ("count", ctypes.c_uint64),
        ("values", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
        ("valid", ctypes.c_void_p),
        ("handles_valid", ctypes.c_void_p),
        ("handles", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("message", ctypes.c_void_p),
        ("room", ctypes.c_uint64),
    )


def drawn_in_python(address: int, functions: Mapping[str, Callable[..., Any]]) -> int:
    """Draw a vector with the function of its name.

    Args:
        address: of the ``call`` that C makes. An error is written into its message, as DuckDB words those of Python.
        functions: functions of two columns, the values and the handles of their mechanisms, by name.

    Returns:
        1, or 0 if it could not be drawn.

    """
    call = _Call.from_address(address)
    try:
        _write(address, call, functions[call.name.decode()](_column(call), _handles(call)))
    except LdpError as error:
        refusal = error
    except KeyboardInterrupt:
        refusal = Interrupted()
    except Exception as error:  # noqa: BLE001  # its text may hold a raw value
        refusal = internal(error, "perturb")
    else:
        return 1
    text = f"Python exception occurred while executing the UDF: {type(refusal).__name__}: {refusal}"
    message = text.encode()[: call.room - 1] + b"\0"
    ctypes.memmove(call.message, message, len(message))
    return 0


def _column(call: _Call) -> pa.Array:
    """Return a copy of the values: an Arrow array may outlive the vector."""
    kind = pa.type_for_alias(TYPES[call.type])
    if not call.ends:
        return _array(kind, call.count, call.valid, _copied(call.values, call.count * kind.bit_width // 8))
    ends = np.frombuffer(_copied(call.ends, 4 * call.count), np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    return _array(kind, call.count, call.valid, pa.py_buffer(offsets), _copied(call.values, int(ends[-1])))


def _handles(call: _Call) -> pa.Array:
    return _array(pa.int64(), call.count, call.handles_valid, _copied(call.handles, 8 * call.count))


def _array(kind: pa.DataType, count: int, valid: int | None, *buffers: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [_copied(valid, -(-count // 64) * 8) if valid else None, *buffers])


def _copied(address: int, octets: int) -> pa.Buffer:
    return pa.py_buffer(ctypes.string_at(address, octets))


def _write(address: int, call: _Call, reports: pa.Array) -> None:
    """Write reports into the vector of DuckDB."""
    library = kernels()
    if library is None or len(reports) != call.count:
        raise InternalError("there are not as many reports as values", "please report the mechanism")
    missing = reports.is_null().to_numpy(zero_copy_only=False).astype(np.uint8)
    if TYPES[call.out_type] == "string":
        texts = [text.encode() for text in reports.cast(pa.string()).fill_null("").to_pylist()]
        ends = np.cumsum([len(text) for text in texts], dtype=np.int32)
        library.ldpsql_write(address, b"".join(texts), ends.ctypes.data, missing.ctypes.data)
    else:
        numbers = np.ascontiguousarray(reports.fill_null(0).to_numpy(zero_copy_only=False), np.dtype(TYPES[call.out_type]))
        library.ldpsql_write(address, numbers.ctypes.data, None, missing.ctypes.data)
