"""Key-value mechanisms: errors against theory, maximum likelihood against inversion, and speed against plain NumPy.

The part on real sparse data needs the public ratings of clothing. Errors of few rounds are themselves random: by a tenth.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import exp
from statistics import median
from time import process_time

import numpy as np
import polars as pl
from numpy.typing import NDArray

import ldpsql
from benchmarks.figures import Figure, at_most, public_file
from ldpsql import certify
from ldpsql.channels import KeyValue, Sets, SignedBits
from ldpsql.counting import operator_of
from ldpsql.likelihood import Likelihood
from ldpsql.operators import observed, packed
from ldpsql.pairs.estimation import estimate_key_value
from ldpsql.pairs.families import KeyValueMechanism
from ldpsql.pairs.shown import Shown, shown
from ldpsql.registry import registry

RATINGS = "ecommerce_clothing_key_rating.parquet"
CLOSE = 1.25  # of a variance to one found in some hundred rounds of a few keys
Floats = NDArray[np.float64]


def figures(quick: bool) -> list[Figure]:
    """Return all figures."""
    ratings = public_file(RATINGS)
    return [
        *accuracy(60 if quick else 300),
        *unary_against_randomised_response(2 if quick else 20),
        *([] if ratings is None or quick else sparse(str(ratings))),
        *speed(100_000 if quick else 500_000),
        *piecewise(3 if quick else 10),
    ]


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


def accuracy(rounds: int) -> list[Figure]:
    """Return mean squared errors as ratios to variances, of the theory and the paper's; at epsilon 0.5 it takes more users."""
    keys, out = 4, []
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
            what = f"{name}, padding {padding}, epsilon {epsilon}: mean squared error of"
            out += [
                at_most(f"{what} frequencies / variance of the theory", (square / of_frequency).mean(), CLOSE),
                Figure(f"{what} frequencies / variance of the paper", (square / paper).mean()),
                at_most(f"{what} means / variance of the theory", (far / of_mean).mean(), CLOSE),
            ]
    return out


def unary_against_randomised_response(rounds: int) -> list[Figure]:
    """Return the errors of both responses with long padding."""
    keys, padding, n = 20, 3, 400_000
    sets, held, _ = people(n, keys, padding)
    errors = []
    for name in ("pckv_ue", "pckv_grr"):
        mechanism, channel = made(name, 1, keys, padding)
        found = [shown(mechanism, likelihood(mechanism, channel, sets)).drawn[0, :keys] * padding for _ in range(rounds)]
        errors.append(float(np.abs(np.array(found) - held.mean(axis=0)).mean()))
    what = "pckv_ue / pckv_grr, 20 keys, padding 3, 400,000 users, epsilon 1: mean absolute error of frequencies"
    return [at_most(what, errors[0] / errors[1], 1.0)]


def sparse(path: str) -> list[Figure]:
    """Return what other estimators gain on many keys with few ratings each, the top 50 of which are looked at."""
    ratings = pl.read_parquet(path)
    users = ratings.select(pl.concat_list(pl.struct("key", value=pl.col("rating").cast(pl.Float64)))).to_series()
    top = ratings.group_by("key").agg(pl.len(), pl.col("rating").mean()).sort("len", descending=True).head(50)
    keys = ratings["key"].unique().sort().to_list()
    out = []
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
            what = f"{name}, {len(ratings):,} users, {len(keys):,} keys: {estimator} / unbiased, mean squared error of"
            out += [Figure(f"{what} frequencies", ratio[0]), Figure(f"{what} means", ratio[1])]
    return out


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


def speed(n: int) -> list[Figure]:
    """Return rows a second, beside plain NumPy on the same sets."""
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


def piecewise(rounds: int) -> list[Figure]:
    """Return errors of means of rare keys by the sign and by the piecewise mechanism, with and without mixture reduction."""
    n, keys, out = 20_000, 4, []
    rng = np.random.default_rng()
    shares = np.array([0.6, 0.3, 0.07, 0.03])
    key = rng.choice(keys, n, p=shares).astype(np.int32)
    values = np.clip(rng.normal(np.linspace(0.4, -0.4, keys)[key], 0.2), -1, 1)
    sets = Sets(np.arange(n + 1), key, (values + 1) / 2)
    truth = np.array([values[key == k].mean() for k in range(keys)])
    for epsilon in (0.5, 1):
        for name in ("pckv_grr", "pckv_pm"):
            mechanism, channel = made(name, epsilon, keys, 1)
            drawn = [likelihood(mechanism, channel, sets) for _ in range(rounds)]
            for estimator in ("inv", "ibu", "em_mr"):
                means = [estimate_key_value(mechanism, one, registry().estimator(estimator)).means[0, :keys] for one in drawn]
                what = f"{name}, {n:,} users, keys of shares {shares.tolist()}, epsilon {epsilon}, {estimator}"
                out.append(Figure(f"{what}: mean squared error of means", ((np.array(means) - truth) ** 2).mean(), ""))
    return out
