"""Check a mechanism of ldpsql without ldpsql: does the channel in its document keep the claim in its document?

It reads what ``ldpsql describe`` wrote and recomputes the largest ratio P(report|value) / P(report|other), or delta, in whole
numbers. `ldpsql_replay` beside it draws again what ``ldpsql vectors`` drew. Both need the standard library only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cache
from itertools import accumulate, chain, pairwise, permutations
from math import isqrt, log, prod
from operator import truediv
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

T, LOW = 1 << 64, (1 << 64) - 1  # the weights of the reports of a value are whole numbers that sum to T
DOUBT = 1e-11  # doubles discard what is farther from a limit than this, relatively; whole numbers decide about the rest
Row: TypeAlias = "list[int] | tuple[int, ...]"


class No(Exception):
    """The document does not keep its claim."""


def need(kept: bool, problem: str) -> None:
    """Answer no unless a condition holds."""
    if not kept:
        raise No(problem)


class Channel(NamedTuple):
    """The number of values, what the form of the reports must say, and the largest ratio: None if it is infinite."""

    inputs: int
    sizes: dict[str, Any]  # `count` is the number of reports that are positions
    ratio: Fraction | None
    rows: Callable[[], list[Row]] | None = None  # all weights, if reports are positions
    steepest: Callable[[], Fraction | None] | None = None  # the largest ratio of neighbouring values, if reports are positions
    plane: tuple[list[int], int, int, int] | None = None  # noise by squared distance, points of a cell, columns, rows
    parts: tuple[Channel, ...] = ()


def size(part: Any, name: str, least: int = 1) -> int:
    """Return a whole number."""
    need(type(part[name]) is int and part[name] >= least, f"{name} is not a whole number of at least {least}")
    return part[name]


def weight(part: Any, name: str) -> int:
    """Return a weight strictly between 0 and 2^64."""
    need(type(part[name]) is str and part[name].isdecimal() and 0 < int(part[name]) < T, f"{name} is not a weight below 2^64")
    return int(part[name])


def table(part: Any) -> list[list[int]]:
    """Return a table of weights; -n in a row repeats the weight before it n times."""
    distinct, rows = [int(text) for text in part["distinct"]], []
    for numbers in part["rows"]:
        rows.append(row := [])
        for number in numbers:
            need(
                number < 0 < len(row) or [distinct[number]] != row[-1:], "a table is not written in the one way for its weights"
            )
            row += [row[-1]] * -number if number < 0 else [distinct[number]]
    need(min(distinct) >= 0 and len({len(row) for row in rows}) == 1, "a table has a negative weight or rows of unequal length")
    return rows


def wider(high: int, low: int) -> Fraction:
    """Return the ratio of two weights, the larger one over the smaller one."""
    return Fraction(max(high, low), min(high, low))


def largest(pairs: Iterable[tuple[int, int]]) -> Fraction | None:
    """Return the largest ratio of two weights of a report, exactly; None if it is infinite."""
    used = {(max(pair), min(pair)) for pair in pairs if any(pair)}
    if any(low == 0 for _, low in used):
        return None
    most = max(high / low for high, low in used)
    return max(Fraction(high, low) for high, low in used if high / low >= most * (1 - DOUBT))


def dense_channel(c: Any) -> Channel:
    """Any table of weights."""
    rows = table(c)
    need(all(sum(row) == T for row in rows), "a row of weights does not sum to 2^64")
    ratio = largest((max(column), min(column)) for column in zip(*rows, strict=True))
    return listed(len(rows), len(rows[0]), ratio, lambda: rows)


def listed(inputs: int, outputs: int, ratio: Fraction | None, rows: Callable[[], list[Row]], **sizes: int) -> Channel:
    """Return a channel whose reports are positions."""
    steps = lambda: largest(chain.from_iterable(zip(*two, strict=True) for two in pairwise(rows())))  # noqa: E731
    return Channel(inputs, {"count": outputs, **sizes}, ratio, rows, steps)


def keep_or_spread(c: Any) -> Channel:
    """A report has two weights: that of its own value, and that of all others."""
    n, keep, spread = size(c, "size", 2), weight(c, "keep"), weight(c, "spread")
    need(keep + (n - 1) * spread == T, "the weights of keep_or_spread do not sum to 2^64")
    rows = lambda: [[keep if y == x else spread for y in range(n)] for x in range(n)]  # noqa: E731
    return listed(n, n, wider(keep, spread), rows, symbols=n, seeds=1)


def convolution(c: Any) -> Channel:
    """A report between the ends has the weights of as many noises in a row as there are values; an end has those of tails."""
    n, margin, (noise,) = size(c, "inputs", 2), size(c, "margin", 0), table(c["noise"])
    first, last, inner = n - 1, n + 2 * margin - 1, noise[1:-1]  # the noise that takes value 0 to report 0; the last report
    need(len(noise) == last + n and min(noise) > 0 and sum(noise) == T, "the noise does not have 2^64 in all for its shifts")
    low, high = list(accumulate(noise)), list(accumulate(noise[::-1]))[::-1]
    ends, span, most, least = (low[:n], high[last : last + n]), 1, inner, inner
    while span < n:  # the most and the least of each n in a row
        step = min(span, n - span)
        most, least, span = [*map(max, most, most[step:])], [*map(min, least, least[step:])], span + step
    return Channel(
        *(n, {"count": last + 1}, largest(chain(zip(most, least, strict=True), ((max(end), min(end)) for end in ends)))),
        lambda: [[low[at], *noise[at + 1 : at + last], high[at + last]] for at in range(first, -1, -1)],
        lambda: largest(chain.from_iterable(map(pairwise, (*ends, inner)))),
    )


def plane(c: Any) -> tuple[list[int], int, list[list[int]], int]:
    """Return the noise on the plane by squared distance, its reach in cells, a quarter of its cells, and its spread."""
    columns, rows, points, floor = size(c, "columns", 2), size(c, "rows", 2), size(c, "points"), table(c["floor"])
    falling, half = [int(text) for text in c["falling"]], points // 2
    need(points % 2 == 1 and falling == sorted(falling, reverse=True) and falling[-1] >= 0, "the noise rises with the distance")
    need((len(floor), len(floor[0])) == (rows, columns), "the floor does not have a weight for each cell")
    last, furthest = (isqrt(len(falling) - 1) + half) // points, isqrt(len(falling) - 1)
    across, down = min(columns - 1, last), min(rows - 1, last)
    quarter = [[0] * (across + 1) for _ in range(down + 1)]
    for y in range(-half, furthest + 1):
        for x in range(-half, isqrt(len(falling) - 1 - y * y) + 1):
            quarter[min((y + half) // points, down)][min((x + half) // points, across)] += falling[x * x + y * y]
    total = sum(one * (2 if j else 1) * (2 if i else 1) for j, line in enumerate(quarter) for i, one in enumerate(line))
    need(total + sum(map(sum, floor)) == T, "the weights of the noise and of the floor do not sum to 2^64")
    reached = [[1 + last * (at in (0, count - 1)) for at in range(count)] for count in (rows, columns)]
    spread = min(floor[j][i] // (points**2 * a * b) for j, a in enumerate(reached[0]) for i, b in enumerate(reached[1]))
    return falling, last, quarter, spread


def planar_noise(c: Any) -> Channel:
    """Moving points to cells raises no ratio: the noise decides, see `on_plane`."""
    (falling, _, _, spread), columns, rows = plane(c), size(c, "columns"), size(c, "rows")
    noise = [one + spread for one in (*falling, 0)]
    return Channel(columns * rows, {"count": columns * rows}, None, plane=(noise, size(c, "points"), columns, rows))


def independent_bits(c: Any) -> Channel:
    """Two bits distinguish two values, all others cancel."""
    n, own, other = size(c, "size", 2), weight(c, "own"), weight(c, "other")
    return Channel(n, {"size": n}, wider(own * (T - other), other * (T - own)))


def subsets(c: Any) -> Channel:
    """A set with the value is one of C(n-1, m-1), a set without it one of C(n-1, m), all equally likely."""
    n, chosen, inside = size(c, "size", 2), size(c, "chosen"), weight(c, "inside")
    need(chosen < n, "a subset holds all values")
    return Channel(n, {"size": n}, wider(inside * (n - chosen), (T - inside) * chosen))


def hadamard(c: Any) -> Channel:
    """A value passes half of the masks, which are equally likely."""
    n, inside = size(c, "size", 2), weight(c, "inside")
    return Channel(n, {"size": n}, wider(inside, T - inside))


def private_hash(c: Any) -> Channel:
    """The seed does not depend on the value."""
    n, response = size(c, "size", 2), keep_or_spread(c["response"])
    return Channel(n, {"symbols": response.inputs}, response.ratio)


def repeated_hash(c: Any) -> Channel:
    """Both responses keep the hash, or the second one returns to it; the other symbols are alike."""
    once, g = private_hash(c), keep_or_spread(c["again"]).inputs
    (keep, spread), (keeps, spreads) = ([weight(c[one], name) for name in ("keep", "spread")] for one in ("response", "again"))
    need(once.sizes["symbols"] == g, "the two responses have unequal symbols")
    kept = keep * keeps + (g - 1) * spread * spreads
    return once._replace(ratio=wider((g - 1) * kept, T * T - kept))


def orthogonal_hash(c: Any) -> Channel:
    """The seed does not depend on the value."""
    n, response, p, m = size(c, "size", 2), keep_or_spread(c["response"]), size(c, "prime", 2), size(c, "dimension")
    g = response.inputs
    need(p ** round(log(g, p)) == g and g ** (m - 1) < n <= g**m, "the symbols or the dimension do not fit the values")
    seeds = (g**m - 1) // (g - 1)
    return Channel(n, {"symbols": g, "seeds": seeds, "count": seeds * g}, response.ratio)


def levels(c: Any) -> Channel:
    """The level does not depend on the value."""
    responses = [built(part) for part in c["responses"]]
    blocks = [[-(-n // length) for n, length in zip(c["shape"], block, strict=True)] for block in c["blocks"]]
    need([*map(prod, blocks)] == [one.inputs for one in responses], "a level has other blocks than its response")
    sizes = {name: [one.sizes[name] for one in responses] for name in ("seeds", "symbols")}
    return Channel(prod(c["shape"]), sizes, max(one.ratio for one in responses))


def signed_bits(c: Any) -> Channel:
    """The other sign and nothing are rarer by one factor at the own key, so only the own sign counts."""
    n, same, opposite, spread = size(c, "keys"), *(weight(c, name) for name in ("same", "opposite", "spread"))
    nothing = T - same - opposite
    need(nothing > 0 and opposite < spread < T // 2, "the weights of signs are too large")
    need(opposite * (T - 2 * spread) == nothing * spread, "the other sign and nothing are not rarer by the same factor")
    return Channel(2 * n, {"size": 2 * n, "cells": 2}, Fraction(same, opposite))


def bin_bits(c: Any) -> Channel:
    """A report without the symbol has the weight `rest` times that of any key, one with it has `near` more for its number."""
    n, bins, width, spread, near = size(c, "keys"), size(c, "bins", 2), size(c, "width"), weight(c, "spread"), weight(c, "near")
    rest = T - width * near
    need(width <= bins and rest > 0 and (bins + width - 1) * spread < T, "the weights of numbers are too large")
    return Channel(n * bins, {"size": n * bins, "cells": bins}, 1 + Fraction(near * T, rest * spread))


def keep_or_window(c: Any) -> Channel:
    """Any other key gives a symbol the weight `anything`, its own key at most the highest of the window more."""
    n, anything, window = size(c, "keys", 2), weight(c, "anything"), dense_channel(c["window"])
    bins, highest = window.inputs, max(map(max, table(c["window"])))
    kept = T - n * bins * anything
    need(window.sizes["count"] == bins and kept > 0, "the weight of any symbol leaves no chance to keep the key")
    return Channel(n * bins, {"count": n * bins, "cells": bins}, Fraction(anything * T + kept * highest, anything * T))


def key_value(c: Any) -> Channel:
    """Only one member of a set is drawn, none more often than a padded set of this size allows."""
    n, padding, _, response = size(c, "keys"), size(c, "padding"), size(c, "steps"), built(c["response"])
    cells, ratio, symbols = response.sizes.get("cells", 2), response.ratio, response.inputs
    need(symbols == (n + padding) * cells, "the response does not have a symbol for each key and dummy")
    if "count" in response.sizes:  # else a report shows symbols of several keys
        ratio = 1 + (ratio - 1) * Fraction(cells * -(-T // (padding * cells)), T)
    return Channel(n, {"symbols": symbols, "size": symbols, "keys": n, "dummies": padding, "bins": cells}, ratio)


def prefixes(c: Any) -> Channel:
    """Level and seed do not depend on the string."""
    response, (length, _, count) = keep_or_spread(c["response"]), [size(c, name) for name in ("length", "letters", "levels")]
    return Channel(length, {"levels": count, "symbols": response.inputs}, response.ratio)


def rows(c: Any) -> Channel:
    """The columns are drawn independently of each other, so their ratios multiply."""
    parts = tuple(built(part) for part in c["parts"])
    ratios = [part.ratio for part in parts]
    ratio = None if None in ratios else prod(ratios, start=Fraction(1))
    return Channel(prod(part.inputs for part in parts), {"single": False}, ratio, parts=parts)


def one_of_rows(c: Any) -> Channel:
    """The column that is reported does not depend on the values."""
    whole = rows(c)
    ratio = None if whole.ratio is None else max(part.ratio for part in whole.parts)
    return whole._replace(sizes={"single": True}, ratio=ratio)


STRUCTURES = {
    make.__name__: make
    for make in (
        *(dense_channel, keep_or_spread, convolution, planar_noise, independent_bits, subsets, hadamard, private_hash),
        *(
            repeated_hash,
            orthogonal_hash,
            levels,
            signed_bits,
            bin_bits,
            keep_or_window,
            key_value,
            prefixes,
            rows,
            one_of_rows,
        ),
    )
}


def built(c: Any) -> Channel:
    """Return what a channel means."""
    need(c["structure"] in STRUCTURES, "the structure is not one of the closed list")
    return STRUCTURES[c["structure"]](c)


class Proved(NamedTuple):
    """What a channel keeps: its claim as text, epsilon, delta if the claim has one, else the largest ratio if there is one."""

    claim: str
    epsilon: Fraction
    delta: Fraction | None
    ratio: Fraction | None


@cache
def exp_below(x: Fraction) -> Fraction:
    """Return a lower bound of e^x, correct to about 58 digits."""
    quotient = Context(prec=60, rounding=ROUND_FLOOR).divide(Decimal(x.numerator), Decimal(x.denominator))
    return Fraction(Context(prec=60).next_minus(Context(prec=60).exp(quotient)))


def root_below(n: int) -> Fraction:
    """Return a lower bound of a square root, correct to 30 digits."""
    return Fraction(isqrt(n * 10**60), 10**30)


def proved(privacy: Any, channel: Channel, stated: Fraction | None = None) -> Proved:
    """Return what a channel keeps, after a check that it is within the claim."""
    epsilon, delta = Fraction(privacy["epsilon"]), None
    need(0 < epsilon <= 32, "epsilon is not above 0 and at most 32")
    if channel.parts:
        parts = [proved(*pair) for pair in zip(privacy["parts"], channel.parts, strict=True)]
        deltas, together = [part.delta for part in parts if part.delta is not None], max if channel.sizes["single"] else sum
        need(together(part.epsilon for part in parts) == epsilon, "the epsilon is not that of the columns together")
        delta = together(deltas) if deltas else None
    elif "delta" in privacy:
        delta = exact_delta(channel, exp_below(epsilon))
    if "delta" in privacy:
        claimed = Fraction(privacy["delta"])
        need(delta == Fraction(privacy["exact_delta"]), f"delta is {float(delta):.9g}, not that of the document")
        need(0 < claimed < 1 and delta <= claimed, f"delta is {float(delta):.9g}, above the claim")
        return Proved(f"({privacy['epsilon']}, {float(claimed):g})-LDP", epsilon, delta, None)
    if "metric" in privacy:
        ratio = by_distance(privacy["metric"], channel, epsilon, stated)
        return Proved(f"{privacy['epsilon']} per unit of distance", epsilon, None, ratio)
    need(delta is None and channel.ratio is not None, "some report rules a value out")
    need(bool(channel.parts) or channel.ratio <= exp_below(epsilon), "the largest ratio is above e^epsilon")
    return Proved(f"{privacy['epsilon']}-LDP", epsilon, None, channel.ratio)


def exact_delta(channel: Channel, grown: Fraction) -> Fraction:
    """Return the largest sum of max(0, P(y|x) - grown P(y|x')) over the reports y; doubles only select pairs."""
    need(channel.rows is not None, "a claim with delta needs reports that are positions")
    weights, limit, up, down = channel.rows(), float(grown), grown.numerator, grown.denominator
    shares = [[entry / T for entry in row] for row in weights]
    rough = [[sum(a - limit * b for a, b in zip(own, low, strict=True) if a > limit * b) for low in shares] for own in shares]
    least = max(map(max, rough)) - 2.0**-44
    close = [(x, o) for x, line in enumerate(rough) for o, one in enumerate(line) if one >= least]
    excess = (sum(max(0, a * down - up * b) for a, b in zip(weights[x], weights[o], strict=True)) for x, o in close)
    return Fraction(max(excess), down * T)


def by_distance(metric: Any, channel: Channel, epsilon: Fraction, stated: Fraction | None) -> Fraction | None:
    """Return the ratio that is closest to e^(epsilon * distance), after a check that none is above it; None on the plane."""
    n = (
        metric["count"]
        if metric["kind"] == "line"
        else len(metric["table"])
        if "table" in metric
        else metric["columns"] * metric["rows"]
    )
    need(n == channel.inputs, "the distances are those of other values")
    if metric["kind"] == "line":  # farther apart, distances add up and ratios multiply
        ratio = channel.steepest()
        need(ratio is not None and ratio <= exp_below(epsilon), "neighbouring values exceed e^epsilon")
        return ratio
    table_ = metric.get("table", ())
    need(
        all(row[x] == "0" and row[o] == table_[o][x] for x, row in enumerate(table_) for o in range(n)),
        "these are not distances",
    )
    if channel.plane is not None:
        need(channel.plane[2:] == (metric["columns"], metric["rows"]), "the grid is not that of the noise")
        return on_plane(*channel.plane[:2], epsilon * Fraction(metric["side"]))
    used = [column for column in zip(*channel.rows(), strict=True) if any(column)]
    need(all(map(all, used)), "some report rules a value out")
    weights = [*zip(*used, strict=True)]
    floats, best, top = [[*map(float, row)] for row in weights], [], 0.0
    for x, o in permutations(range(n), 2):
        distance, most = apart(metric, x, o), max(map(truediv, floats[x], floats[o]))
        limit = exp_below(epsilon * distance)
        steep = log(most) / distance if distance else 0.0
        if most > float(limit) * (1 - DOUBT) or steep >= top - DOUBT:
            ratio = largest_of(weights[x], weights[o])
            need(ratio <= limit, f"values {x} and {o} exceed e^(epsilon * distance)")
            best, top = [*best, (steep, ratio)], max(top, steep)
    return next((ratio for steep, ratio in best if ratio == stated and steep >= top - DOUBT), max(best)[1])


def largest_of(own: Row, other: Row) -> Fraction:
    """Return the largest of the quotients of two rows."""
    return max(map(Fraction, own, other))


def apart(metric: Any, x: int, o: int) -> Fraction:
    """Return the distance of two values, or a lower bound of it."""
    if "table" in metric:
        return Fraction(metric["table"][x][o])
    (row, column), (other_row, other_column) = divmod(x, metric["columns"]), divmod(o, metric["columns"])
    return Fraction(metric["side"]) * root_below((row - other_row) ** 2 + (column - other_column) ** 2)


def on_plane(noise: list[int], points: int, epsilon: Fraction) -> None:
    """Check noise on a grid of points against e^(epsilon max(1, distance)), in cells of so many points."""
    need(noise[-1] > 0, "some report rules a value out")
    square, last, limit = points**2, len(noise) - 1, exp_below(epsilon)
    tilted = [log(one) + float(epsilon) * n**0.5 / points for n, one in enumerate(noise)]
    highest = [*accumulate(tilted, max)]
    for n, one in enumerate(noise):  # the farthest point that is at most a cell farther
        low = noise[min(n + square + isqrt(4 * square * n), last)]
        need(one / low < float(limit) * (1 - DOUBT) or one <= limit * low, "the noise exceeds e^epsilon within a cell")
    for m in range(square, last + 1):
        behind = m + square - isqrt(4 * square * m - 1) - 1  # the farthest point that is at least a cell nearer
        for n in range(behind + 1) if highest[behind] > tilted[m] - DOUBT else ():
            if tilted[n] > tilted[m] - DOUBT:
                far = max(Fraction(0), root_below(m) - root_below(n) - Fraction(1, 10**29)) / points
                need(noise[n] <= exp_below(epsilon * far) * noise[m], "the noise exceeds e^(epsilon * distance)")


def count(values: Any) -> int:
    """Return the number of values of a domain, or of the keys or letters of a set or string."""
    kind = values["kind"]
    if kind == "bins":
        span, most = values["high"] - values["low"], values["width"] * values["count"]
        need(most - values["width"] < span <= most * (1 + 1e-9), "the bins do not fill their range")
    if kind in ("rows", "pairs"):
        return count(values["keys"]) if kind == "pairs" else prod(map(count, values["parts"]))
    if kind == "steps":
        return values["last"] // values["each"] + 1
    return len(values["values"]) if kind == "listed" else values["length"] if kind == "strings" else values["count"]


def fits(values: Any, reports: Any, channel: Channel) -> None:
    """Check that values and reports are as many as those of the channel."""
    need(count(values) == channel.inputs, "the values are not those of the channel")
    for name in ("null", "outside"):
        at = values.get(name)
        need(not isinstance(at, int) or 0 <= at < channel.inputs, "a rule names a value that there is not")
    for part in zip(values["parts"], reports["parts"], channel.parts, strict=True) if channel.parts else ():
        fits(*part)
    for name, held in reports.items():
        own = held if name not in {"values", "keys"} else count(held["values"] if name == "keys" else held)
        expected = channel.sizes.get("count" if name == "values" else name)
        need(name in ("form", "names", "parts") or own == expected, f"the reports have other {name} than the channel")


def verified(document: Any) -> Proved:
    """Return what the channel of a document keeps.

    Raises:
        No: if that is not what the document claims.

    """
    try:
        need((document["format"], document["version"]) == ("ldpsql.mechanism", 1), "this is not a document of version 1")
        stated, channel = document["ratio"] and Fraction(document["ratio"]), built(document["channel"])
        fits(document["values"], document["reports"], channel)
        found = proved(document["privacy"], channel, stated)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        raise No(f"the document cannot be read: {type(problem).__name__}") from None
    need(found.claim == document["claim"], f"the claim is {found.claim}, not that of the document")
    need(found.ratio == stated, f"the largest ratio is {found.ratio}, not that of the document")
    return found


def main() -> int:
    """Answer for a document, and for test vectors if there are any: ``ldpsql-verify city.json [vectors.jsonl]``."""
    from ldpsql_replay import replay  # noqa: PLC0415  # this file alone checks documents

    if len(sys.argv) not in (2, 3):
        print("usage: ldpsql-verify DOCUMENT.json [VECTORS.jsonl]", file=sys.stderr)
        return 2
    try:
        document, *vectors = (Path(name).read_text(encoding="utf-8") for name in sys.argv[1:])
        found = verified(document := json.loads(document))
        drawn = sum(replay(document, text.splitlines()) for text in vectors)
    except No as problem:
        print(f"no: {problem}")
        return 1
    except (OSError, ValueError) as problem:
        print(f"unreadable: {type(problem).__name__}", file=sys.stderr)
        return 2
    figure = f"exact delta {float(found.delta):.9g}" if found.delta is not None else "every pair of points within the claim"
    figure = figure if found.ratio is None else f"largest ratio {found.ratio} = e^{log(found.ratio):.12g}"
    print(f"yes: {document['mechanism']} keeps {found.claim}; {figure}; {drawn} vectors replayed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
