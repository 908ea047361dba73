"""The conformance suite for mechanisms: what every one must show, built-in or third-party.

Call `check_mechanism` on a few instances in your plugin's tests; it raises `AssertionError` with the claim that failed.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from contextlib import suppress
from itertools import count

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Channel, Convolution, DenseChannel, SetChannel, TableChannel
from ldpsql.domain import Domain
from ldpsql.duck import connect
from ldpsql.errors import NotPrivate, PrivacyLeakWarning, UsageError
from ldpsql.estimation import estimate_column
from ldpsql.fit import log_fit_p_value
from ldpsql.mechanism import CertifiedMechanism, Mechanism, certify
from ldpsql.privacy import Epsilon
from ldpsql.randomness import Words
from ldpsql.registry import registry

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
_ALWAYS: dict[str, object] = {"delta": "0.001", "beta": "1", "bins": 16}


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
    _check_sql(known)
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
    seen = drawn > 0
    statistic = 2 * np.sum(drawn[seen] * np.log(drawn[seen] / (draws * expected[seen])))
    log_p = log_fit_p_value(np.array([statistic]), channel.outputs)[0]
    assert log_p > np.log(FALSE_ALARM), f"draws for value {value} do not follow the channel (ln p < {log_p:.0f})"


def _check_supports(channel: SetChannel, value: int, draws: int) -> None:
    """Check how often each value is supported, and each together with the true one, by Bernstein's inequality."""
    drawn = channel.draw(np.full(draws, value, dtype=np.int32))
    assert channel.possible(drawn).all(), "a report outside the alphabet was drawn"
    counts = np.zeros(channel.inputs)
    for part in np.array_split(drawn, 1 + draws * channel.inputs // _CELLS):
        counts += channel.supports(part).sum(axis=0)
    expected = np.full(channel.inputs, float(channel.miss))
    expected[value] = float(channel.hit)
    limit = np.log(2 * channel.inputs / FALSE_ALARM)
    room = limit / 3 + np.sqrt(limit**2 / 9 + 2 * limit * draws * expected * (1 - expected))
    assert (np.abs(counts - draws * expected) <= room).all(), f"draws for value {value} do not follow the channel"


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


def _check_monotone(mechanism: Mechanism) -> None:
    """Check that twice the epsilon never realises less."""
    told = getattr(mechanism, "epsilon", None)
    if isinstance(told, Epsilon) and 2 * told.value <= told.maximum:
        larger = type(mechanism)(**{**mechanism.given(), "epsilon": str(Epsilon(2 * told.value))})
        more, less = certify(larger).certificate, certify(mechanism).certificate
        assert more.epsilon >= less.epsilon - 1e-9, "a larger epsilon realises less"
