"""Channels as JSON: the name of the structure and its whole numbers, so that other programs can draw the same reports.

Weights may be as large as 2**64, which JSON's readers round: they are written as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import ChannelOf, Weights
from ldpsql.channels.bits import BinBits, IndependentBits, SignedBits
from ldpsql.channels.dense import DenseChannel, UndrawnChannel, WeightsChannel
from ldpsql.channels.hadamard import Hadamard, Subsets
from ldpsql.channels.hashed import Field, OrthogonalHash, PrivateHash, RepeatedHash
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.key_value import KeepOrWindow, KeyValue
from ldpsql.channels.levels import Levels
from ldpsql.channels.noise import Convolution, PlanarNoise
from ldpsql.channels.prefixes import Prefixes
from ldpsql.channels.rows import OneOfRows, Rows
from ldpsql.errors import NotPrivate

# Copies of channels: the channel that is certified and drawn from is a copy of which nobody else holds any part.

C = TypeVar("C", bound=ChannelOf[Any])
STRUCTURES = (
    *(DenseChannel, KeepOrSpread, Convolution, IndependentBits, Subsets, OrthogonalHash, PrivateHash),
    *(SignedBits, BinBits, KeepOrWindow, KeyValue, PlanarNoise, Prefixes, Levels, Rows, OneOfRows, RepeatedHash, Hadamard),
)


def copied(channel: C) -> C:
    """Return the same channel, built again from its whole numbers.

    Nothing else is copied: no method or table that was set on the object, and no array that somebody could still change.

    Raises:
        NotPrivate: unless the channel and its parts have exactly the structures of the core.
        InvalidParameter: if the numbers do not make a channel.

    """
    if type(channel) is DenseChannel:
        return cast("C", DenseChannel(cast("DenseChannel", channel).weights()))
    if type(channel) is UndrawnChannel:
        return cast("C", UndrawnChannel(cast("UndrawnChannel", channel).weights()))
    if type(channel) is Convolution:
        return cast("C", _convolution(cast("Convolution", channel)))
    if type(channel) is PlanarNoise:
        return cast("C", _planar(cast("PlanarNoise", channel)))
    kind = structure(channel)
    return kind(**{part.name: _copied_part(getattr(channel, part.name)) for part in fields(cast("Any", kind))})


def _convolution(channel: Convolution) -> Convolution:
    return Convolution(channel.noise, _copied_part(channel.inputs), _copied_part(channel.margin))


def _planar(channel: PlanarNoise) -> PlanarNoise:
    rows, columns = (_copied_part(size) for size in channel.shape)
    return PlanarNoise(channel.falling, columns, rows, _copied_part(channel.points), channel.floor)


def structure(channel: C) -> type[C]:
    """Return the structure of a channel.

    Raises:
        NotPrivate: unless it is one of the core's; a subclass could draw from another channel than the one it shows.

    """
    kind = type(channel)
    if not any(kind is core for core in STRUCTURES):  # `in` would call the equality of the class
        raise NotPrivate("a channel must have one of the structures of the core", "see ldpsql.channels")
    return kind


def _copied_part(part: Any) -> Any:
    if type(part) is tuple:
        return tuple(_copied_part(one) for one in part)
    return part if type(part) is int else copied(part)


_WEIGHTS = {"keep", "spread", "own", "other", "inside", "anything", "near", "same", "opposite"}  # out of 2**64
_Write: TypeAlias = Callable[[Weights], dict[str, Any]]  # how a table of weights is written
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


def exported(channel: ChannelOf[Any]) -> dict[str, Any]:
    """Return a channel as plain JSON: its ``structure`` and the parts that determine it.

    >>> from ldpsql.channels import KeepOrSpread
    >>> exported(KeepOrSpread(2, 3 << 62, 1 << 62))
    {'structure': 'keep_or_spread', 'size': 2, 'keep': '13835058055282163712', 'spread': '4611686018427387904'}

    Raises:
        NotPrivate: unless the channel and its parts have structures of the core.

    """
    return _whole(channel, table)


def _whole(channel: ChannelOf[Any], write: _Write) -> dict[str, Any]:
    kind = UndrawnChannel if type(channel) is UndrawnChannel else structure(channel)
    return {"structure": name_of(kind), **_parts(channel, write)}


def digest(channel: ChannelOf[Any]) -> str:
    """Return 16 hexadecimal digits that differ for channels with other probabilities or of another structure.

    Probabilities are rounded to 24 binary digits: the last digits of a table may differ between machines.

    Raises:
        NotPrivate: unless the channel and its parts have structures of the core.

    """
    written = json.dumps(_coarse(_whole(channel, _table_digest)), sort_keys=True)
    return blake2b(written.encode(), digest_size=8).hexdigest()


def _table_digest(weights: Weights) -> dict[str, str]:
    rounded = np.ascontiguousarray(_rounded(weights), dtype="<u4")
    return {"table": f"{weights.shape} {blake2b(rounded.tobytes(), digest_size=8).hexdigest()}"}


def _coarse(written: Any) -> Any:
    """Return a channel in JSON with its weights rounded: the texts that are numbers."""
    if isinstance(written, dict):
        return {name: _coarse(part) for name, part in written.items()}
    if isinstance(written, list):
        return [_coarse(part) for part in written]
    return str(_rounded(int(written))) if isinstance(written, str) and written.isdigit() else written


def _rounded(weight: Any) -> Any:
    return ((weight >> 39) + 1) >> 1  # of 64 binary digits, in whole numbers or arrays of them


def name_of(kind: type) -> str:
    """Return the name of a structure or form in JSON: ``KeepOrSpread`` is keep_or_spread."""
    return _WORD.sub("_", kind.__name__).lower()


def _parts(channel: ChannelOf[Any], write: _Write) -> dict[str, Any]:
    if isinstance(channel, WeightsChannel):
        return write(channel.weights())
    if isinstance(channel, Convolution):
        return {"inputs": channel.inputs, "margin": channel.margin, "noise": write(channel.noise[None])}
    if isinstance(channel, PlanarNoise):
        (rows, columns), floor = channel.shape, write(channel.floor)
        return {"columns": columns, "rows": rows, "points": channel.points, "falling": _texts(channel.falling), "floor": floor}
    parts = {part.name: _part(part.name, getattr(channel, part.name), write) for part in fields(cast("Any", channel))}
    return parts | (_field(channel) if isinstance(channel, OrthogonalHash) else {})


def _part(name: str, part: Any, write: _Write) -> Any:
    if isinstance(part, tuple):
        return [_part(name, one, write) for one in part]
    if isinstance(part, int):
        return str(part) if name in _WEIGHTS else part
    return _whole(part, write)


def _field(channel: OrthogonalHash) -> dict[str, int]:
    """Return what determines the hash functions: the prime, the dimension, and x^k as an element of a field of p^k elements."""
    field = Field.of(channel.response.size)
    return {"prime": field.p, "dimension": channel.dimension, "power": int(field.powers[field.k]) if field.k > 1 else 0}


def table(weights: Weights) -> dict[str, Any]:
    """Return a table of weights: the distinct ones in rising order, and rows of their numbers, counted from 0.

    In a row, -n after a number repeats the number n times.
    """
    distinct, numbers = np.unique(weights, return_inverse=True)
    return {"distinct": _texts(distinct), "rows": [_row(row) for row in numbers.reshape(weights.shape)]}


def _row(numbers: NDArray[np.int64]) -> list[int]:
    """Return the numbers of a row, with those that repeat the one before counted."""
    first = np.flatnonzero(np.diff(numbers, prepend=-1))
    more = np.diff(first, append=len(numbers)) - 1
    return np.stack([numbers[first], -more], axis=1)[np.stack([more >= 0, more > 0], axis=1)].tolist()


def _texts(weights: Weights) -> list[str]:
    return [str(weight) for weight in weights.tolist()]
