"""Key-value mechanisms: errors against theory, and maximum likelihood against inversion.

The part on real sparse data needs the public ratings of clothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import comb, exp
from time import process_time

import numpy as np
import polars as pl
from numpy.typing import NDArray

import ldpsql
from benchmarks.figures import Figure, against, at_most, public_file
from ldpsql import certify
from ldpsql.channels import KeyValue, Sets, SignedBits
from ldpsql.functions import registry
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Operator, observed, packed
from ldpsql.mechanisms.families import KeyValueMechanism
from ldpsql.pairs import Shown, estimate_key_value, shown
from ldpsql.testing import operator_of

RATINGS = "ecommerce_clothing_key_rating.parquet"
Floats = NDArray[np.float64]


def figures(quick: bool) -> list[Figure]:
    """Return all figures."""
    ratings = public_file(RATINGS)
    return [
        *accuracy(1300 if quick else 5000),
        *unary_against_randomised_response(5 if quick else 20),
        *([] if ratings is None else sparse(str(ratings), 2 if quick else 60)),
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


@dataclass(frozen=True)
class Crowd:
    """Which sets of keys there are, shape (sets, keys), how many users have each, and the value of each key on [-1, 1]."""

    held: NDArray[np.bool_]
    users: NDArray[np.int64]
    values: Floats

    @classmethod
    def of(cls, keys: int, padding: int, n: int) -> Crowd:
        """Return all sets of up to ``padding`` keys; each size is that of equally many users."""
        held = np.array([chosen for chosen in product((False, True), repeat=keys) if sum(chosen) <= padding])
        users = [n // (padding + 1) // comb(keys, size) for size in held.sum(axis=1).tolist()]
        return cls(held, np.array(users), np.linspace(0.8, -0.8, keys))

    def symbols(self, channel: KeyValue, rounds: int) -> NDArray[np.int64]:
        """Return for how many users each symbol was drawn, shape (rounds, symbols), with the chances of the channel."""
        rng = np.random.default_rng()
        out = np.zeros((rounds, channel.response.inputs), dtype=np.int64)
        for has, n in zip(self.held, self.users, strict=True):
            key = np.flatnonzero(has).astype(np.int32)
            weights = channel.chances(Sets(np.array([0, len(key)]), key, (self.values[key] + 1) / 2))
            out += rng.multinomial(n, np.array(weights, dtype=np.float64) / sum(weights), rounds)
        return out

    def theory(self, seen: Shown, padding: int) -> tuple[Floats, Floats]:
        """Return the variances of frequency and mean for these users: each report shows a key with its own probability."""
        weights, n, m = self.users / self.users.sum(), self.users.sum(), self.values
        drawn = self.held / np.maximum(self.held.sum(axis=1), padding)[:, None]
        p, score = seen.other + seen.lift * drawn, seen.apart * drawn * m
        of_share, of_score = weights @ (p * (1 - p)) / n, weights @ (p - score**2) / n
        both = weights @ (score * (1 - p)) / n
        of_mean = of_score / seen.apart**2 - 2 * m * both / seen.apart / seen.lift + m**2 * of_share / seen.lift**2
        return padding**2 * of_share / seen.lift**2, of_mean / (weights @ drawn) ** 2


def responses(mechanism: KeyValueMechanism, channel: KeyValue) -> tuple[Operator, Floats]:
    """Return the operator of all possible reports, and P(report | symbol) from the certified weights."""
    response = channel.response
    if not isinstance(response, SignedBits):
        operator = operator_of(mechanism)
        return operator, operator.matrix()
    signs = np.array(list(product((0, 1, 2), repeat=response.keys)), dtype=np.uint64)
    words = (signs << np.arange(0, response.inputs, 2, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)[:, None]
    supporting, other = observed(response, packed(response, words)), float(response.miss)
    chance = supporting.matrix() * np.where(signs > 0, other, 1 - 2 * other).prod(axis=1)
    return supporting, chance / chance.sum(axis=1, keepdims=True)


def papers(seen: Shown, drawn: Floats, n: int, padding: int) -> Floats:
    """Return the variance of a frequency by theorem 3, from the shares of the users for whom each key was drawn."""
    own, other = seen.other + seen.lift, seen.other
    return padding**2 * (other * (1 - other) + drawn * (own - other) * (1 - own - other)) / n / (own - other) ** 2


def ratios(name: str, epsilon: float, padding: int, n: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Return mean squared errors over variances, means of four keys, each with the standard error of the ratio."""
    mechanism, channel = made(name, epsilon, 4, padding)
    crowd, (operator, chance) = Crowd.of(4, padding, n), responses(mechanism, channel)
    symbols, rng = crowd.symbols(channel, rounds), np.random.default_rng()
    reports = sum(rng.multinomial(symbols[:, s], chance[s]) for s in range(len(chance)))
    seen = shown(mechanism, Likelihood(operator, np.asarray(reports, dtype=np.float64)))
    truth, sampled = crowd.users @ crowd.held / n, symbols.reshape(rounds, -1, 2).sum(axis=-1)[:, :4] / n
    frequencies, means = padding * seen.drawn[:, :4], seen.total[:, :4] / seen.drawn[:, :4]
    of_frequency, of_mean = crowd.theory(seen, padding)
    squares = {
        "frequencies / theory": (frequencies - truth) ** 2 / of_frequency,
        "means / theory": (means - crowd.values) ** 2 / of_mean,
        "shares of drawn pairs / paper": (frequencies - padding * sampled) ** 2 / papers(seen, sampled, n, padding),
        "frequencies / paper": (frequencies - truth) ** 2 / papers(seen, sampled, n, padding),
    }
    each = {what: square.mean(axis=1) for what, square in squares.items()}
    return {what: (float(mean.mean()), float(mean.std() / rounds**0.5)) for what, mean in each.items()}


