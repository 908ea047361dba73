"""The conformance suite for mechanisms and estimators: what every one must show, built-in or third-party.

Call `check_mechanism` on a few instances, and `check_estimator` on every estimator class, in your plugin's tests; they raise
`AssertionError` with the claim that failed.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from contextlib import suppress
from fractions import Fraction
from itertools import count
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import (
    TOTAL,
    Channel,
    Convolution,
    DenseChannel,
    Drawn,
    KeyValue,
    SetChannel,
    Sets,
    SignedBits,
    TableChannel,
)
from ldpsql.domain import Domain
from ldpsql.duck import connect
from ldpsql.errors import IllConditioned, NotApplicable, NotPrivate, PrivacyLeakWarning, UsageError
from ldpsql.estimation import estimate_column
from ldpsql.estimator import Estimator, Fit, Status
from ldpsql.fit import log_fit_p_value
from ldpsql.frames import key_value
from ldpsql.likelihood import Likelihood
from ldpsql.mechanism import CertifiedMechanism, Mechanism, certify
from ldpsql.operators import DenseOperator, Floats, KeepOrSpreadOperator, operator
from ldpsql.pairs.families import KeyValueMechanism
from ldpsql.privacy import Epsilon
from ldpsql.randomness import Words
from ldpsql.registry import registry
from ldpsql.uncertainty import intervals

Counts: TypeAlias = NDArray[np.int64]
FALSE_ALARM = 1e-9  # chance that a correct sampler is refused, for each value
_CELLS = 1 << 24  # supports that are unpacked at a time


def insecure_words_for_tests(seed: int) -> Words:
    """Return a source of words that repeats itself: for tests that must, and for nothing else.

    Whoever knows the seed undoes the noise, so it warns, and only samplers that are called directly accept it.
    """
    warnings.warn("a seeded source protects nobody: use it in tests only", PrivacyLeakWarning, stacklevel=2)
    blocks = count()

    def words(number: int) -> NDArray[np.uint64]:
        stream = hashlib.shake_256(f"{seed}/{next(blocks)}".encode())
        return np.frombuffer(stream.digest(8 * number), dtype=np.uint64)

    return words


# What the parameters of a mechanism could be, by their names: three mechanisms to try where the plugin's author names none.
_TRIALS: tuple[dict[str, object], ...] = (
    {"epsilon": "0.5", "domain": ["no", "yes"], "prior": [1, 2], "low": 0, "high": 6, "columns": 2, "rows": 2},
    {"epsilon": "1", "domain": list(range(6)), "prior": [1] * 6, "low": -3, "high": 20, "columns": 3, "rows": 2},
    {"epsilon": "4", "domain": [0.5, 1.5, 2.5, 3.5], "prior": [1] * 4, "low": 0, "high": 100, "columns": 2, "rows": 5},
)
_ALWAYS: dict[str, object] = {"keys": ["a", "b", "c"], "delta": "0.001", "beta": "1", "bins": 16}


def examples(mechanism: type[Mechanism]) -> list[Mechanism]:
    """Return a few mechanisms of a class to check it by; none where its parameters are of names that tell nothing.

    A class may refuse some, as one for two values refuses six.
    """
    needed = {p.name for p in mechanism.parameters() if p.required}
    made: list[Mechanism] = []
    for trial in ({**_ALWAYS, **trial} for trial in _TRIALS):
        for wanted in (needed, needed | {"columns"}):  # metric mechanisms take a grid as an option
            if wanted <= trial.keys() and wanted <= mechanism.model_fields.keys():
                with suppress(UsageError):
                    one = mechanism(**{name: trial[name] for name in wanted})
                    one.channel()
                    made.append(one)
                    break
    return made


def check_mechanism(mechanism: Mechanism, draws: int = 200_000) -> None:
    """Check certificate, sampler, round trips and the SQL functions of one mechanism.

    Raises:
        AssertionError: naming the claim that does not hold.

    """
    try:
        known = certify(mechanism)
    except NotPrivate as error:
        raise AssertionError(f"the channel does not keep its claim: {error}") from error
    check_rows(known.channel)
    check_sampler(known.channel, draws)
    _check_round_trips(mechanism)
    _check_key_value_sql(known) if isinstance(mechanism, KeyValueMechanism) else _check_sql(known)
    _check_monotone(mechanism)


def check_rows(channel: Channel) -> None:
    """Check that every row of weights sums to 2**64, and that alias tables give the weights back."""
    if not isinstance(channel, TableChannel):
        return
    weights = channel.weights().tolist()
    assert all(sum(row) == TOTAL for row in weights), "a row of the channel does not sum to one"
    if isinstance(channel, DenseChannel):
        assert channel.tables.weights(channel.outputs) == weights, "the alias tables do not give the weights back"
    if isinstance(channel, Convolution):
        assert channel.tables.weights(len(channel.noise)) == [channel.noise.tolist()], (
            "the alias table does not give the noise back"
        )


def check_sampler(channel: Channel, draws: int) -> None:
    """Check for up to 20 values that draws follow the channel."""
    if isinstance(channel, KeyValue):
        for held in _some_sets(channel):
            _check_set(channel, held, draws // 10)
        return
    for value in np.unique(np.linspace(0, channel.inputs - 1, 20).astype(np.int32)):
        if isinstance(channel, TableChannel):
            _check_reports(channel, int(value), draws)
        elif isinstance(channel, SetChannel):
            _check_supports(channel, int(value), draws)


def _check_reports(channel: TableChannel, value: int, draws: int) -> None:
    """Check the frequencies of the reports by a likelihood-ratio test."""
    drawn = np.bincount(channel.draw(np.full(draws, value, dtype=np.int32)), minlength=channel.outputs)
    assert len(drawn) == channel.outputs, "a report outside the alphabet was drawn"
    expected = channel.rows(np.array([value], dtype=np.int32))[0] / float(TOTAL)
    assert not drawn[expected == 0].any(), "a report of probability zero was drawn"
    _check_frequencies(drawn, expected, f"value {value}")


def _check_frequencies(drawn: Counts, expected: Floats, of: str) -> None:
    seen, draws = drawn > 0, drawn.sum()
    statistic = 2 * np.sum(drawn[seen] * np.log(drawn[seen] / (draws * expected[seen])))
    log_p = log_fit_p_value(np.array([statistic]), len(expected))[0]
    assert log_p > np.log(FALSE_ALARM), f"draws for {of} do not follow the channel (ln p < {log_p:.0f})"


def _check_supports(channel: SetChannel, value: int, draws: int) -> None:
    """Check how often each value is supported, and each together with the true one, by Bernstein's inequality."""
    drawn = channel.draw(np.full(draws, value, dtype=np.int32))
    assert channel.possible(drawn).all(), "a report outside the alphabet was drawn"
    expected = np.full(channel.inputs, float(channel.miss))
    expected[value] = float(channel.hit)
    _check_shown(channel, drawn, expected, f"value {value}")


