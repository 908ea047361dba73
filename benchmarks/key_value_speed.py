"""Speed of key-value mechanisms, as ratios to plain NumPy on the same sets, one thread."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from time import process_time

import numpy as np
from numpy.typing import NDArray

import ldpsql
from benchmarks.figures import Figure, in_turns
from benchmarks.key_value import Floats, made, people
from ldpsql.channels import Sets


def numpy_reference(
    rng: np.random.Generator, sets: Sets, keys: int, padding: int, epsilon: float
) -> tuple[NDArray[np.int64], Floats]:
    """Return PCKV-GRR with floating-point chances and a generator that is not secret, as a careless program would."""
    sizes = np.diff(sets.ends)
    lift, total = padding * (exp(epsilon) - 1), keys + padding
    slot = rng.integers(0, np.maximum(sizes, padding))
    own = slot < sizes
    at = np.where(own, sets.ends[:-1] + slot, 0)
    key = np.where(own, sets.keys[at], rng.integers(keys, total, len(sizes)))
    value = np.where(own, 2 * sets.places[at] - 1, 0.0)
    sign = np.where(rng.random(len(sizes)) < (1 + value) / 2, 1, -1)
    keep = rng.random(len(sizes)) < (lift + 2) / (lift + 2 * total)
    other = (key + rng.integers(1, total, len(sizes))) % total
    true = rng.random(len(sizes)) < (lift + 1) / (lift + 2)
    fair = np.where(rng.random(len(sizes)) < 0.5, 1, -1)
    return np.where(keep, key, other), np.where(keep, np.where(true, sign, -sign), fair)


def numpy_unary(rng: np.random.Generator, sets: Sets, keys: int, padding: int, epsilon: float) -> NDArray[np.int8]:
    """Return PCKV-UE in the same way: one number in {-1, 0, 1} for each key and dummy."""
    key, sign = numpy_reference(rng, sets, keys, padding, 32.0)  # nearly always the pair that was drawn
    users, total, chance = np.arange(len(sets)), keys + padding, 2 / (exp(epsilon) + 3)
    drawn = rng.random((len(sets), total), dtype=np.float32)
    out = (drawn < chance).astype(np.int8)
    out[drawn < chance / 2] = -1
    own = rng.random(len(sets))
    right = exp(epsilon) / (exp(epsilon) + 1) / 2
    out[users, key] = np.where(own < right, sign, np.where(own < 0.5, -sign, 0))
    return out


def seconds(run: Callable[[], object]) -> float:
    """Return the median processor time of five runs."""
    return in_turns(run, clock=process_time)[0]


def figures(quick: bool) -> list[Figure]:
    """Return rows per second, and ratios to plain NumPy on the same sets."""
    n = 100_000 if quick else 500_000
    keys, padding, out = 100, 3, []
    sets, _, _ = people(n, keys, padding)
    rng = np.random.default_rng()
    one = seconds(lambda: numpy_reference(rng, sets, keys, padding, 1.0))
    many = seconds(lambda: numpy_unary(rng, sets, keys, padding, 1.0))
    with ldpsql.connect() as con:
        con.execute("SET threads = 1")
        con.execute(
            f"CREATE TABLE users AS SELECT MAP {{i % {keys}: i % 3 - 1, (i + 7) % {keys}: 0}} AS pairs FROM range({n}) t(i)"
        )
        for name in ("pckv_grr", "pckv_ue", "pckv_pm"):
            _, channel = made(name, 1, keys, padding)
            con.execute(f"CREATE OR REPLACE MACRO m() AS ldp.{name}(1, range({keys}), padding := {padding})")
            draw = seconds(lambda channel=channel: channel.draw(sets))
            sql = seconds(lambda: con.execute("CREATE OR REPLACE TABLE reports AS SELECT ldp.perturb(pairs, m()) FROM users"))
            plain = many if name == "pckv_ue" else one
            what = f"{name}, {keys} keys, padding {padding}"
            out += [
                Figure(f"{what}: draws", n / draw / 1e6, "M rows/s"),
                Figure(f"{what}: draws against plain NumPy", plain / draw),
                Figure(f"{what}: SQL in one thread", n / sql / 1e6, "M rows/s"),
            ]
    return out
