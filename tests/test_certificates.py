"""What is certified holds, and planted bugs are caught."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ldpsql import Channel, DenseChannel, Epsilon, KeepOrSpread, LdpError, Mechanism, NotPrivate, certify
from ldpsql.channels import Codes
from ldpsql.channels.randomness import Words, random_words
from ldpsql.functions import registry
from ldpsql.mechanisms import TOTAL, ApproximateLdp, PureLdp, exp_below, floor_mixing, log_ratio
from ldpsql.testing import certificate, check_mechanism, check_sampler

Krr: Any = registry().mechanisms["krr"]
Matrix: Any = registry().mechanisms["matrix"]


def krr(epsilon: object = 1, size: int = 4) -> Mechanism:
    mechanism: Mechanism = Krr(epsilon=epsilon, domain=[f"v{i}" for i in range(size)])
    return mechanism


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1", "2", "4", "8", "16", "32"])
@pytest.mark.parametrize("size", [2, 10, 100, 1000])
def test_realised_epsilon_is_never_above_the_claim_and_close_to_it(epsilon: str, size: int) -> None:
    proof = certify(krr(epsilon, size)).certificate
    assert isinstance(proof.claim, PureLdp)
    assert proof.ratio is not None
    assert proof.ratio <= proof.claim.limit
    assert proof.epsilon == pytest.approx(float(epsilon), rel=1e-5)


def test_the_witness_attains_the_ratio() -> None:
    certified = certify(Matrix(domain=[1, 2, 3], rows=[["1/2", "1/3", "1/6"], ["1/3", "1/3", "1/3"], ["1/6", "1/3", "1/2"]]))
    assert isinstance(certified.channel, DenseChannel)
    weights, proof = certified.channel.weights().tolist(), certified.certificate
    assert Fraction(weights[proof.value][proof.report], weights[proof.other][proof.report]) == proof.ratio
    assert proof.ratio == max(Fraction(a[y], b[y]) for a in weights for b in weights for y in range(3))


def test_a_declared_epsilon_below_that_of_the_matrix_is_refused() -> None:
    with pytest.raises(NotPrivate, match="above the claimed 1"):
        certify(Matrix(domain=[1, 2], rows=[[0.75, 0.25], [0.25, 0.75]], epsilon=1))


def test_a_report_that_rules_a_value_out_is_refused() -> None:
    with pytest.raises(NotPrivate, match="rules a value out"):
        certify(Matrix(domain=[1, 2], rows=[[1, 0], [0.5, 0.5]]))


@pytest.mark.parametrize(
    "rows", [[[0.5, 0.5]], [[0.6, 0.5], [0.5, 0.5]], [[1, "x"], [0, 1]], [[-0.5, 1.5]] * 2, [[1], [1]], "no"]
)
def test_rows_that_are_no_channel_are_refused(rows: object) -> None:
    with pytest.raises(LdpError) as caught:
        certify(Matrix(domain=[1, 2], rows=rows))
    assert caught.value.code == "LDP103"


# --- planted bugs: each is a real one of a published implementation (facts of the field, with the epsilon it realised) ---


def two_level(size: int, keep: float, lie: float) -> Channel:
    """A channel as somebody computing in doubles would build it: the rest of each row goes to the diagonal."""
    off = round(lie * TOTAL)
    weights = np.full((size, size), off, dtype=np.uint64)
    np.fill_diagonal(weights, TOTAL - (size - 1) * off)
    assert keep > lie
    return DenseChannel(weights)


def lie_from_all_values(size: int, e: float) -> Channel:
    keep = e / (e + size - 1)
    return two_level(size, keep + (1 - keep) / size, (1 - keep) / size)


def binary_keep_probability(size: int, e: float) -> Channel:
    keep = e / (e + 1)
    return two_level(size, keep, (1 - keep) / (size - 1))


def threshold_rounded_down(size: int, e: float) -> Channel:
    spread = int(TOTAL / (e + size - 1)) - 2**12
    return KeepOrSpread(size, TOTAL - (size - 1) * spread, spread)


def subclass_that_could_draw_anything(size: int, e: float) -> Channel:
    class Careless(KeepOrSpread):
        def draw(self, values: Codes, words: Words = random_words) -> Codes:
            return values

    honest = KeepOrSpread.within(size, exp_below(Fraction(1)))
    return Careless(honest.size, honest.keep, honest.spread)


@pytest.mark.parametrize(
    "bug", [lie_from_all_values, binary_keep_probability, threshold_rounded_down, subclass_that_could_draw_anything]
)
def test_a_planted_bug_in_the_channel_is_refused_before_anything_is_drawn(bug: Callable[[int, float], Channel]) -> None:
    class Planted(Krr):  # type: ignore[misc]  # the registry's class
        def channel(self) -> Channel:
            return bug(len(self.domain), float(np.e))

    planted = Planted(epsilon=1, domain=["a", "b", "c", "d"])
    with pytest.raises(NotPrivate):
        certify(planted)
    with pytest.raises(AssertionError, match="does not keep its claim"):
        check_mechanism(planted)


def always_truthful(self: KeepOrSpread, values: Codes, words: Words = random_words) -> Codes:
    return values


def fair_coin(self: KeepOrSpread, values: Codes, words: Words = random_words) -> Codes:
    word = words(len(values))
    return np.where(word < 2**63, values, (word % self.size).astype(np.int32))


def report_outside_the_alphabet(self: KeepOrSpread, values: Codes, words: Words = random_words) -> Codes:
    drawn = ORIGINAL_DRAW(self, values, words)
    drawn[-1] = self.size  # one of many: no frequency shows it
    return drawn


def seeded(self: KeepOrSpread, values: Codes, words: Words = random_words) -> Codes:
    return ORIGINAL_DRAW(self, values, lambda count: np.arange(count, dtype=np.uint64) * np.uint64(2**32))


ORIGINAL_DRAW = KeepOrSpread.draw


@pytest.mark.parametrize(
    ("bug", "claim"),
    [
        (always_truthful, "draws for value 0 do not follow the channel"),
        (fair_coin, "draws for value 0 do not follow the channel"),
        (report_outside_the_alphabet, "a report outside the alphabet was drawn"),
        (seeded, "draws for value 0 do not follow the channel"),
    ],
)
def test_a_planted_bug_in_the_sampler_turns_the_conformance_check_red(
    bug: object, claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeepOrSpread, "draw", bug)
    with pytest.raises(AssertionError, match=claim):
        check_sampler(certify(krr()).channel, 200_000)


@pytest.mark.parametrize(
    "text",
    [
        "krr(epsilon=0.1, domain=['a', 'b'])",
        "krr(epsilon=1, domain=[1, 2, 3], nulls='as:3')",
        "krr(epsilon=32, domain=[True, False])",
        "krr(epsilon=2, domain={'type': 'date32[day]', 'values': ['2020-01-01', '2020-02-01']})",
        "matrix(domain=['a', 'b'], rows=[['3/4', '1/4'], ['1/4', '3/4']])",
        "matrix(domain=['a', 'b'], rows=[[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], reports=['x', 'y', 'z'])",
    ],
)
def test_the_built_in_mechanisms_conform(text: str) -> None:
    check_mechanism(registry().mechanism(text))


# --- tables given as fractions ---


def by_definition(row: list[Fraction], floor: int) -> list[int]:
    """Floor mixing of one row, in fractions throughout: the largest remainders are rounded up."""
    exact = [(TOTAL - floor * len(row)) * p + floor for p in row]
    whole = [int(v) for v in exact]
    for y in sorted(range(len(row)), key=lambda y: exact[y] - whole[y], reverse=True)[: TOTAL - sum(whole)]:
        whole[y] += 1
    return whole


@pytest.mark.parametrize("largest", [9, 10**9, 10**40])
def test_floor_mixing_is_its_definition_in_fractions(largest: int) -> None:
    for _ in range(20):
        parts = [[random.randint(1, largest) for _ in range(7)] for _ in range(3)]  # no noise
        rows = [[Fraction(part, sum(row)) for part in row] for row in parts]
        weights = floor_mixing(rows, Fraction(1)).weights().tolist()
        floor = int(-(-(exp_below(Fraction(1)) + 1) // (exp_below(Fraction(1)) - 1)))
        assert weights == [by_definition(row, floor) for row in rows]


@pytest.mark.parametrize("tiny", [Fraction(1, 10**5), Fraction(1, 10**400), Fraction(1, 10**9) + Fraction(1, 10**30)])
def test_a_table_claims_the_largest_ratio_of_its_rows(tiny: Fraction) -> None:
    rows = [[tiny, 1 - tiny], [tiny * 3, 1 - tiny * 3], [tiny * Fraction(7, 2), 1 - tiny * Fraction(7, 2)]]
    table = registry().mechanism({"mechanism": "matrix", "domain": ["a", "b", "c"], "reports": ["y", "n"],
                                  "rows": [[str(p) for p in row] for row in rows]})  # fmt: skip
    claim = table.claim()
    assert isinstance(claim, PureLdp)
    assert float(claim.epsilon) == pytest.approx(log_ratio(Fraction(7, 2)), abs=2e-12)


def test_a_table_that_exceeds_its_claim_by_one_unit_is_refused() -> None:
    rows = [["0.3", "0.7"], ["0.1", "0.9"], ["0.3", "0.7"]]
    kept = certify(
        registry().mechanism({"mechanism": "matrix", "domain": [1, 2, 3], "reports": [1, 2], "rows": rows})
    ).certificate.claim.epsilon
    below = Epsilon(kept.value - Fraction(2, 10**12))
    exact = {"mechanism": "matrix", "domain": [1, 2, 3], "reports": [1, 2], "rows": rows}
    assert certify(registry().mechanism({**exact, "epsilon": str(kept)})).certificate.slack >= 0
    with pytest.raises(NotPrivate, match="above the claimed"):
        certify(registry().mechanism({**exact, "epsilon": str(below)}))


def test_a_ratio_is_certified_to_one_unit_of_its_weights() -> None:
    claim = PureLdp(Epsilon.parse("0.7"))
    most = int(claim.limit * 2**62)
    for weight in (most, most + 1):
        channel = DenseChannel(np.array([[weight, 2**64 - weight], [2**62, 2**64 - 2**62]], dtype=np.uint64))
        if weight == most:
            assert certificate(channel, claim).ratio == Fraction(most, 2**62)
        else:
            with pytest.raises(NotPrivate, match="above the claimed"):
                certificate(channel, claim)


def test_a_delta_is_certified_to_one_unit() -> None:
    """Two reports exceed the limit, so their shares of delta add up; the sums are computed again in fractions."""
    rows = [[6, 7, 1, 2], [1, 1, 7, 7], [4, 4, 4, 4]]
    channel, epsilon = (
        DenseChannel(np.array([[part << 60 for part in row] for row in rows], dtype=np.uint64)),
        Epsilon.parse("0.7"),
    )
    limit = ApproximateLdp(epsilon, Fraction(0)).limit
    over = [[max(Fraction(0), a - limit * b) for a, b in zip(x, y, strict=True)] for x in rows for y in rows]
    delta = max(sum(each, start=Fraction(0)) for each in over) / 16
    assert certificate(channel, ApproximateLdp(epsilon, delta)).delta == delta
    with pytest.raises(NotPrivate, match="above the claimed"):
        certificate(channel, ApproximateLdp(epsilon, delta - Fraction(1, 1 << 90)))


def test_one_column_of_several_keeps_the_largest_epsilon_of_all() -> None:
    columns = {"a": krr(1), "b": krr(3), "c": krr(2)}
    proof = certify(registry().mechanism({"mechanism": "one_of", "columns": columns})).certificate
    assert proof.ratio == certify(columns["b"]).certificate.ratio
    assert proof.epsilon == certify(columns["b"]).certificate.epsilon
