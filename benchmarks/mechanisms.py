"""Speed of perturbation, as ratios against the published libraries in the same run, one thread.

``pip install 'ldpsql[peers]'``, then ``python benchmarks/mechanisms.py [THOUSANDS]``: the peers perturb so many thousand values
one by one, as their documentation shows (default 50); ldpsql perturbs a column of a million, in Python, certified and exact.
The square wave has no peer on PyPI: it is compared with NumPy in doubles, which is not private, in two forms: boolean masks,
as published scripts do it, and without them, which is faster. Writes ``benchmarks/mechanisms.json``.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import pyarrow as pa
from ldp_toolbox.protocols.frequency.grr import GeneralizedRandomizedResponse
from ldp_toolbox.protocols.frequency.lh import LocalHashing
from ldp_toolbox.protocols.frequency.ue import UnaryEncoding
from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Client
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client
from pure_ldp.frequency_oracles.direct_encoding import DEClient
from pure_ldp.frequency_oracles.local_hashing import LHClient
from pure_ldp.frequency_oracles.unary_encoding import UEClient

import ldpsql

REPEATS = 3
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
    """Return millions of rows a second, the median of a few runs after one to warm up."""
    work()
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return rows / median(times) / 1e6


def one_by_one(perturb: Callable[[int], object], values: list[int]) -> float:
    """Return the rate of a function of one value."""
    return rate(lambda: [perturb(x) for x in values], len(values))


def column(mechanism: str, values: np.ndarray) -> float:
    """Return the rate of ldpsql on a column."""
    arrow = pa.array(values)
    return rate(lambda: ldpsql.perturb(arrow, mechanism), len(values))


def main(thousands: int) -> None:
    """Measure, print and write."""
    results: dict[str, dict[str, float]] = {}
    for name, k, kind, extra in (
        ("k-RR", 100, "krr", ""),
        ("OUE", 100, "oue", ""),
        ("OLH orthogonal", 300, "olh", ""),
        ("OLH private", 300, "olh", ", seeds='private'"),
    ):
        values = np.random.default_rng(0).integers(0, k, ROWS)
        few = values[: thousands * 1000].tolist()
        found = {peer: one_by_one(perturb, few) for peer, perturb in peers(k, kind).items()}
        results[f"{name}, K={k}"] = {"ldpsql": column(f"{kind}(1, {list(range(k))}{extra})", values), **found}
    numbers = np.random.default_rng(0).random(ROWS)
    exact = column("square_wave(1, 0, 1)", numbers)
    for name, masks in (("masks", True), ("no masks", False)):
        plain = rate(lambda masks=masks: square_wave(numbers, masks=masks), ROWS)  # type: ignore[misc]
        results[f"SW, NumPy {name}"] = {"ldpsql": exact, "NumPy": plain}
    print(f"{'epsilon 1':<22} {'ldpsql M/s':>10} {'fastest peer M/s':>17} {'ratio':>7}")
    for name, figures in results.items():
        best = max(value for peer, value in figures.items() if peer != "ldpsql")
        figures["ratio"] = figures["ldpsql"] / best
        print(f"{name:<22} {figures['ldpsql']:>10.1f} {best:>17.3f} {figures['ratio']:>7.1f}")
    about = {"python": platform.python_version(), "machine": platform.machine(), **{p: version(p) for p in ("numpy", *PEERS)}}
    Path(__file__).with_suffix(".json").write_text(json.dumps({"about": about, "results": results}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
