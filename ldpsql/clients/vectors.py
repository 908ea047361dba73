"""Test vectors of a mechanism: values, the random words that were used up, and the reports that they draw.

A program that draws one value at a time, and takes words in the order in which they are listed, must give the same reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Channel, ChannelOf, Codes, Drawn, Weights
from ldpsql.channels.randomness import Words, random_words
from ldpsql.clients.module import Exported, exported
from ldpsql.domains.domain import Domain
from ldpsql.domains.exported import listed
from ldpsql.domains.pair_sets import PairSets
from ldpsql.domains.product import Product
from ldpsql.mechanisms.base import CertifiedPairs, Mechanism
from ldpsql.reports import Alphabet, HashReports, RowReports, SetReports, SymbolReports
from ldpsql.reports.pairs import PairReports

_AT_A_TIME = 1 << 12  # draws
V = TypeVar("V")


def vectors(mechanism: Mechanism, count: int, words: Words = random_words) -> Iterator[dict[str, Any]]:
    """Yield draws of values chosen at random: ``value``, its ``position`` in the domain, ``words`` and the ``report``, as JSON.

    The position of a row is those of its columns, of a set of pairs each key's with where the number lies between the ends.
    A word is 16 hexadecimal digits.

    Args:
        mechanism: the mechanism.
        count: the number of draws.
        words: the source of the random words.

    Raises:
        NotApplicable: if its values are strings that are not listed.

    """
    certified = exported(mechanism)
    for start in range(0, count, _AT_A_TIME):
        rows = _chosen(certified, min(_AT_A_TIME, count - start))
        yield from _drawn(certified, rows, words)


def _chosen(certified: Exported, count: int) -> pa.Array:
    """Return values of the domain chosen at random."""
    values = certified.values.listed
    if isinstance(certified.values, PairSets):
        return _sets(certified.values, count)
    if isinstance(values, Product):
        columns = [part.values.take(pa.array(_places(len(part), count))) for part in values.parts]
        return pa.StructArray.from_arrays(columns, list(values.names))
    return values.values.take(pa.array(_places(len(values), count)))


def _sets(values: PairSets, count: int) -> pa.Array:
    """Return sets of at most four pairs chosen at random."""
    most = min(len(values.keys), 4)
    sizes = (random_words(count) % np.uint64(most + 1)).astype(np.int32)
    keys = random_words(count * len(values.keys)).reshape(count, -1).argsort(axis=1)[:, :most]
    held = np.arange(most) < sizes[:, None]
    places = (random_words(int(held.sum())) >> np.uint64(11)).astype(np.float64) / 2**53
    numbers = np.clip(values.low + (values.high - values.low) * places, values.low, values.high)
    pairs = pa.StructArray.from_arrays([values.keys.values.take(pa.array(keys[held])), pa.array(numbers)], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)), pairs)


def _places(size: int, count: int) -> Weights:
    return random_words(count) % np.uint64(size)


def _drawn(certified: Exported, column: pa.Array, words: Words) -> Iterator[dict[str, Any]]:
    """Yield the draws of some values."""
    if isinstance(certified, CertifiedPairs):
        together = certified.values.sets(column)
        sets = [together.at(place) for place in range(len(together))]
        positions = [[*zip(one.keys.tolist(), one.places.tolist(), strict=True)] for one in sets]
        drawn, used = _each(certified.channel, sets, words)
    else:
        each, codes = _in_step if certified.channel.in_step else _one_by_one, certified.codes(column)
        positions = codes.tolist()
        drawn, used = each(certified.channel, codes, words)
    reports = report_json(certified.reports, certified.shown(drawn))
    for value, position, taken, report in zip(value_json(certified.values, column), positions, used, reports, strict=True):
        yield {"value": value, "position": position, "words": [f"{word:016x}" for word in taken], "report": report}


def _in_step(channel: Channel, positions: Codes, words: Words) -> tuple[Drawn, list[list[int]]]:
    """Return the draws of all values, and the words of each: they are drawn from one word each at a time, in their order."""
    used: list[Weights] = []

    def recorded(count: int) -> Weights:
        used.append(words(count))
        return used[-1]

    drawn = channel.draw(positions, recorded)
    return drawn, np.stack(used, axis=1).tolist()


def _one_by_one(channel: Channel, positions: Codes, words: Words) -> tuple[Drawn, list[list[int]]]:
    """Return the draws of all values, and the words of each; each value is drawn by itself."""
    return _each(channel, [positions[place : place + 1] for place in range(len(positions))], words)


def _each(channel: ChannelOf[V], values: Sequence[V], words: Words) -> tuple[Drawn, list[list[int]]]:
    """Return the draws of values, and the words that each took."""
    used: list[list[int]] = []

    def recorded(count: int) -> Weights:
        taken = words(count)
        used[-1] += taken.tolist()
        return taken

    def drawn(value: V) -> Drawn:
        used.append([])
        return channel.draw(value, recorded)

    return np.concatenate([drawn(value) for value in values]), used


def value_json(values: Domain | PairSets, column: pa.Array) -> list[Any]:
    """Return values of a domain, or sets, as a client takes them."""
    if isinstance(values, PairSets):
        parts = zip(value_json(values.keys, column.values.field("key")), column.values.field("value").to_pylist(), strict=True)
        pairs = [{"key": key, "value": value} for key, value in parts]
        return [pairs[start:end] for start, end in pairwise(column.offsets.to_pylist())]
    values = values.listed
    if isinstance(values, Product):
        return _rows(values.names, [value_json(*pair) for pair in zip(values.parts, column.flatten(), strict=True)])
    return listed(Domain(column))


def report_json(reports: Alphabet, column: pa.Array) -> list[Any]:
    """Return reports as a client writes them: words of 64 bits as text, as JSON's readers round large numbers."""
    if isinstance(reports, RowReports):
        fields = zip(reports.parts, column.flatten(), strict=True)
        return _rows(reports.names, [_or_none(part, field) for part, field in fields])
    if isinstance(reports, Domain):
        return value_json(reports, column)
    if isinstance(reports, SetReports | SymbolReports):
        return [[str(word) for word in words] for words in column.to_pylist()]
    if isinstance(reports, PairReports):
        keys, numbers = column.field("key"), column.field(reports.field).to_pylist()
        named = iter(value_json(reports.keys, keys.drop_null()))
        each = [next(named) if held else None for held in keys.is_valid().to_pylist()]
        return _rows(("key", reports.field), [each, numbers])
    if isinstance(reports, HashReports):
        return [{"seed": str(row["seed"]), "y": row["y"]} for row in column.to_pylist()]
    return list(column.to_pylist())


def _or_none(reports: Alphabet, column: pa.Array) -> list[Any]:
    """Return the reports of a column of a row, None for those that are not reported."""
    held: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    each = iter(report_json(reports, column.filter(pa.array(held))))
    return [next(each) if one else None for one in held]


def _rows(names: tuple[str, ...], columns: list[list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