def accuracy(rounds: int) -> list[Figure]:
    """Return mean squared errors as ratios to variances.

    The reports of each round are counts, drawn with the certified weights. So there can be enough rounds to distinguish a tenth
    from chance, and enough users for the means, which are quotients, to follow the delta method. The variance of the theory is
    around the truth. The paper's is around the shares of the drawn pairs: which of a user's pairs is drawn is chance, too, and
    with padding and a large epsilon it is most of the chance.
    """
    out, errors = [], []
    for padding, epsilon, name in product((1, 3), (0.5, 1, 2, 4), ("pckv_grr", "pckv_ue")):
        measured = ratios(name, epsilon, padding, 4_800_000, rounds)
        for what, (ratio, error) in measured.items():
            text = f"{name}, padding {padding}, epsilon {epsilon}: mean squared error of {what}"
            if what == "frequencies / paper":
                out.append(Figure(text, ratio))
                continue
            out.append(Figure(text, ratio, "x", "0.9 to 1.1 x", most=1.1, least=0.9))
            errors.append(error)
    return [*out, at_most("largest standard error of these ratios", max(errors), 0.02)]


def unary_against_randomised_response(rounds: int) -> list[Figure]:
    """Return the errors of both responses with long padding."""
    keys, padding, n = 20, 3, 400_000
    sets, held, _ = people(n, keys, padding)
    errors = []
    for name in ("pckv_ue", "pckv_grr"):
        mechanism, channel = made(name, 1, keys, padding)
        frequencies = [shown(mechanism, likelihood(mechanism, channel, sets)).drawn[0, :keys] * padding for _ in range(rounds)]
        errors.append(float(np.abs(np.array(frequencies) - held.mean(axis=0)).mean()))
    what = "pckv_grr / pckv_ue, 20 keys, padding 3, 400,000 users, epsilon 1: mean absolute error of frequencies"
    return [at_most(what, errors[1] / errors[0], 0.8)]


def sparse(path: str, rounds: int) -> list[Figure]:
    """Return what other estimators gain on the 50 most frequent of many keys with few ratings each."""
    ratings = pl.read_parquet(path)
    users = ratings.select(pl.concat_list(pl.struct("key", value=pl.col("rating").cast(pl.Float64)))).to_series()
    top = ratings.group_by("key").agg(pl.len(), pl.col("rating").mean()).sort("len", descending=True).head(50)
    keys = ratings["key"].unique().sort().to_list()
    estimators, out = ("inv", "ibu", "empirical_bayes"), []
    for name in ("pckv_grr", "pckv_ue"):
        mechanism = registry().mechanism({"mechanism": name, "epsilon": 1, "keys": keys, "low": 1, "high": 5})
        errors, slowest = np.empty((rounds, len(estimators), 2)), 0.0
        for i in range(rounds):
            reports = ldpsql.perturb(users, mechanism)
            for j, estimator in enumerate(estimators):
                start = process_time()
                estimates = ldpsql.key_value(reports, mechanism, estimator).to_arrow()
                slowest = max(slowest, process_time() - start)
                rows = pl.DataFrame(estimates).join(top, on="key")
                apart = rows["frequency"] - rows["len"] / len(ratings), rows["mean"] - rows["rating"]
                errors[i, j] = [np.mean(far.to_numpy() ** 2) for far in apart]
        where = f"{name}, {len(ratings):,} users, {len(keys):,} keys, epsilon 1"
        for j, estimator in list(enumerate(estimators))[1:]:
            ratio = errors[:, j].mean(axis=0) / errors[:, 0].mean(axis=0)
            error = (errors[:, j] - ratio * errors[:, 0]).std(axis=0) / rounds**0.5 / errors[:, 0].mean(axis=0)
            for what, value, doubt in zip(("frequencies", "means"), ratio.tolist(), error.tolist(), strict=True):
                text = f"{where}: {estimator} / unbiased, mean squared error of {what} (+- {doubt:.3f})"
                out.append(at_most(text, value, 0.9) if estimator == "ibu" else Figure(text, value))
        out.append(Figure(f"{where}: slowest estimate", slowest, "s"))
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


def check() -> Iterator[Figure]:
    """Yield the processor time of draws against plain NumPy on the same sets, and errors against theory."""
    sets, _, _ = people(100_000, 100, 3)
    rng = np.random.default_rng(7)
    for name, plain in (("pckv_grr", numpy_reference), ("pckv_ue", numpy_unary), ("pckv_pm", numpy_reference)):
        _, channel = made(name, 1, 100, 3)
        reference = partial(plain, rng, sets, 100, 3, 1.0)
        yield against(f"{name}, 100 keys, padding 3: draws against plain NumPy", partial(channel.draw, sets), reference, 3)
    for what, (ratio, _) in ratios("pckv_grr", 1.0, 3, 480_000, 2_000).items():
        yield Figure(f"pckv_grr, padding 3, epsilon 1: mean squared error of {what}", ratio)
