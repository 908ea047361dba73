"""Draw again what ``ldpsql vectors`` drew, from the same random words, with the weights of a document."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import cache, reduce
from itertools import accumulate, chain
from math import prod
from typing import Any, TypeAlias

from ldpsql_verify import LOW, No, T, built, count, need, plane, table

Words: TypeAlias = Callable[[], int]
Draw: TypeAlias = Callable[[Any, Words], Any]


def replay(document: Any, lines: Iterable[str]) -> int:
    """Return how many vectors there are.

    Raises:
        No: if one has another report than its words draw, or other words than one draw takes.

    """
    draw, at = drawer(document["channel"]), -1
    for at, line in enumerate(lines):
        vector = json.loads(line)
        words, values = iter([int(word, 16) for word in vector["words"]]), document["values"]
        position = place(values, vector["value"])
        if values["kind"] == "rows" and document["reports"]["form"] != "row":  # rows are numbered
            position = reduce(
                lambda whole, part: whole * count(part[0]) + part[1], zip(values["parts"], position, strict=True), 0
            )
        try:
            report = shown(document["reports"], draw(position, words.__next__))
        except StopIteration:
            raise No(f"vector {at + 1} has too few words") from None
        need(report == vector["report"] and not list(words), f"vector {at + 1} has another report than its words draw")
    return at + 1


def place(values: Any, value: Any) -> Any:
    """Return the position of a value; of a row those of its columns, of a set those of its keys and where the numbers lie."""
    kind, low = values["kind"], values.get("low", 0)
    if kind == "pairs":
        span = values["high"] - low
        return [(place(values["keys"], pair["key"]), min((pair["value"] - low) / span, 1.0)) for pair in value]
    if kind == "rows":
        return [place(part, value[name]) for name, part in zip(values["names"], values["parts"], strict=True)]
    if kind == "moments":
        time = datetime.fromisoformat(value)
        since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return since // timedelta(milliseconds=values["unit"]) - values["first"]
    if kind == "steps":
        return round((value - low) / values["step"]) // values["each"]
    if kind == "bins":
        return int(min((value - low) / values["width"], values["count"] - 1))
    return values["values"].index(value) if kind == "listed" else value - values["first"]


def shown(reports: Any, drawn: Any) -> Any:
    """Return a report as it is written."""
    form, symbols, seeds = reports["form"], reports.get("symbols"), reports.get("seeds")
    if form == "row":
        each = zip(reports["names"], reports["parts"], drawn, strict=True)
        return {name: None if own is None else shown(part, own) for name, part, own in each}
    if form in {"sign", "bin"}:
        keys, (key, cell) = reports["keys"]["values"], divmod(drawn, reports.get("bins", 2))
        own = (value_at(keys, key), cell if form == "bin" else 1 - 2 * cell) if key < count(keys) else (None, None)
        return {"key": own[0], form: own[1]}
    if form == "node":
        level = next(at for at, end in enumerate(accumulate(map(prod, zip(seeds, symbols, strict=True)))) if drawn < end)
        drawn -= sum(map(prod, zip(seeds[:level], symbols[:level], strict=True)))
        return {"level": level, "seed": drawn // symbols[level], "y": drawn % symbols[level]}
    if form in {"hash", "listed_hash"}:
        seed, y = drawn if form == "hash" else divmod(drawn, symbols)
        return {"seed": str(seed) if form == "hash" else seed, "y": y}
    if form == "value":
        return value_at(reports["values"], drawn)
    return [str(drawn >> at & LOW) for at in range(0, reports["size"] if form == "set" else 1, 64)]


def value_at(values: Any, at: int) -> Any:
    """Return the value at a position."""
    if values["kind"] == "rows":
        row = {}
        for name, part in zip(values["names"][::-1], values["parts"][::-1], strict=True):
            at, row[name] = at // count(part), value_at(part, at % count(part))
        return row
    return values["values"][at] if values["kind"] == "listed" else values["first"] + at


def alias(weights: list[int]) -> Callable[[int], int]:
    """Return what each word draws from a row of weights: Walker's table, ACM TOMS 1977."""
    bits = max(1, (len(weights) - 1).bit_length())
    own, capacity = weights + [0] * ((1 << bits) - len(weights)), 1 << 64 - bits
    other = list(range(len(own)))
    small, large = ([at for at in other if (own[at] < capacity) is below] for below in (True, False))
    spare = list(accumulate(own[at] - capacity for at in large))
    filled = list(accumulate((capacity - own[at] for at in small), initial=0))
    for at, before in zip(small, filled, strict=False):
        other[at] = large[bisect_left(spare, before)]
    for j, at in enumerate(large):
        first = bisect_right(filled, spare[j], 1)
        own[at] = capacity - (filled[first] - spare[j]) if first < len(filled) else 0
        other[at] = large[j + 1] if first < len(filled) else at
    return lambda word: at if word & capacity - 1 < own[at := word >> 64 - bits] else other[at]


