"""Key-value mechanisms: errors against theory, maximum likelihood against inversion, and speed against plain NumPy.

Run with the Parquet file of ratings (columns key and rating) as an argument for the part on real sparse data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from math import exp
from statistics import median
from time import process_time

import numpy as np
import polars as pl
from numpy.typing import NDArray

import ldpsql
from ldpsql import certify
from ldpsql.channels import KeyValue, Sets, SignedBits
from ldpsql.counting import operator_of
from ldpsql.likelihood import Likelihood
from ldpsql.operators import observed, packed
from ldpsql.pairs.estimation import estimate_key_value
from ldpsql.pairs.families import KeyValueMechanism
from ldpsql.pairs.shown import Shown, shown
from ldpsql.registry import registry

Floats = NDArray[np.float64]


def made(name: str, epsilon: float, keys: int, padding: int) -> tuple[KeyValueMechanism, KeyValue]:
    """Return a mechanism and its channel."""
    mechanism = registry().mechanism({"mechanism": name, "epsilon": epsilon, "keys": list(range(keys)), "padding": padding})
    channel = certify(mechanism).channel
    assert isinstance(mechanism, KeyValueMechanism)
    assert isinstance(channel, KeyValue)
    return mechanism, channel


def likelihood(mechanism: KeyValueMechanism, channel: KeyValue, sets: Sets) -> Likelihood:
    """Return the likelihood of one report of every set."""
    drawn, response = channel.draw(sets), channel.response
    if isinstance(response, SignedBits):
        words, number = np.unique(drawn, axis=0, return_counts=True)
        return Likelihood(observed(response, packed(response, words)), number[None].astype(np.float64))
    return Likelihood(operator_of(mechanism), np.bincount(drawn, minlength=response.inputs)[None].astype(np.float64))


def people(n: int, keys: int, padding: int) -> tuple[Sets, NDArray[np.bool_], Floats]:
    """Return users with up to ``padding`` pairs, as sets, as a table of who has what, and the value of each key."""
    rng = np.random.default_rng()
    held = rng.random((n, keys)).argsort(axis=1).argsort(axis=1) < rng.integers(0, padding + 1, n)[:, None]
    values = np.linspace(1, -1, keys)
    _, key = np.nonzero(held)
    ends = np.concatenate([[0], held.sum(axis=1).cumsum()])
    return Sets(ends, key.astype(np.int32), (values[key] + 1) / 2), held, values


def theory(seen: Shown, held: NDArray[np.bool_], values: Floats, padding: int) -> tuple[Floats, Floats]:
    """Variances of frequency and mean for these very users: every report shows a key with its own probability."""
    n = len(held)
    drawn = held / np.maximum(held.sum(axis=1), padding)[:, None]
    p, score = seen.other + seen.lift * drawn, seen.apart * drawn * values
    of_share, of_score = (p * (1 - p)).mean(axis=0) / n, (p - score**2).mean(axis=0) / n
    both = (score * (1 - p)).mean(axis=0) / n
    total, m = drawn.mean(axis=0), values
    of_mean = of_score / seen.apart**2 - 2 * m * both / seen.apart / seen.lift + m**2 * of_share / seen.lift**2
    return padding**2 * of_share / seen.lift**2, of_mean / total**2


def accuracy() -> None:
    """Print mean squared errors as ratios to the variances of the theory, which at epsilon 0.5 takes more users."""
    keys, rounds = 4, 300
    print(f"{keys} keys, {rounds} rounds: mean squared error / variance of the theory")
    print("| mechanism | padding | epsilon | frequency | frequency (paper's variance) | mean |\n|---|---|---|---|---|---|")
    for padding, epsilon in product((1, 3), (0.5, 1, 2, 4)):
        n = 200_000 if epsilon < 1 else 40_000
        sets, held, values = people(n, keys, padding)
        truth = held.mean(axis=0)
        for name in ("pckv_grr", "pckv_ue"):
            mechanism, channel = made(name, epsilon, keys, padding)
            found = [shown(mechanism, likelihood(mechanism, channel, sets)) for _ in range(rounds)]
            frequencies = np.array([padding * seen.drawn[0, :keys] for seen in found])
            means = np.array([seen.total[0, :keys] / seen.drawn[0, :keys] for seen in found])
            own, other = found[0].other + found[0].lift, found[0].other
            paper = (
                padding**2
                * (other * (1 - other) + truth / padding * (own - other) * (1 - own - other))
                / n
                / (own - other) ** 2
            )
            of_frequency, of_mean = theory(found[0], held, values, padding)
            square = ((frequencies - truth) ** 2).mean(axis=0)
            far = ((means - values) ** 2).mean(axis=0)
            ratios = [(square / of_frequency).mean(), (square / paper).mean(), (far / of_mean).mean()]
            print(f"| {name} | {padding} | {epsilon} | " + " | ".join(f"{ratio:.3f}" for ratio in ratios) + " |")


def unary_against_randomised_response() -> None:
    """Print the errors of both responses with long padding."""
    keys, padding, n = 20, 3, 400_000
    sets, held, _ = people(n, keys, padding)
    errors = {}
    for name in ("pckv_ue", "pckv_grr"):
        mechanism, channel = made(name, 1, keys, padding)
        found = [shown(mechanism, likelihood(mechanism, channel, sets)).drawn[0, :keys] * padding for _ in range(20)]
        errors[name] = np.abs(np.array(found) - held.mean(axis=0)).mean()
    print(
        f"\n20 keys, padding 3, 400,000 users, epsilon 1: mean absolute error of frequencies "
        f"{errors['pckv_ue']:.4f} (pckv_ue), {errors['pckv_grr']:.4f} (pckv_grr)"
    )


def sparse(path: str) -> None:
    """Print what other estimators gain on many keys with few ratings each."""
    ratings = pl.read_parquet(path)
    users = ratings.select(pl.concat_list(pl.struct("key", value=pl.col("rating").cast(pl.Float64)))).to_series()
    top = ratings.group_by("key").agg(pl.len(), pl.col("rating").mean()).sort("len", descending=True).head(50)
    keys = ratings["key"].unique().sort().to_list()
    print(f"\n{len(ratings):,} users, {len(keys):,} keys, epsilon 1, top 50 keys, 10 rounds: mean squared error / unbiased one")
    print("| mechanism | estimator | frequency | mean |\n|---|---|---|---|")
    for name, estimators in (("pckv_grr", ("ibu", "empirical_bayes")), ("pckv_ue", ("empirical_bayes",))):
        mechanism = registry().mechanism({"mechanism": name, "epsilon": 1, "keys": keys, "low": 1, "high": 5})
        errors: dict[str, list[tuple[float, float]]] = {}
        for _ in range(10 if name == "pckv_grr" else 2):
            reports = ldpsql.perturb(users, mechanism)
            for estimator in ("unbiased", *estimators):
                rows = pl.DataFrame(ldpsql.key_value(reports, mechanism, estimator).to_arrow()).join(top, on="key")
                far = (
                    ((rows["frequency"] - rows["len"] / len(ratings)) ** 2).mean(),
                    ((rows["mean"] - rows["rating"]) ** 2).mean(),
                )
                errors.setdefault(estimator, []).append(far)  # type: ignore[arg-type]
        base = np.mean(errors["unbiased"], axis=0)
        for estimator in estimators:
            ratio = np.mean(errors[estimator], axis=0) / base
            print(f"| {name} | {estimator} | {ratio[0]:.3f} | {ratio[1]:.3f} |")


def numpy_reference(
    rng: np.random.Generator, sets: Sets, keys: int, padding: int, epsilon: float
) -> tuple[NDArray[np.int64], Floats]:
    """PCKV-GRR with floating-point chances and a generator that is no secret: what one would write without care."""
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
    """Return PCKV-UE of the same kind: one number in {-1, 0, 1} for each key and dummy."""
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
    times = []
    for _ in range(5):
        start = process_time()
        run()
        times.append(process_time() - start)
    return median(times)


def speed() -> None:
    """Print rows a second, beside plain NumPy on the same sets."""
    keys, padding, n = 100, 3, 500_000
    sets, _, _ = people(n, keys, padding)
    rng = np.random.default_rng()
    one = seconds(lambda: numpy_reference(rng, sets, keys, padding, 1.0))
    many = seconds(lambda: numpy_unary(rng, sets, keys, padding, 1.0))
    print(f"\n{n:,} users, {keys} keys, padding {padding}: million rows/s")
    print("| mechanism | draw | plain NumPy | ratio | SQL, one thread |\n|---|---|---|---|---|")
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
            print(f"| {name} | {n / draw / 1e6:.2f} | {n / plain / 1e6:.2f} | {plain / draw:.2f} | {n / sql / 1e6:.2f} |")


def piecewise() -> None:
    """Print errors of means of rare keys by the sign and by the piecewise mechanism, with and without mixture reduction."""
    n, keys, rounds = 20_000, 4, 10
    rng = np.random.default_rng()
    shares = np.array([0.6, 0.3, 0.07, 0.03])
    key = rng.choice(keys, n, p=shares).astype(np.int32)
    values = np.clip(rng.normal(np.linspace(0.4, -0.4, keys)[key], 0.2), -1, 1)
    sets = Sets(np.arange(n + 1), key, (values + 1) / 2)
    truth = np.array([values[key == k].mean() for k in range(keys)])
    print(f"\n{n:,} users, {keys} keys of shares {shares.tolist()}, {rounds} rounds: mean squared error of the means")
    print("| epsilon | sign, unbiased | sign, ibu | sign, em_mr | piecewise, unbiased | piecewise, ibu | piecewise, em_mr |")
    print("|---|---|---|---|---|---|---|")
    for epsilon in (0.5, 1):
        cells = []
        for name in ("pckv_grr", "pckv_pm"):
            mechanism, channel = made(name, epsilon, keys, 1)
            drawn = [likelihood(mechanism, channel, sets) for _ in range(rounds)]
            for estimator in ("inv", "ibu", "em_mr"):
                means = [estimate_key_value(mechanism, one, registry().estimator(estimator)).means[0, :keys] for one in drawn]
                cells.append(((np.array(means) - truth) ** 2).mean())
        print(f"| {epsilon} | " + " | ".join(f"{cell:.4f}" for cell in cells) + " |")


if __name__ == "__main__":
    accuracy()
    unary_against_randomised_response()
    for path in sys.argv[1:]:
        sparse(path)
    speed()
    piecewise()
