"""A mechanism as an ES module without dependencies, which draws the same reports as Python from the same random words.

The module holds the document of the mechanism without what drawing does not need, and those of the parts in `js` that its
structure needs. It computes in whole numbers only, except for finding the bin of a number.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import (
    AnyChannel,
    Channel,
    ChannelOf,
    Codes,
    Convolution,
    DenseChannel,
    Drawn,
    KeepOrWindow,
    KeyValue,
    PlanarNoise,
    TableChannel,
    Weights,
)
from ldpsql.channels.dense import Window, two_reports
from ldpsql.channels.exported import exported as written
from ldpsql.channels.randomness import Words, random_words
from ldpsql.domains.composite import PairSets, Product
from ldpsql.domains.domain import Domain
from ldpsql.domains.written import listed
from ldpsql.errors import InvalidParameter, NotApplicable
from ldpsql.mechanisms.base import CertifiedPairs, CertifiedRow, CertifiedValues, Mechanism, certify
from ldpsql.mechanisms.families import PlanarMechanism
from ldpsql.registry.documents import document
from ldpsql.reports import Alphabet, HashReports, RowReports, SetReports, SymbolReports
from ldpsql.reports.pairs import PairReports

# The parts that each structure, kind of values and form of reports needs, in their order.
_NEEDS = {
    "dense_channel": ("alias", "dense_channel"),
    "moving_weights": ("alias", "moving_weights"),
    "convolution": ("alias", "convolution"),
    "planar_noise": ("alias", "planar_decay"),
    "planar_table": ("alias", "planar_decay"),
    "orthogonal_hash": ("splitmix", "keep_or_spread", "orthogonal_hash"),
    "private_hash": ("splitmix", "keep_or_spread", "private_hash"),
    "repeated_hash": ("splitmix", "keep_or_spread", "repeated_hash"),
    "rows": ("row",),
    "one_of_rows": ("row",),
    "independent_bits": ("coins",),
    "signed_bits": ("coins",),
    "pairs": ("number",),
    "sign": ("form_pair",),
    "bin": ("form_pair",),
    "whole": ("number",),
    "bins": ("number",),
    "steps": ("number",),
    "moments": ("number",),
}
_FILES = ("core", "domains", "forms", "structures", "end")  # of parts, which begin with their names
# A string, or operators with the spaces around them.
_SPACED = re.compile(r'("(?:\\.|[^"\\])*")|^ +| *([=<>!&|?:+*%^~,;{}()\[\]-]+) *')
_SHORT = 1000  # characters of a mechanism that are not compressed

Exported: TypeAlias = CertifiedValues | CertifiedPairs | CertifiedRow


def exported(mechanism: Mechanism) -> Exported:
    """Return a certified mechanism that other programs can draw from."""
    certified = certify(mechanism)
    if isinstance(certified, CertifiedValues | CertifiedPairs | CertifiedRow):
        return certified
    raise NotApplicable(
        f"{mechanism.name} perturbs {certified.over}, and modules are for single values, rows of them and sets of pairs",
        "use krr, oue, olh or another mechanism over declared values",
    )


def module(mechanism: Mechanism) -> str:
    """Return the source of a module that draws reports of a mechanism.

    Raises:
        NotApplicable: if its values are strings that are not listed.

    """
    certified = exported(mechanism)
    described = _described(certified)
    parts = set(_parts(described))
    core, *others = (source for name, source in sources().items() if name in parts)
    header = f"// Draws reports of {certified.name} ({certified.certificate.claim}). Written by ldpsql export-client.\n"
    return "".join([header, core, f"const mechanism = {_literal(described)};\n", *others])


def _described(certified: Exported) -> dict[str, Any]:
    """Return what a module holds of the document."""
    whole = document(certified.mechanism)
    kept = {name: whole[name] for name in ("values", "channel", "reports", "fingerprint", "claim")}
    if kept["reports"].get("values") == {name: kept["values"].get(name) for name in kept["reports"].get("values", ())}:
        del kept["reports"]["values"]  # they are those that are perturbed
    if kept["values"].get("drop_missing"):
        kept["values"]["null"] = []  # the empty set
    parts = certified.parts if isinstance(certified, CertifiedRow) else (certified,)
    channels = kept["channel"]["parts"] if isinstance(certified, CertifiedRow) else [kept["channel"]]
    for part, channel in zip(parts, channels, strict=True):
        _shorten(channel, part.mechanism, part.channel)
    return kept


def _shorten(described: dict[str, Any], mechanism: Mechanism, channel: AnyChannel) -> None:
    """Replace the tables of a channel by shorter ones, where its structure allows it."""
    short: dict[str, Any] | None = None
    if isinstance(channel, KeyValue) and isinstance(channel.response, KeepOrWindow):
        described, channel = described["response"]["window"], channel.response.window
    if isinstance(channel, Convolution):
        described["noise"] = noise(channel) or described["noise"]
    elif isinstance(mechanism, PlanarMechanism) and isinstance(channel, TableChannel):
        short = on_map(mechanism, channel)
    elif isinstance(channel, DenseChannel):
        short = moving(channel)
    if short is not None:
        described.clear()
        described.update(short)


def _parts(described: Any) -> Iterator[str]:
    """Yield the names of the parts that a mechanism needs."""
    yield from ("core", "end")
    if isinstance(described, list):
        for part in described:
            yield from _parts(part)
    if isinstance(described, dict):
        for key, prefix in (("structure", ""), ("kind", "domain_"), ("form", "form_")):
            name = described.get(key)
            if name is not None and not (key == "form" and name == "row"):
                yield from _NEEDS.get(name, ())
                yield from () if name in ("rows", "one_of_rows") and key == "structure" else (f"{prefix}{name}",)
        for part in described.values():
            yield from _parts(part)


def _literal(described: dict[str, Any]) -> str:
    """Return a mechanism as an expression of JavaScript: JSON, compressed if it is long."""
    text = json.dumps(described, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")  # no </script> in a page
    if len(text) <= _SHORT:
        return text
    return f'await inflated("{b64encode(zlib.compress(text.encode(), 9)).decode()}")'


@cache
def sources() -> dict[str, str]:
    """Return the parts by their names, in the order in which a module holds them, without indents and comments."""
    texts = ((files(__package__) / "js" / f"{name}.mjs").read_text(encoding="utf-8") for name in _FILES)
    parts = (part.partition("\n") for text in texts for part in text.split("//: ")[1:])
    return {name: _compact(code) for name, _, code in parts}


def _compact(code: str) -> str:
    """Return code without indents, spaces around operators and comments, except those of what the module exports."""
    lines = code.strip().splitlines()
    kept = (line.partition(" // ")[0].rstrip() + "\n" for line in lines if line and not line.startswith("//"))
    return "".join(line if line.startswith("/**") else _SPACED.sub(r"\1\2", line) for line in kept)


# Weights in few whole numbers where their structure allows it, from which a module derives its tables.


_FACTORS = ((), (1,), (2, 1), (3, 3, 1))  # of the last weights, over those before, and so on: see `_foreseen`


def moving(channel: DenseChannel) -> dict[str, Any] | None:
    """Return the numbers of a table of two reports that change evenly, of a window that moves evenly, or of both.

    Returns None for other tables.
    """
    weights = channel.weights()
    values, reports = weights.shape
    if values <= 2 or reports not in (2, values, values + 2):
        return None
    pair, rest = np.split(weights, [0 if reports == values else 2], axis=1)
    changing = _pair(pair) if pair.size else {"share": 0, "first": 0}
    window = _window(rest) if rest.any() else Window(rest.shape[1], 0, 0, 1, 0)
    if changing is None or window is None:
        return None
    return {"structure": "moving_weights", "values": values} | {
        name: str(number) for name, number in (changing | asdict(window)).items()
    }


def on_map(mechanism: PlanarMechanism, channel: TableChannel) -> dict[str, Any] | None:
    """Return the numbers of noise on a map, if they are those of its channel: a table of all pairs of cells or of offsets."""
    try:
        decay = mechanism.decay()
    except InvalidParameter:  # too far for anything but a table
        return None
    noise, many = decay.noise(), isinstance(channel, PlanarNoise)
    if not (written(noise) == written(channel) if many else np.array_equal(noise.weights(), channel.weights())):
        return None
    numbers = {name: str(number) for name, number in asdict(decay).items()}
    return {"structure": "planar_noise" if many else "planar_table", **numbers}


def _pair(weights: Weights) -> dict[str, int] | None:
    share, first = sum(weights[0].tolist()), int(weights[0, 0])
    even = 2 * first >= share and np.array_equal(two_reports(len(weights), first, share), weights)
    return {"share": share, "first": first} if even else None


def _window(weights: Weights) -> Window | None:
    """Return the window of a table in which some bin is covered."""
    low = int(weights.min())
    more = weights - np.uint64(low)
    step, inside, begins = int(more.max()), sum(more[0].tolist()), int((more[0] > 0).argmax())
    window = Window(len(weights), low, inside, step, (begins + 1) * step - int(more[0, begins]))
    return window if window.way >= 0 and np.array_equal(window.weights(), weights) else None


def noise(channel: Convolution) -> dict[str, Any] | None:
    """Return the noise of a channel as its weights from 0 on, each as the difference from what those before it foretell.

    Returns None unless the noise is symmetric, except for its last weights.
    """
    half = channel.noise[len(channel.noise) // 2 :].tolist()
    left = channel.noise[len(channel.noise) // 2 :: -1].tolist()
    if half[:-1] != left[:-1]:
        return None
    texts = [" ".join(str(one) for one in _differences(half, order)) for order in range(len(_FACTORS))]
    order = min(range(len(_FACTORS)), key=lambda at: len(texts[at]))
    return {"order": order, "differences": texts[order], "last": str(left[-1])}


def _differences(weights: Sequence[int], order: int) -> list[int]:
    return [weight - _foreseen(weights[:at], order) for at, weight in enumerate(weights)]


def _foreseen(before: Sequence[int], order: int) -> int:
    """Return the next weight if the ratios of weights, or the ratios of these ratios, stay the same; 0 for the first."""
    powers = [weight**times for weight, times in zip(before[::-1], _FACTORS[min(order, len(before))], strict=False)]
    return prod(powers[::2]) // prod(powers[1::2]) if powers else 0


# Test vectors of a mechanism: values, the random words that were used up, and the reports that they draw.
#
# A program that draws one value at a time, and takes words in the order in which they are listed, must give the same reports.

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
