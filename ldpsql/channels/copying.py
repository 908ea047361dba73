"""Copies of channels: the channel that is certified and drawn from is a copy of which nobody else holds any part."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar, cast

from ldpsql.channels.base import ChannelOf
from ldpsql.channels.bin_bits import BinBits
from ldpsql.channels.bits import IndependentBits
from ldpsql.channels.convolution import Convolution
from ldpsql.channels.dense import DenseChannel
from ldpsql.channels.hadamard import Hadamard
from ldpsql.channels.hashed import OrthogonalHash, PrivateHash
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.keep_or_window import KeepOrWindow
from ldpsql.channels.key_value import KeyValue
from ldpsql.channels.levels import Levels
from ldpsql.channels.planar_noise import PlanarNoise
from ldpsql.channels.prefixes import Prefixes
from ldpsql.channels.repeated_hash import RepeatedHash
from ldpsql.channels.rows import OneOfRows, Rows
from ldpsql.channels.signed_bits import SignedBits
from ldpsql.channels.subsets import Subsets
from ldpsql.errors import NotPrivate

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
    if type(channel) is Convolution:
        return cast("C", _convolution(cast("Convolution", channel)))
    if type(channel) is PlanarNoise:
        return cast("C", _planar(cast("PlanarNoise", channel)))
    kind = structure(channel)
    return kind(**{part.name: _part(getattr(channel, part.name)) for part in fields(cast("Any", kind))})


def _convolution(channel: Convolution) -> Convolution:
    return Convolution(channel.noise, _part(channel.inputs), _part(channel.margin))


def _planar(channel: PlanarNoise) -> PlanarNoise:
    rows, columns = (_part(size) for size in channel.shape)
    return PlanarNoise(channel.falling, columns, rows, _part(channel.points), channel.floor)


def structure(channel: C) -> type[C]:
    """Return the structure of a channel.

    Raises:
        NotPrivate: unless it is one of the core's; a subclass could draw from another channel than the one it shows.

    """
    kind = type(channel)
    if not any(kind is core for core in STRUCTURES):  # `in` would call the equality of the class
        raise NotPrivate("a channel must have one of the structures of the core", "see ldpsql.channels")
    return kind


def _part(part: Any) -> Any:
    if type(part) is tuple:
        return tuple(_part(one) for one in part)
    return part if type(part) is int else copied(part)
