"""Check a mechanism of ldpsql without ldpsql: does the channel in its document keep the claim in its document?

It reads what ``ldpsql describe`` wrote and recomputes the largest ratio P(report|value) / P(report|other), or delta, in whole
numbers. It draws again what ``ldpsql vectors`` drew, from the same random words. It needs the standard library only.
"""

import json
import sys
from collections.abc import Callable, Iterable
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cache, partial
from itertools import accumulate, chain, combinations, pairwise, product
from math import inf, isqrt, log, prod
from pathlib import Path
from typing import Any, TypeAlias

T, HALF = 1 << 64, 1 << 32  # the weights of the reports of a value are whole numbers that sum to T; a word is below T
DOUBT = 1e-11  # doubles discard what is farther from a limit than this, relatively; whole numbers decide about the rest
Row: TypeAlias = tuple[int, ...]
Words: TypeAlias = Callable[[], int]  # returns the next random word


class No(Exception):
    """The document does not keep its claim."""


def need(kept: bool, problem: str) -> None:
    """Answer no unless a condition holds."""
    if not kept:
        raise No(problem)


def read(part: Any) -> Any:
    """Return a channel with numbers instead of digits and tables with all weights: -n in a row repeats a weight n times."""
    if isinstance(part, dict) and "distinct" in part:
        weights, rows = read(part["distinct"]), [list[int]() for _ in part["rows"]]
        for row, numbers in zip(rows, part["rows"], strict=True):
            for number in numbers:
                row.extend([row[-1]] * -number if number < 0 else [weights[number]])
        table = tuple(map(tuple, rows))
        return {"structure": part["structure"], "table": table} if "structure" in part else table
    if isinstance(part, dict):
        return {name: own if name == "structure" else read(own) for name, own in part.items()}
    if isinstance(part, list):
        return tuple(map(read, part))
    need(int(part) >= 0, "a number of the channel is negative")
    return int(part)


def largest(columns: Iterable[Iterable[int]]) -> Fraction | float:
    """Return the largest ratio of two weights in a column; inf if one of them is not above 0."""
    ends = {(max(column), min(column)) for column in columns if any(column)}
    if min(low for _, low in ends) <= 0:
        return inf
    most = max(high / low for high, low in ends)
    return max(Fraction(high, low) for high, low in ends if high / low >= most * (1 - DOUBT))