def _check_shown(channel: SetChannel, drawn: Drawn, expected: Floats, of: str) -> None:
    counts, draws = np.zeros(channel.inputs), len(drawn)
    for part in np.array_split(drawn, 1 + draws * channel.inputs // _CELLS):
        counts += channel.supports(part).sum(axis=0)
    limit = np.log(2 * channel.inputs / FALSE_ALARM)
    room = limit / 3 + np.sqrt(limit**2 / 9 + 2 * limit * draws * expected * (1 - expected))
    assert (np.abs(counts - draws * expected) <= room).all(), f"draws for {of} do not follow the channel"


def _some_sets(channel: KeyValue) -> list[Sets]:
    """Return the empty set, one pair, as many as the padding, and all keys, with values over the whole range."""
    sizes = {0, 1, min(channel.padding, channel.keys), channel.keys}
    return [Sets(np.array([0, size]), np.arange(size, dtype=np.int32), np.linspace(1.0, 0.0, size)) for size in sorted(sizes)]


def _check_set(channel: KeyValue, held: Sets, draws: int) -> None:
    """Check that draws for one set follow what padding, sampling and response make of it, exactly."""
    response, size = channel.response, len(held.keys)
    chances = np.array([float(Fraction(weight, TOTAL**2)) for weight in channel.chances(held)])
    assert abs(chances.sum() - 1.0) < 1e-12, "the chances of the symbols of a set do not sum to one"
    many = Sets(np.arange(draws + 1) * size, np.tile(held.keys, draws), np.tile(held.places, draws))
    drawn = channel.draw(many)
    if isinstance(response, SignedBits):
        assert response.possible(drawn).all(), "a report outside the alphabet was drawn"
        swapped = chances.reshape(-1, 2)[:, ::-1].ravel()
        expected = chances * float(response.hit) + swapped * float(response.crossed)
        expected += (1 - chances - swapped) * float(response.miss)
        _check_shown(response, drawn, expected, f"a set of {size}")
    else:
        expected = operator(response).forward(chances[None])[0]
        _check_frequencies(np.bincount(drawn, minlength=len(expected)), expected, f"a set of {size}")


def _check_round_trips(mechanism: Mechanism) -> None:
    """Check that text and JSON give the same mechanism back."""
    again = json.loads(json.dumps(mechanism.to_json()))
    named = {name: value for name, value in again.items() if name != mechanism.kind}
    assert type(mechanism)(**named) == mechanism, "JSON does not give the mechanism back"
    assert hash(type(mechanism)(**named)) == hash(mechanism), "equal mechanisms have different hashes"
    if registry().mechanisms.get(mechanism.name) is type(mechanism):
        assert registry().mechanism(str(mechanism)) == mechanism, "its text does not give the mechanism back"


def _check_sql(known: CertifiedMechanism) -> None:
    """Check that SQL perturbs every value into the alphabet, and estimates as Python does, for every value of the domain."""
    mechanism, values = known.mechanism, known.values.values
    assert registry().mechanisms.get(mechanism.name) is type(mechanism), (
        f"{mechanism.name} is not in the registry: install the plugin and allow it with LDPSQL_PLUGINS"
    )
    given = {**mechanism.given(), **({"domain": values.to_pylist()} if "domain" in type(mechanism).model_fields else {})}
    named = ", ".join(f'"{name}" := ${name}' for name in given)
    people = pa.table({"x": values.take(pa.array(np.arange(max(4000, len(values))) % len(values)))})
    with connect() as con:
        con.execute(f"SET VARIABLE m = ldp.{mechanism.name}({named})", given)
        con.register("people", people)
        con.execute("CREATE TABLE reports AS SELECT ldp.perturb(x, getvariable('m')) AS r FROM people")
        drawn = con.sql("SELECT r FROM reports").to_arrow_table()["r"].combine_chunks()
        assert len(drawn) == len(people), "SQL did not draw one report for each value"
        assert not drawn.null_count, "SQL drew NULL"
        if isinstance(known.reports, Domain):
            assert not known.reports.locate(drawn).null_count, "SQL drew a report outside the alphabet"
        found = con.execute(
            "SELECT unnest(ldp.ibu(r, getvariable('m'), stop := 3, misfit := 'allow'), recursive := true) FROM reports"
        ).fetchall()
    assert [row[0] for row in found] == values.to_pylist(), "ldp.ibu does not return one row for each value"
    expected = estimate_column(drawn, mechanism, registry().estimator("ibu(stop=3, misfit='allow')")).estimate
    assert np.allclose([row[1] for row in found], expected, atol=1e-9), "SQL and Python do not estimate the same"


def _check_key_value_sql(known: CertifiedMechanism) -> None:
    """Check that SQL perturbs lists and maps of every type of key, and estimates frequencies and means as Python does."""
    mechanism, keys = known.mechanism, known.values.values
    assert isinstance(mechanism, KeyValueMechanism)
    given = {**mechanism.given(), "keys": keys.to_pylist()}
    named = ", ".join(f'"{name}" := ${name}' for name in given)
    people = pa.table({"key": keys.take(pa.array(np.arange(max(4000, len(keys))) % len(keys)))})
    with connect() as con:
        con.execute(f"SET VARIABLE m = ldp.{mechanism.name}({named})", given)
        con.register("people", people)
        held = (f"[{{'key': key, 'value': {mechanism.high}}}]", f"MAP {{key: {mechanism.low}}}")
        for pairs in held:
            con.execute(f"CREATE OR REPLACE TABLE reports AS SELECT ldp.perturb({pairs}, getvariable('m')) AS r FROM people")  # noqa: S608  # numbers
            drawn = con.sql("SELECT r FROM reports").to_arrow_table()["r"].combine_chunks()
            assert len(drawn) == len(people), "SQL did not draw one report for each set"
            assert not drawn.null_count, "SQL drew NULL"
            found = con.execute("SELECT unnest(ldp.key_value(r, getvariable('m')), recursive := true) FROM reports").fetchall()
            expected = key_value(drawn, mechanism).to_arrow()
            assert [row[0] for row in found] == keys.to_pylist(), "ldp.key_value does not return one row for each key"
            there = (
                np.array([row[1:] for row in found]),
                np.stack([column.to_numpy() for column in expected.columns[1:]], axis=1),
            )
            assert np.allclose(*there, atol=1e-9), "SQL and Python do not estimate the same"


def _check_monotone(mechanism: Mechanism) -> None:
    """Check that twice the epsilon never realises less."""
    told = getattr(mechanism, "epsilon", None)
    if isinstance(told, Epsilon) and 2 * told.value <= told.maximum:
        larger = type(mechanism)(**{**mechanism.given(), "epsilon": str(Epsilon(2 * told.value))})
        more, less = certify(larger).certificate, certify(mechanism).certificate
        assert more.epsilon >= less.epsilon - 1e-9, "a larger epsilon realises less"


def check_estimator(cls: type[Estimator]) -> None:
    """Check one estimator on problems with known answers and on degenerate ones.

    An estimator that says it is none for some likelihood (`NotApplicable`, `IllConditioned`) is not asked about that one.

    Raises:
        AssertionError: naming the claim that does not hold.

    """
    estimator = cls()
    for name, likelihood in _problems().items():
        fit = _fitted(estimator, likelihood)
        if fit is not None:
            _check_fit(estimator, likelihood, fit, name)
            _check_groups(estimator, likelihood, fit, name)
    _check_status(estimator)
    _check_consistent(estimator)
    _check_permuted(estimator)
    _check_options(cls)


def _problems() -> dict[str, Likelihood]:
    """Return likelihoods, two groups each: hand-solved, on the border, not unique, with empty, zero and equal columns, tiny."""
    coin, k = KeepOrSpreadOperator(2, 0.75, 0.25), np.arange(2)
    flat = np.array([[1 / 2, 1 / 3, 1 / 6], [1 / 3, 1 / 3, 1 / 3], [1 / 6, 1 / 3, 1 / 2]])
    steep = np.array([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.1, 0.3, 0.6]])
    zero = np.hstack([steep, np.zeros((3, 1))])
    twice = np.array([[0.6, 0.4], [0.6, 0.4], [0.1, 0.9]])
    tables = {
        "channel 7 of ElSalamouny and Palamidessi": (flat, [[1, 1, 1], [3, 4, 3]]),
        "a border optimum": (steep, [[90, 8, 2], [5, 5, 90]]),
        "a column that no value reports": (zero, [[30, 30, 40, 0], [10, 80, 10, 0]]),
        "two values that are alike": (twice, [[50, 50], [30, 70]]),
        "a report that nobody sent": (steep, [[50, 50, 0], [0, 0, 7]]),
        "one report": (steep, [[1, 0, 0], [0, 1, 0]]),
    }
    made = {
        name: Likelihood(DenseOperator(table), np.array(counts, dtype=np.float64)) for name, (table, counts) in tables.items()
    }
    made["values in order"] = Likelihood(DenseOperator(steep), np.array([[30.0, 50.0, 20.0], [10.0, 20.0, 70.0]]), layout=(3,))
    made["a coin"] = Likelihood(coin, np.array([[60.0, 40.0], [90.0, 10.0]]), named=k)
    return made | {"one report of a coin": Likelihood(coin, np.array([[1.0, 0.0], [0.0, 1.0]]), named=k)}


