"""Privacy: what a certificate states is the largest ratio of the probabilities of a report, and shuffling reveals no more."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, permutations
from math import exp, log

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from ldpsql import certify, shuffled
from ldpsql.functions import registry
from ldpsql.mechanisms import ApproximateLdp, MetricLdp
from ldpsql.testing import check_mechanism
from tests.laws.subjects import ESTIMATES_ONLY, LISTED, MORE, SMALL, Floats, mechanism, reports


def test_the_laws_know_every_mechanism() -> None:
    assert SMALL.keys() | ESTIMATES_ONLY == registry().mechanisms.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, *MORE])
def test_every_mechanism_passes_the_conformance_suite(name: str) -> None:
    check_mechanism(mechanism(name), draws=20_000)


SAMPLED = {name for name in LISTED if getattr(mechanism(name), "padding", 1) > 1}  # a set of pairs has more than one symbol


@pytest.mark.parametrize("name", sorted({*LISTED} - SAMPLED))
def test_a_certificate_states_the_largest_ratio_of_the_probabilities_of_a_report(name: str) -> None:
    certificate, chances = certify(mechanism(name)).certificate, reports(name).chances
    assert all(sum(row) == 1 for row in chances)
    claim, pairs = certificate.claim, [*permutations(chances, 2)]
    if isinstance(claim, ApproximateLdp):
        above = exp(float(claim.epsilon.value))
        deltas = [sum(max(0.0, float(a) - above * float(b)) for a, b in zip(*rows, strict=True)) for rows in pairs]
        assert max(deltas) <= float(claim.delta) * (1 + 1e-9)
        return
    largest = log(max(a / b for rows in pairs for a, b in zip(*rows, strict=True) if a or b))
    assert certificate.epsilon <= float(claim.epsilon.value) * (1 + 1e-12)
    assert largest >= certificate.epsilon * (1 - 1e-12)  # values may be farther apart than a unit of distance
    assert isinstance(claim, MetricLdp) or certificate.epsilon == pytest.approx(largest, rel=1e-12)


# --- shuffled reports ---

SHUFFLED = [
    *("krr", "oue", "olh", "subset_selection", "encoding", "truncated_geometric", "loloha", "rappor", "hadamard_response"),
    *("matrix", "olh, private seeds", "olh, two symbols", "oue, two values", "krr, two values"),
]


def histograms(rows: Floats) -> dict[tuple[int, ...], float]:
    """Return the probability of each histogram of one report from each row of probabilities."""
    out: dict[tuple[int, ...], float] = {(0,) * rows.shape[1]: 1.0}
    for row in rows:
        following: Counter[tuple[int, ...]] = Counter()
        for counts, chance in out.items():
            for kind in np.flatnonzero(row):
                following[*counts[:kind], counts[kind] + 1, *counts[kind + 1 :]] += chance * row[kind]
        out = dict(following)
    return out


def laws(rows: Floats, others: tuple[int, ...]) -> Floats:
    """Return the probability of each histogram of one person's report and those of the others, given that person's value."""
    each = [histograms(rows[[value, *others]]) for value in range(len(rows))]
    return np.array([[law.get(counts, 0.0) for counts in {key for law in each for key in law}] for law in each])


def delta(law: Floats, epsilon: float) -> float:
    """Return the largest delta of two rows of probabilities."""
    return max(float(np.maximum(own - exp(epsilon) * other, 0).sum()) for own, other in permutations(law, 2))


@pytest.mark.parametrize("name", SHUFFLED)
@pytest.mark.parametrize(("people", "allowed"), [(2, 1e-3), (3, 0.05), (5, 0.05)])
def test_no_data_set_of_few_shuffled_reports_reveals_more_than_the_central_epsilon(
    name: str, people: int, allowed: float
) -> None:
    rows = np.array(reports(name).kinds(), dtype=np.float64)
    people = people if rows.size < 16 else min(people, 3)  # else there are very many histograms
    bound = shuffled(mechanism(name), reports=people, delta=allowed)
    assert 0 <= bound.epsilon_at_least <= bound.epsilon <= bound.local_epsilon * (1 + 1e-12)
    data = [laws(rows, others) for others in combinations_with_replacement(range(len(rows)), people - 1)]
    assert max(delta(law, bound.epsilon) for law in data) <= allowed
    less = bound.epsilon_at_least * (1 - 1e-9)
    assert not less or max(delta(law, less) for law in data) >= allowed * (1 - 1e-9)


@pytest.mark.parametrize("name", SHUFFLED)
@pytest.mark.parametrize(("people", "allowed"), [(2, 1e-3), (6, 0.05), (12, 0.02)])
def test_the_central_epsilon_is_that_of_the_pair_of_laws_of_its_theorem(name: str, people: int, allowed: float) -> None:
    """Three kinds of reports, of which everybody else sends each as rarely as the ratio and the total variation allow.

    Of two reports, it is that of the data that hide least.
    """
    chances = reports(name).chances
    pairs = [*permutations(chances, 2)]
    ratio = max(a / b for rows in pairs for a, b in zip(*rows, strict=True) if a or b)
    apart = max(sum((max(a - b, Fraction(0)) for a, b in zip(*rows, strict=True)), Fraction(0)) for rows in pairs)
    low = apart / (ratio - 1)
    common = 1 - (ratio + 1) * low
    kinds = [[ratio * low, low, common], [low, ratio * low, common], [low, low, common / ratio]]
    pair = [laws(np.array([[*map(float, row), float(1 - sum(row))] for row in kinds]), (2,) * (people - 1))[:2]]
    if len(chances[0]) == 2:
        rows, others = np.array(chances, dtype=np.float64), combinations_with_replacement(range(len(chances)), people - 1)
        pair = [laws(rows, values) for values in others]
    bound = shuffled(mechanism(name), reports=people, delta=allowed).epsilon

    def exceeds(epsilon: float) -> float:
        return max(delta(law, epsilon) for law in pair) - allowed

    exact = brentq(exceeds, 0.0, log(ratio)) if exceeds(0.0) > 0 else 0.0
    assert exact <= bound <= exact * (1 + 1e-4)


@pytest.mark.slow
def test_the_central_epsilon_of_many_people_bounds_that_of_their_histograms() -> None:
    """Numbers of reports that are taken together are taken at the end that bounds delta from above."""
    people, allowed = 2_000, 1e-6
    rows = np.array(reports("krr").kinds(), dtype=np.float64)  # two values, while everybody else has the third
    n, other = people - 1, rows[2]
    first = np.arange(binom.ppf(1e-18, n, other[0]), binom.isf(1e-18, n, other[0]) + 1)
    both = binom.pmf(first, n, other[0])[:, None] * binom.pmf(first, n - first[:, None], other[1] / (1 - other[0]))

    def exceeds(epsilon: float) -> float:
        law = np.zeros((2, *np.add(both.shape, 1)))
        for own, row in zip(law, rows[:2], strict=True):
            own[1:, :-1] += row[0] * both
            own[:-1, 1:] += row[1] * both
            own[:-1, :-1] += row[2] * both
        return delta(law, epsilon) - allowed

    bound = shuffled(mechanism("krr"), reports=people, delta=allowed)
    exact = brentq(exceeds, 0.0, bound.local_epsilon)
    assert bound.epsilon_at_least * (1 - 1e-6) <= exact <= bound.epsilon
