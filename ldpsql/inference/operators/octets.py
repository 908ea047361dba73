"""Sets of values as bits, eight values to an octet."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Drawn, Floats, SetChannel
from ldpsql.channels.costs import Cost
from ldpsql.inference.deadline import check

Octets: TypeAlias = NDArray[np.uint8]

_CACHED = 1 << 17  # cells packed at a time


def check_number(channel: SetChannel, reports: int) -> None:
    """Return if so many reports can be kept.

    Raises:
        InvalidParameter: if they would take more than two gibibytes.

    """
    Cost(bytes=reports * channel.inputs / 8).check(
        f"a table of {reports:,} different reports about {channel.inputs:,} values",
        "for so many values use olh, whose orthogonal seeds are counted; ldpsql.partial_supports inverts bit vectors",
    )


def packed(channel: SetChannel, drawn: Drawn) -> Octets:
    """Return the sets of these reports, shape (octets, reports): bit i of octet b is set if value 8 b + i is a member.

    Raises:
        InvalidParameter: if they would take more than two gibibytes.

    """
    check_number(channel, len(drawn))
    out = np.empty((-(-channel.inputs // 8), len(drawn)), dtype=np.uint8)
    step = max(1, _CACHED // channel.inputs)
    for start in range(0, len(drawn), step):
        check()
        part = slice(start, start + step)
        out[:, part] = channel.octets(drawn[part])
    return out


def collapsed(octets: Octets, counts: Floats) -> tuple[Octets, Floats]:
    """Return the distinct sets with their added counts; the arguments themselves if nearly all sets must differ."""
    if len(octets) > 3 or 256 ** len(octets) > 16 * octets.shape[1]:
        return octets, counts  # nearly all sets differ
    codes = sum(row.astype(np.int64) << 8 * b for b, row in enumerate(octets))
    added: Floats = np.bincount(codes, weights=counts).astype(np.float64)
    seen = np.flatnonzero(added)
    return ((seen >> 8 * np.arange(len(octets))[:, None]) & 255).astype(np.uint8), added[seen]


def unpacked(octets: Octets, size: int, among: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
    """Return which of the values ``among``, out of ``size``, are in the sets: shape (values, reports).

    Of a few values, only their octets are read.
    """
    if isinstance(among, np.ndarray) and 8 * len(among) < size:
        places = (among & 7).astype(np.uint8)[:, None]
        return (octets[among >> 3] >> places & np.uint8(1)).view(np.bool_)
    return np.unpackbits(octets, axis=0, count=size, bitorder="little")[among].view(np.bool_)