def understood(c: Any) -> tuple[int, Fraction | float, Iterable[Row]]:  # noqa: PLR0912, PLR0915  # a table of structures
    """Return the number of values, the largest ratio (inf if a report rules a value out), and the rows of weights if listed."""
    sound, rows = True, ()
    match c:
        case {"structure": "dense_channel", "table": table}:
            n, rows, sound = len(table), table, all(sum(row) == T for row in table)
            ratio = largest(zip(*table, strict=True))
        case {"structure": "keep_or_spread", "size": n, "keep": keep, "spread": spread}:
            sound, ratio = keep + (n - 1) * spread == T, largest([(keep, spread)])
        case {"structure": "convolution", "inputs": n, "margin": margin, "noise": [noise]}:
            sound = len(noise) == 2 * (n + margin) - 1 and sum(noise) == T
            most, least, span = noise[1:-1], noise[1:-1], 1
            while span < n:  # a report between the ends has the weights of n noises in a row, an end those of tails
                step = min(span, n - span)
                most, least, span = [*map(max, most, most[step:])], [*map(min, least, least[step:])], span + step
            low, high, last = [*accumulate(noise)], [*accumulate(noise[::-1])], n + 2 * margin - 1
            ratio = largest([*zip(most, least, strict=True), low[:n], high[:n]])
            rows = ((low[at], *noise[at + 1 : at + last], high[n - 1 - at]) for at in reversed(range(n)))
        case {"structure": "planar_noise", "columns": columns, "rows": down}:
            n, sound, ratio = columns * down, sum(moves(**c)[1]) == T, inf  # `on_plane` decides
        case {"structure": "independent_bits", "size": n, "own": own, "other": other}:
            ratio = largest([(own * (T - other), other * (T - own))])
        case {"structure": "subsets", "size": n, "chosen": chosen, "inside": inside}:
            ratio = largest([(inside * (n - chosen), (T - inside) * chosen)])
        case {"structure": "hadamard", "size": n, "inside": inside}:
            ratio = largest([(inside, T - inside)])
        case {"structure": "private_hash" | "orthogonal_hash" | "prefixes", "response": response}:
            n, ratio = c.get("size") or c["length"], understood(response)[1]
        case {"structure": "repeated_hash", "size": n, "response": first, "again": again}:
            others = understood(first)[0] - 1
            kept = first["keep"] * again["keep"] + others * first["spread"] * again["spread"]
            sound, ratio = understood(again)[0] == others + 1, largest([(others * kept, T * T - kept)])
        case {"structure": "levels", "shape": shape, "blocks": blocks, "responses": responses}:
            counts, ratios, _ = zip(*map(understood, responses), strict=True)
            blocks = [prod(-(-side // length) for side, length in zip(shape, block, strict=True)) for block in blocks]
            n, sound, ratio = prod(shape), blocks == [*counts], max(ratios)
        case {"structure": "signed_bits", "keys": keys, "same": same, "opposite": opposite, "spread": spread}:
            n, nothing, ratio = 2 * keys, T - same - opposite, largest([(same, opposite)])
            sound = opposite * (T - 2 * spread) == nothing * spread and nothing > 0 and opposite < spread < T // 2
        case {"structure": "bin_bits", "keys": keys, "bins": bins, "width": width, "spread": spread, "near": near}:
            n, rest = keys * bins, (T - width * near) * spread
            sound, ratio = width <= bins and (bins + width - 1) * spread < T, largest([(rest + near * T, rest)])
        case {"structure": "keep_or_window", "keys": keys, "anything": anything, "window": window}:
            bins, highest = understood(window)[0], max(map(max, window["table"]))
            n, kept = keys * bins, T - keys * bins * anything
            sound = len(window["table"][0]) == bins and kept > 0
            ratio = largest([(anything * T + kept * highest, anything * T)])
        case {"structure": "key_value", "keys": n, "padding": padding, "response": response}:
            symbols, ratio, _ = understood(response)
            cells = symbols // (n + padding)
            sound = symbols == cells * (n + padding) and response.get("keys", n + padding) == n + padding
            if response["structure"] in {"keep_or_spread", "keep_or_window"}:  # a report shows one symbol
                ratio = 1 + (ratio - 1) * Fraction(cells * -(-T // (padding * cells)), T)
        case {"structure": "rows" | "one_of_rows", "parts": parts}:
            counts, ratios, _ = zip(*map(understood, parts), strict=True)
            n, ratio = prod(counts), prod(ratios) if c["structure"] == "rows" else max(ratios)
        case _:
            raise No("the structure is not one of the closed list")
    need(sound, f"the numbers of {c['structure']} do not belong together")
    return n, ratio, rows


def draw(c: Any, x: Any, words: Words) -> Any:  # noqa: PLR0911, PLR0912, PLR0915  # a table of structures
    """Return the report that random words draw for position x; of hashed values how far the response is from the hash."""
    match c:
        case {"structure": "dense_channel", "table": table}:
            return alias(table[x])(words())
        case {"structure": "keep_or_spread", "size": n, "spread": spread}:
            return (x + min(words() // spread, n - 1) + 1) % n
        case {"structure": "convolution", "inputs": n, "margin": margin, "noise": [noise]}:
            return min(max(alias(noise)(words()) + x - (n - 1), 0), n + 2 * margin - 1)
        case {"structure": "planar_noise", "columns": columns, "rows": rows}:
            offsets, weights = moves(**c)
            entry = alias(weights)(words())
            if entry >= len(offsets):
                return entry - len(offsets)
            row, column = x // columns + offsets[entry][0], x % columns + offsets[entry][1]
            return min(max(row, 0), rows - 1) * columns + min(max(column, 0), columns - 1)
        case {"structure": "independent_bits", "size": n, "own": own, "other": other}:
            return coins(other, n, words) & ~(1 << x) | (words() < own) << x
        case {"structure": "subsets", "size": n, "chosen": chosen, "inside": inside}:
            wanted, others = chosen - (held := words() < inside), None
            while others is None or len(others) != wanted:  # again if keys are equal
                keys = [words() for _ in range(n - 1)]
                smallest = set(sorted(keys)[:wanted])
                others = [at + (at >= x) for at, key in enumerate(keys) if key in smallest]
            return sum(1 << at for at in others) | held << x
        case {"structure": "hadamard", "size": n, "inside": inside}:
            mask, number = words() >> 64 - n.bit_length(), x + 1
            if (mask & number).bit_count() % 2 == (words() < inside):
                mask ^= number & -number
            return sum(1 << at for at in range(n) if (mask & at + 1).bit_count() % 2 == 0)
        case {"structure": "private_hash" | "repeated_hash", "response": response}:
            seed, moved = words(), draw(response, 0, words)
            return seed, draw(c["again"], moved, words) if "again" in c else moved
        case {"structure": "orthogonal_hash", "response": response}:
            return min(words() // (T // seeds(c)), seeds(c) - 1), draw(response, 0, words)
        case {"structure": "levels", "responses": responses}:
            half, rest = divmod(words(), HALF)
            level = rest * len(responses) // HALF
            count = seeds(responses[level])
            seed, rest = divmod(half * count, HALF)
            if rest > HALF - 3 - 2 * max(map(seeds, responses)):  # near an edge, further bits decide
                seed = min((half * HALF + words() // HALF) // (T // count), count - 1)
            return level, seed, draw(responses[level].get("response", responses[level]), 0, words)
        case {"structure": "signed_bits", "keys": keys, "same": same, "opposite": opposite, "spread": spread}:
            whole, own, other = -(-keys // 32) * 64, 1 << x, 1 << (x ^ 1)
            signs = coins(2 * spread, whole, words) & (1 << whole) // 3  # at the lower one of the two bits of a key
            plus, word = signs & coins(T // 2, whole, words), words()
            drawn = (plus | (signs ^ plus) << 1) % (1 << 2 * keys) & ~(own | other)
            return drawn | (own if word < same else other if word < same + opposite else 0)
        case {"structure": "bin_bits", "keys": keys, "bins": bins, "width": width, "spread": spread, "near": near}:
            places = bins + width - 1
            shows, moved = [min(words() // spread, places) for _ in range(keys)], words() // near
            if moved < width:
                shows[x // bins] = x % bins + moved
            ranges = [range(max(0, y - width + 1), min(y + 1, bins) if y < places else 0) for y in shows]
            return sum(1 << key * bins + at for key, each in enumerate(ranges) for at in each)
        case {"structure": "keep_or_window", "keys": keys, "anything": anything, "window": window}:
            symbol, bins = words() // anything, len(window["table"])
            near = x // bins * bins + draw(window, x % bins, words)
            return symbol if symbol < keys * bins else near
        case {"structure": "key_value", "keys": keys, "padding": padding, "steps": steps, "response": response}:
            cells, member, second = understood(response)[0] // (keys + padding), words() % max(len(x), padding), words()
            if member >= len(x):
                return draw(response, keys * cells + second % (padding * cells), words)
            key, at = x[member]
            signed = response["structure"] in {"keep_or_spread", "signed_bits"}
            cell = int(second >= round(at * steps) * T // steps) if signed else min(int(at * cells), cells - 1)
            return draw(response, key * cells + cell, words)
        case {"structure": "rows" | "one_of_rows", "parts": parts}:
            only = {words() % len(parts)} if c["structure"] == "one_of_rows" else set(range(len(parts)))
            return [draw(part, x[at], words) if at in only else None for at, part in enumerate(parts)]
    raise No("there are no vectors of this structure")


@cache
def alias(row: Row) -> Callable[[int], int]:
    """Return what each word draws from a row of weights: Walker's table, ACM TOMS 1977."""
    bits = max(1, (len(row) - 1).bit_length())
    own, capacity = [*row, *[0] * ((1 << bits) - len(row))], 1 << 64 - bits
    other, (giver, *givers) = [*range(len(own))], [at for at, weight in enumerate(row) if weight >= capacity]
    for poor in [at for at, weight in enumerate(own) if weight < capacity]:
        other[poor], own[giver] = giver, own[giver] - (capacity - own[poor])
        while own[giver] < capacity:  # it has given too much, and takes from the next one
            taker, giver = giver, givers.pop(0)
            other[taker], own[giver] = giver, own[giver] - (capacity - own[taker])
    return lambda word: at if word % capacity < own[at := word // capacity] else other[at]


def coins(weight: int, count: int, words: Words) -> int:
    """Return bits that are set with a weight out of 2^64: its digits, from the last nonzero one on, OR or AND random bits."""
    drawn = 0
    for at in range((weight & -weight).bit_length() - 1, 64):
        more = sum([words() << place for place in range(0, count, 64)]) % (1 << count)  # the first word lowest
        drawn = drawn | more if weight >> at & 1 else drawn & more
    return drawn


def seeds(c: Any) -> int:
    """Return the number of hash functions of an orthogonal array; 1 if values are not hashed."""
    return (c["response"]["size"] ** c["dimension"] - 1) // (c["response"]["size"] - 1) if "response" in c else 1


@cache
def moves(columns: int, rows: int, points: int, falling: Row, floor: Any, **_: str) -> tuple[list[tuple[int, int]], Row]:
    """Return how many rows and columns noise moves a cell, and the weights: of these, then of cells drawn for every value."""
    half, furthest = points // 2, isqrt(len(falling) - 1)
    down, across = (min(count - 1, (furthest + half) // points) for count in (rows, columns))
    quarter = [[0] * (across + 1) for _ in range(down + 1)]
    for y in range(-half, furthest + 1):
        for x in range(-half, isqrt(len(falling) - 1 - y * y) + 1):
            quarter[min((y + half) // points, down)][min((x + half) // points, across)] += falling[x * x + y * y]
    offsets = [*product(range(-down, down + 1), range(-across, across + 1))]
    return offsets, (*(quarter[abs(j)][abs(i)] for j, i in offsets), *chain.from_iterable(floor))


@cache
def exp_below(x: Fraction) -> Fraction:
    """Return a lower bound of e^x, correct to about 58 digits."""
    quotient = Context(prec=60, rounding=ROUND_FLOOR).divide(Decimal(x.numerator), Decimal(x.denominator))
    return Fraction(Context(prec=60).next_minus(Context(prec=60).exp(quotient)))


def root_below(n: int) -> Fraction:
    """Return a lower bound of a square root, correct to 30 digits."""
    return Fraction(isqrt(n * 10**60), 10**30)


def kept(privacy: Any, c: Any) -> tuple[Fraction, Fraction]:
    """Return the epsilon and the delta that a channel keeps, after a check that they are those of its claim."""
    epsilon, delta = Fraction(privacy["epsilon"]), Fraction(0)
    if "parts" in c:
        epsilons, deltas = zip(*(kept(*part) for part in zip(privacy["parts"], c["parts"], strict=True)), strict=True)
        together = sum if c["structure"] == "rows" else max
        need(together(epsilons) == epsilon, "the epsilon is not that of the columns together")
        delta = together(deltas)
    elif "delta" in privacy:
        delta = exact_delta(understood(c)[2], exp_below(epsilon))
    else:
        need(understood(c)[1] <= exp_below(epsilon), "the largest ratio is above e^epsilon")
    need(delta == Fraction(privacy.get("exact_delta", 0)), f"delta is {float(delta):.9g}, not that of the document")
    need(delta <= Fraction(privacy.get("delta", 0)) < 1, f"delta is {float(delta):.9g}, above the claim")
    return epsilon, delta


def exact_delta(rows: Iterable[Row], limit: Fraction) -> Fraction:
    """Return the largest sum of max(0, P(report|value) - limit P(report|other)) over the reports."""
    each = [([a * limit.denominator for a in row], [b * limit.numerator for b in row]) for row in rows]
    excess = (sum(a - b for a, b in zip(high, low, strict=True) if a > b) for (high, _), (_, low) in product(each, each))
    return Fraction(max(excess), T * limit.denominator)


def by_distance(metric: Any, c: Any, epsilon: Fraction, stated: Fraction | None) -> Fraction | None:
    """Return the ratio that is closest to e^(epsilon distance), after a check that none is above it; None on the plane."""
    pairs: Any = partial(combinations, r=2)
    match metric:
        case {"kind": "line", "count": n}:  # distances of neighbours add up and their ratios multiply, so neighbours decide
            pairs, apart = pairwise, lambda x, other: Fraction(other - x)
        case {"kind": "distances", "table": table}:
            n, apart = len(table), lambda x, other: min(Fraction(table[x][other]), Fraction(table[other][x]))
        case {"kind": "grid", "columns": columns, "rows": down, "side": side}:
            square = lambda x, other: (x // columns - other // columns) ** 2 + (x % columns - other % columns) ** 2  # noqa: E731
            n, apart = columns * down, lambda x, other: Fraction(side) * root_below(square(x, other))
    values, _, listed = understood(c)
    need(n == values, "the distances are those of other values")
    if c["structure"] == "planar_noise":
        need(columns == c["columns"], "the grid is not that of the noise")
        return on_plane(c, epsilon * Fraction(side))
    found = []
    for (x, own), (other, its) in pairs(enumerate(listed)):
        ratio, distance = largest(zip(own, its, strict=True)), apart(x, other)
        need(ratio <= exp_below(epsilon * distance), f"values {x} and {other} exceed e^(epsilon distance)")
        found.append((log(ratio) / distance if distance else 0.0, own, its))
    least = max(steep for steep, *_ in found) - DOUBT  # doubles cannot tell pairs apart that are so close
    close = [pair for steep, own, its in found if steep >= least for pair in ((own, its), (its, own))]
    ratios = {max(Fraction(high, low) for high, low in zip(*pair, strict=True) if low) for pair in close}
    return stated if stated in ratios else max(ratios)


def on_plane(c: Any, epsilon: Fraction) -> None:
    """Check noise on a grid of points against e^(epsilon max(1, distance)), in cells of so many points."""
    points, reach = c["points"], (isqrt(len(c["falling"]) - 1) + c["points"] // 2) // c["points"]
    share = [[points * (1 + reach * (at in {0, count - 1})) for at in range(count)] for count in (c["rows"], c["columns"])]
    cells = zip(chain.from_iterable(c["floor"]), product(*share), strict=True)
    spread = min(weight // (down * across) for weight, (down, across) in cells)  # over the points that go to a cell
    noise = [weight + spread for weight in (*c["falling"], 0)]
    need(spread > 0 and points % 2 == 1 and noise == sorted(noise, reverse=True), "the noise ends, or rises with the distance")
    square, last, limit = points**2, len(noise) - 1, exp_below(epsilon)
    for n, weight in enumerate(noise):  # the farthest point that is at most a cell farther
        ahead = noise[min(n + square + isqrt(4 * square * n), last)]
        need(weight * limit.denominator <= limit.numerator * ahead, "the noise exceeds e^epsilon within a cell")
    tilted = [log(weight) + float(epsilon) * n**0.5 / points for n, weight in enumerate(noise)]
    highest = [*accumulate(tilted, max)]
    for m in range(square, last + 1):
        behind = m + square - isqrt(4 * square * m - 1) - 1  # the farthest point that is at least a cell nearer
        close = [n for n in range(behind + 1) if tilted[n] > tilted[m] - DOUBT] if highest[behind] > tilted[m] - DOUBT else []
        for n in close:
            apart = max(Fraction(0), root_below(m) - root_below(n) - Fraction(1, 10**29)) / points
            need(noise[n] <= exp_below(epsilon * apart) * noise[m], "the noise exceeds e^(epsilon distance)")


def count(values: Any) -> int:
    """Return the number of values of a domain, or of the keys or letters of a set or string."""
    kind = values["kind"]
    if kind in {"rows", "pairs"}:
        return count(values["keys"]) if kind == "pairs" else prod(map(count, values["parts"]))
    if kind == "steps":
        return values["last"] // values["each"] + 1
    return len(values["values"]) if kind == "listed" else values["length"] if kind == "strings" else values["count"]


def verified(document: Any) -> str:
    """Return what the channel of a document keeps, with the figure; raise `No` if that is not what the document claims."""
    try:
        need((document["format"], document["version"]) == ("ldpsql.mechanism", 1), "this is not a document of version 1")
        c, stated, privacy = read(document["channel"]), document["ratio"] and Fraction(document["ratio"]), document["privacy"]
        (n, ratio, _), epsilon = understood(c), privacy["epsilon"]
        need(count(document["values"]) == n, "the values are not those of the channel")
        claim, figure = f"{epsilon}-LDP", "every pair of points within the claim"
        if "metric" in privacy:
            claim, ratio = f"{epsilon} per unit of distance", by_distance(privacy["metric"], c, Fraction(epsilon), stated)
        elif (delta := kept(privacy, c)[1]) or "delta" in privacy:
            claim, figure = f"({epsilon}, {float(Fraction(privacy['delta'])):g})-LDP", f"exact delta {float(delta):.9g}"
            ratio = None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        raise No(f"the document cannot be read: {type(problem).__name__}") from None
    need(claim == document["claim"], f"the claim is {claim}, not that of the document")
    need(ratio == stated, f"the largest ratio is {ratio}, not that of the document")
    return f"{claim}; {figure if ratio is None else f'largest ratio {ratio} = e^{log(ratio):.12g}'}"


def agrees(reports: Any, x: Any, drawn: Any, report: Any, written: dict[str, Any]) -> bool:
    """Return whether a report is the one drawn. Hashes and names are functions of what is public and drawn: always the same."""
    match reports:
        case {"form": "row", "names": names, "parts": parts}:
            each = [(part, x[at], drawn[at], report[names[at]]) for at, part in enumerate(parts)]
            return all(own[3] is None if own[2] is None else agrees(*own, written) for own in each)
        case {"form": "hash" | "listed_hash" | "node", "symbols": symbols}:
            *seed, moved = drawn
            hashed = (report["y"] - moved) % (symbols if type(symbols) is int else symbols[seed[0]])
            same = written.setdefault(f"{reports} {seed} {x}", hashed) == hashed
            return same and [*map(str, seed)] == [str(report[name]) for name in ("level", "seed") if name in report]
        case {"form": "set" | "symbol"}:
            return report == [str(drawn >> at & T - 1) for at in range(0, max(drawn.bit_length(), reports.get("size", 1)), 64)]
    return written.setdefault(f"{reports} {drawn}", report) == report


def replay(document: Any, lines: Iterable[str]) -> int:
    """Return how many vectors there are; raise `No` if one has another report than its words draw, or other words."""
    c, written, at = read(document["channel"]), {}, 0
    for at, line in enumerate(lines, 1):
        vector = json.loads(line)
        x, value, words = vector["position"], str(vector["value"]), iter([int(word, 16) for word in vector["words"]])
        try:
            drawn = draw(c, x, words.__next__)
        except StopIteration:
            raise No(f"vector {at} has too few words") from None
        same = agrees(document["reports"], x, drawn, vector["report"], written) and written.setdefault(value, x) == x
        need(same and not list(words), f"vector {at} has another report than its words draw")
    return at


def main() -> int:
    """Answer for a document, and for test vectors if there are any: ``ldpsql-verify city.json [vectors.jsonl]``."""
    try:
        document, *vectors = (Path(name).read_text(encoding="utf-8") for name in sys.argv[1:3])
        found = verified(document := json.loads(document))
        drawn = sum(replay(document, text.splitlines()) for text in vectors)
    except No as problem:
        print(f"no: {problem}")
        return 1
    except (OSError, ValueError) as problem:
        print(f"unreadable: {type(problem).__name__}; usage: ldpsql-verify DOCUMENT.json [VECTORS.jsonl]", file=sys.stderr)
        return 2
    print(f"yes: {document['mechanism']} keeps {found}; {drawn} vectors replayed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