def _fitted(estimator: Estimator, likelihood: Likelihood) -> Fit | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return estimator.fit(likelihood)
    except (NotApplicable, IllConditioned):
        return None


def _check_fit(estimator: Estimator, likelihood: Likelihood, fit: Fit, problem: str) -> None:
    """Check shape, finiteness, that shares are a distribution where that is said, and errors."""
    groups = len(likelihood.counts)
    assert fit.theta.shape == (groups, likelihood.operator.inputs), f"{problem}: one share for each value and group is missing"
    assert len(fit.iterations) == len(fit.status) == groups, f"{problem}: steps or status of a group are missing"
    assert np.isfinite(fit.theta).all(), f"{problem}: a share is not finite"
    if estimator.distribution:
        assert (fit.theta >= 0).all(), f"{problem}: a share is negative"
        assert np.allclose(fit.theta.sum(axis=1), 1.0, atol=1e-9), f"{problem}: the shares do not sum to one"
    told = intervals(likelihood, fit, estimator.confidence)
    assert (told.std_error >= 0).all(), f"{problem}: a standard error is negative or not a number"
    assert ((told.low <= fit.theta) & (fit.theta <= told.high)).all(), f"{problem}: an interval does not hold its estimate"


def _check_groups(estimator: Estimator, likelihood: Likelihood, fit: Fit, problem: str) -> None:
    """Check that groups do not influence each other, and that the same counts give the same estimate."""
    for i in range(len(likelihood.counts)):
        alone = estimator.fit(likelihood.group(i)).theta[0]
        assert np.allclose(fit.theta[i], alone, atol=1e-9), f"{problem}: a group is estimated otherwise alone than together"