def random_bits(size: int, words: Words) -> int:
    """Return random bits of as many words as are needed, the first word lowest."""
    return sum([words() << at for at in range(0, size, 64)]) & (1 << size) - 1


def coins(weight: int, size: int, words: Words) -> int:
    """Return bits that are set with a weight out of 2^64: its digits, from the last nonzero one on, OR or AND random bits."""
    drawn = 0
    for at in range((weight & -weight).bit_length() - 1, 64):
        more = random_bits(size, words)
        drawn = drawn | more if weight >> at & 1 else drawn & more
    return drawn


def mixed(word: int) -> int:
    """Return the hash of a word: the finaliser of SplitMix64."""
    z = word + 0x9E3779B97F4A7C15 & LOW
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & LOW
    z = (z ^ z >> 27) * 0x94D049BB133111EB & LOW
    return z ^ z >> 31


def plus(a: int, b: int, p: int) -> int:
    """Return the sum of two elements of a field: digit by digit in base p."""
    return (a + b) % p + p * plus(a // p, b // p, p) if a or b else 0


def responds(c: Any, x: int, words: Words) -> int:
    """Draw how far to move on."""
    return (x + min(words() // int(c["spread"]), c["size"] - 1) + 1) % c["size"]


def numbers(c: Any) -> dict[str, Any]:
    """Return the parts of a channel, weights as numbers."""
    return {name: int(part) if isinstance(part, str) and part.isdecimal() else part for name, part in c.items()}


def from_table(c: Any) -> Draw:
    """Return draws from one alias table for each value."""
    rows = table(c)
    drawn = cache(lambda x: alias(rows[x]))
    return lambda x, words: drawn(x)(words())


def convolution(c: Any) -> Draw:
    """Return draws of noise that is added, up to the ends."""
    drawn, last = alias(table(c["noise"])[0]), c["inputs"] + 2 * c["margin"] - 1
    return lambda x, words: min(max(drawn(words()) + x - (c["inputs"] - 1), 0), last)


def planar_noise(c: Any) -> Draw:
    """Return draws of an offset, up to the borders, or of a cell."""
    quarter, columns, rows = plane(c)[2], c["columns"], c["rows"]
    down, across = len(quarter) - 1, len(quarter[0]) - 1
    width, moves = 2 * across + 1, (2 * across + 1) * (2 * down + 1)
    offsets = [quarter[abs(j)][abs(i)] for j in range(-down, down + 1) for i in range(-across, across + 1)]
    drawn = alias([*offsets, *chain.from_iterable(table(c["floor"]))])

    def draw(cell: int, words: Words) -> int:
        entry = drawn(words())
        j, i = cell // columns + entry // width - down, cell % columns + entry % width - across
        return entry - moves if entry >= moves else min(max(j, 0), rows - 1) * columns + min(max(i, 0), columns - 1)

    return draw


def independent_bits(c: Any) -> Draw:
    """Return draws of all bits as those of other values, then of the bit of the value."""
    n = numbers(c)
    return lambda x, words: coins(n["other"], n["size"], words) & ~(1 << x) | (words() < n["own"]) << x


def subsets(c: Any) -> Draw:
    """Return draws of whether the value is in the set, then of random keys, of which the smallest are chosen."""
    n, inside = c["size"], int(c["inside"])

    def draw(x: int, words: Words) -> int:
        held = words() < inside
        while True:
            keys, wanted = [words() for _ in range(n - 1)], c["chosen"] - held
            most = sorted(keys)[wanted - 1] if wanted else -1
            others = [at + (at >= x) for at, key in enumerate(keys) if key <= most]
            if len(others) == wanted:  # else keys are equal
                return sum(1 << at for at in others) | held << x

    return draw


def hadamard(c: Any) -> Draw:
    """Return draws of a mask, flipped at the lowest bit of the number of the value unless it passes as it should."""
    n, inside = c["size"], int(c["inside"])

    def draw(x: int, words: Words) -> int:
        mask, number = words() >> 64 - n.bit_length(), x + 1
        if ((mask & number).bit_count() % 2 == 0) != (words() < inside):
            mask ^= number & -number
        return sum(((mask & at + 1).bit_count() % 2 == 0) << at for at in range(n))

    return draw


def private_hash(c: Any) -> Draw:
    """Return draws of a seed, then of one response to the hash, or of two."""
    g = c["response"]["size"]

    def draw(x: int, words: Words) -> tuple[int, int]:
        seed = words()
        y = responds(c["response"], (mixed(mixed(seed) ^ x) >> 32) * g >> 32, words)
        return seed, responds(c["again"], y, words) if "again" in c else y

    return draw


def hashes(c: Any) -> tuple[Callable[[int, int], int], int, int]:
    """Return the hash of a value under a function of an orthogonal array, the number of functions, and of symbols."""
    if c["structure"] == "keep_or_spread":
        return lambda _, x: x, 1, c["size"]
    p, g, m = c["prime"], c["response"]["size"], c["dimension"]
    powers = [1]
    for _ in range(g - 2 if p < g else 0):  # the powers of x
        carry, power = divmod(powers[-1] * p, g)
        powers.append(reduce(lambda total, _: plus(total, c["power"], p), range(carry), power))
    logs, points = {power: at for at, power in enumerate(powers)}, sorted(range(g**m), key=mixed)[: c["size"]]

    def times(a: int, b: int) -> int:
        return a * b % p if p == g else powers[(logs[a] + logs[b]) % (g - 1)] if a and b else 0

    def hashed(seed: int, x: int) -> int:
        line = next(seed - (g**j - 1) // (g - 1) + g**j for j in range(m) if seed < (g ** (j + 1) - 1) // (g - 1))
        return reduce(lambda total, at: plus(total, times(line // g**at % g, points[x] // g**at % g), p), range(m), 0)

    return hashed, (g**m - 1) // (g - 1), g


def orthogonal_hash(c: Any) -> Draw:
    """Return draws of a function, then of the response to the hash."""
    hashed, seeds, g = hashes(c)

    def draw(x: int, words: Words) -> int:
        seed = min(words() // min(T // seeds, T - 1), seeds - 1)
        return seed * g + responds(c["response"], hashed(seed, x), words)

    return draw


def levels(c: Any) -> Draw:
    """Return draws of a level and a function, then of the response to the hash of the block."""
    shape, parts = c["shape"], [hashes(one) for one in c["responses"]]
    starts, most = list(accumulate((seeds * g for _, seeds, g in parts), initial=0)), max(seeds for _, seeds, _ in parts)

    def draw(x: int, words: Words) -> int:
        word, node = words(), 0
        level, half = (word & 0xFFFFFFFF) * len(parts) >> 32, word >> 32
        for at, (n, length) in enumerate(zip(shape, c["blocks"][level], strict=True)):
            node = node * -(-n // length) + x // prod(shape[at + 1 :]) % n // length
        hashed, seeds, g = parts[level]
        seed, rest = divmod(half * seeds, 1 << 32)
        if rest > (1 << 32) - 3 - 2 * most:  # near an edge, further bits decide
            seed = min((half << 32 | words() >> 32) // min(T // seeds, T - 1), seeds - 1)
        response = c["responses"][level]
        return starts[level] + seed * g + responds(response.get("response", response), hashed(seed, node), words)

    return draw


def signed_bits(c: Any) -> Draw:
    """Return draws of all keys as those of other symbols, then of the key of the symbol."""
    n, size = numbers(c), 2 * c["keys"]

    def draw(x: int, words: Words) -> int:
        signed = coins(2 * n["spread"], -(-size // 64) * 64, words) & T ** (-(-size // 64)) // 3
        above = signed & random_bits(-(-size // 64) * 64, words)
        word, own, other = words(), 1 << x, 1 << (x ^ 1)
        drawn = (above | (signed ^ above) << 1) & (1 << size) - 1 & ~(own | other)
        return drawn | (own if word < n["same"] else other if word < n["same"] + n["opposite"] else 0)

    return draw


def bin_bits(c: Any) -> Draw:
    """Return draws of the number that each key shows, or nothing; a number near the bin may replace that of its key."""
    n = numbers(c)
    bins, width = c["bins"], c["width"]
    places = bins + width - 1

    def draw(x: int, words: Words) -> int:
        shows, moved = [min(words() // n["spread"], places) for _ in range(c["keys"])], words() // n["near"]
        if moved < width:
            shows[x // bins] = x % bins + moved
        each = (range(max(0, y - width + 1), min(y + 1, bins) if y < places else 0) for y in shows)
        return sum(1 << key * bins + at for key, near in enumerate(each) for at in near)

    return draw


def keep_or_window(c: Any) -> Draw:
    """Return draws of any symbol, or of the key of the symbol and a bin near its own."""
    near, bins = drawer(c["window"]), len(c["window"]["rows"])

    def draw(x: int, words: Words) -> int:
        symbol, own = words() // int(c["anything"]), near(x % bins, words)
        return symbol if symbol < c["keys"] * bins else x // bins * bins + own

    return draw


def key_value(c: Any) -> Draw:
    """Return draws of a member of the padded set, then of its symbol or a dummy's, then of the response."""
    keys, padding, steps, respond = c["keys"], c["padding"], c["steps"], drawer(c["response"])
    cells, signed = built(c["response"]).sizes.get("cells", 2), c["response"]["structure"] in {"keep_or_spread", "signed_bits"}

    def draw(held: list[tuple[int, float]], words: Words) -> Any:
        member, second = words() % max(len(held), padding), words()
        if member >= len(held):
            return respond(keys * cells + second % (padding * cells), words)
        key, at = held[member]
        cell = int(second >= round(at * steps) * T // steps) if signed else int(min(at * cells, cells - 1))
        return respond(key * cells + cell, words)

    return draw


def rows(c: Any) -> Draw:
    """Return draws of each column, or of one of them."""
    parts, single = [drawer(part) for part in c["parts"]], c["structure"] == "one_of_rows"

    def draw(row: list[int], words: Words) -> list[Any]:
        only = words() % len(parts) if single else None
        return [part(row[at], words) if only in {None, at} else None for at, part in enumerate(parts)]

    return draw


def drawer(c: Any) -> Draw:
    """Return how a channel draws one report of the value at a position."""
    make = {
        "keep_or_spread": lambda c: lambda x, words: responds(c, x, words),
        "dense_channel": from_table,
        "repeated_hash": private_hash,
        "one_of_rows": rows,
        **{one.__name__: one for one in (convolution, planar_noise, independent_bits, subsets, hadamard, private_hash)},
        **{one.__name__: one for one in (orthogonal_hash, levels, signed_bits, bin_bits, keep_or_window, key_value, rows)},
    }.get(c["structure"])
    need(make is not None, "vectors are of listed values, of rows of them, and of sets of pairs")
    return make(c)
