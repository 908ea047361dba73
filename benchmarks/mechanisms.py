"""Speed of perturbation, as ratios against the published libraries in the same run, one thread.

Needs ``pip install 'ldpsql[peers]'``. The peers perturb 50,000 values one by one, as their documentation shows; ldpsql
perturbs a column of a million, in Python, certified and exact.
The square wave has no peer on PyPI: it is compared with NumPy in doubles, which is not private, in two forms: boolean masks,
as published scripts do it, and without them, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import process_time

import numpy as np
import pyarrow as pa

import ldpsql
from benchmarks.figures import Figure, against, at_least, in_turns

ROWS = 1_000_000
PEERS = ("multi-freq-ldpy", "pure-ldp", "ldp-toolbox")


def square_wave(values: np.ndarray, *, masks: bool) -> np.ndarray:
    """Return the square wave mechanism at epsilon 1 in doubles: the inverse of its distribution function, in three parts."""
    grown = np.exp(1.0)
    b = 1 / (2 * grown * (grown - 2))
    low = 1 / (2 * b * grown + 1)
    high = low * grown
    uniform = np.random.default_rng().random(len(values))
    parts: list[Callable[[np.ndarray, np.ndarray], np.ndarray]] = [
        lambda u, _: u / low - b,
        lambda u, x: (u - low * x) / high + x - b,
        lambda u, x: (u - low * x - 2 * b * high) / low + x + b,
    ]
    first, last = uniform <= low * values, uniform > low * values + 2 * b * high
    if not masks:
        below, inside, above = (part(uniform, values) for part in parts)
        return np.where(first, below, np.where(last, above, inside))
    out = np.empty_like(values)
    for chosen, part in zip((first, ~first & ~last, last), parts, strict=True):
        out[chosen] = part(uniform[chosen], values[chosen])
    return out


def peers(k: int, kind: str) -> dict[str, Callable[[int], object]]:
    """Return how each library perturbs one value."""
    from ldp_toolbox.protocols.frequency.grr import GeneralizedRandomizedResponse  # noqa: PLC0415  # an extra
    from ldp_toolbox.protocols.frequency.lh import LocalHashing  # noqa: PLC0415  # an extra
    from ldp_toolbox.protocols.frequency.ue import UnaryEncoding  # noqa: PLC0415  # an extra
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client  # noqa: PLC0415  # an extra
    from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Client  # noqa: PLC0415  # an extra
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client  # noqa: PLC0415  # an extra
    from pure_ldp.frequency_oracles.direct_encoding import DEClient  # noqa: PLC0415  # an extra
    from pure_ldp.frequency_oracles.local_hashing import LHClient  # noqa: PLC0415  # an extra
    from pure_ldp.frequency_oracles.unary_encoding import UEClient  # noqa: PLC0415  # an extra

    if kind == "krr":
        pure, toolbox = DEClient(1.0, k), GeneralizedRandomizedResponse(k, 1.0)
        multi: Callable[[int], object] = lambda x: GRR_Client(x, k, 1.0)  # noqa: E731
    elif kind == "oue":
        pure, toolbox = UEClient(1.0, k, use_oue=True), UnaryEncoding(k, 1.0, optimal=True)
        multi = lambda x: UE_Client(x, k, 1.0, True)  # noqa: E731
    else:
        pure, toolbox = LHClient(1.0, k, use_olh=True), LocalHashing(k, 1.0, optimal=True)
        multi = lambda x: LH_Client(x, k, 1.0, True)  # noqa: E731
    return dict(zip(PEERS, (multi, lambda x: pure.privatise(x + 1), toolbox.obfuscate), strict=True))


def rate(work: Callable[[], object], rows: int) -> float:
    """Return millions of rows per second of processor time, after one run to warm up."""
    work()
    return rows / in_turns(work, repeats=3, clock=process_time)[0] / 1e6


def one_by_one(perturb: Callable[[int], object], values: list[int]) -> float:
    """Return the rate of a function of one value."""
    return rate(lambda: [perturb(x) for x in values], len(values))


def column(mechanism: str, values: np.ndarray) -> float:
    """Return the rate of ldpsql on a column."""
    arrow = pa.array(values)
    return rate(lambda: ldpsql.perturb(arrow, mechanism), len(values))


def figures(quick: bool) -> list[Figure]:
    """Return the speed of ldpsql as a ratio to that of the fastest peer."""
    out = []
    for name, k, kind, extra, asked in (
        ("k-RR", 100, "krr", "", 10),
        ("OUE", 100, "oue", "", 10),
        ("OLH orthogonal", 300, "olh", "", 20),
        ("OLH private", 300, "olh", ", seeds='private'", 20),
    ):
        values = np.random.default_rng(0).integers(0, k, ROWS)
        few = values[: 10_000 if quick else 50_000].tolist()
        fastest = max(one_by_one(perturb, few) for perturb in peers(k, kind).values())
        ours = column(f"{kind}(1, {list(range(k))}{extra})", values)
        out.append(at_least(f"{name}, K={k}, against the fastest of {', '.join(PEERS)}", ours / fastest, asked))
        out.append(Figure(f"{name}, K={k}", ours, "M rows/s"))
    numbers = np.random.default_rng(0).random(ROWS)
    exact = column("square_wave(1, 0, 1)", numbers)
    published, faster = (rate(partial(square_wave, numbers, masks=masks), ROWS) for masks in (True, False))
    return [
        *out,
        at_least("square wave against NumPy with masks, as published", exact / published, 1.5),
        Figure("square wave against NumPy without masks", exact / faster),
    ]


def check() -> Iterator[Figure]:
    """Yield the processor time of a column against plain NumPy, or against other work."""
    numbers, codes = np.random.default_rng(0).random(ROWS), pa.array(np.random.default_rng(0).integers(0, 100, ROWS))
    wave = partial(ldpsql.perturb, pa.array(numbers), "square_wave(1, 0, 1)")
    yield against("square wave against NumPy with masks", wave, partial(square_wave, numbers, masks=True))
    for text in ("krr(1, {})", "olh(1, {})", "olh(1, {}, seeds='private')", "oue(1, {})", "subset_selection(1, {})"):
        column = codes.slice(0, 50_000) if "subset" in text else codes
        mechanism = text.format(list(range(100)))
        yield against(
            f"{text.format('100 values')}, {len(column):,} rows", partial(ldpsql.perturb, column, mechanism), repeats=3
        )