def _check_status(estimator: Estimator) -> None:
    """Check that only a maximum of the likelihood is called certified, and only an unbiased inversion an inversion."""
    coin = Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[60.0, 40.0], [90.0, 10.0]]), named=np.arange(2))
    fit = _fitted(estimator, coin)
    for i, status in enumerate(fit.status if fit else ()):
        if status is Status.CERTIFIED and fit is not None:
            gap = float(coin.group(i).gap(fit.theta[i : i + 1])[0])
            assert gap <= 1e-6, f"an estimate with a gap of {gap:.1e} is called certified"
            assert np.allclose(fit.theta[i], [[0.7, 0.3], [1.0, 0.0]][i], atol=1e-6), "the hand-solved coin comes out otherwise"


def _check_consistent(estimator: Estimator) -> None:
    """Check that with counts of a known distribution, times 1000 and more, the estimate comes to that distribution."""
    truth = np.array([[0.45, 0.3, 0.15, 0.1]])
    op = KeepOrSpreadOperator(4, 0.55, 0.15)
    fits = [_fitted(estimator, Likelihood(op, np.rint(op.forward(truth) * n), named=np.arange(4))) for n in (1e5, 1e8)]
    if any(fit is None or Status.BASELINE in fit.status for fit in fits):
        return
    small, large = (float(np.abs(fit.theta - truth).max()) for fit in fits if fit is not None)
    assert large <= max(1e-3, small), "with a thousand times as many reports the estimate does not come closer to the truth"
    assert large <= 0.01, "even 10^8 reports do not give the shares back"


def _check_permuted(estimator: Estimator) -> None:
    """Check that the order in which a domain without order is declared does not matter."""
    counts = np.array([[403.0, 171.0, 152.0, 149.0, 125.0]])
    order = np.array([3, 1, 4, 0, 2])
    op = KeepOrSpreadOperator(5, 0.4, 0.15)
    one, other = (_fitted(estimator, Likelihood(op, c, named=np.arange(5))) for c in (counts, counts[:, order]))
    if one is not None and other is not None and not estimator.ordered:
        assert np.allclose(one.theta[:, order], other.theta, atol=1e-6), "the order of the values changes the estimate"


def _check_options(cls: type[Estimator]) -> None:
    """Check that options are refused that do not exist or lie outside their range."""
    for options in ({"no_such_option": 1}, {"confidence": 1.5}, {"misfit": "perhaps"}):
        try:
            cls(**options)
        except UsageError:
            continue
        raise AssertionError(f"an option that means nothing is accepted: {next(iter(options))}")
