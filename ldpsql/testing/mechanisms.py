"""What every mechanism must show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from ldpsql.bulk.frames import key_value
from ldpsql.domains.domain import Domain
from ldpsql.errors import NotPrivate
from ldpsql.estimates.estimate import estimate_column
from ldpsql.mechanisms.base import CertifiedPairs, CertifiedValues, Mechanism, certify, certify_values
from ldpsql.mechanisms.key_value import KeyValueMechanism
from ldpsql.privacy.claims import Epsilon
from ldpsql.registry.constructors import constructor
from ldpsql.registry.registry import registry
from ldpsql.sql.attach import connect
from ldpsql.testing.channels import check_rows, check_sampler


def check_mechanism(mechanism: Mechanism, draws: int = 200_000) -> None:
    """Check certificate, sampler, round trips and the SQL functions of one mechanism, registered by a plugin or not.

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
    with _registered(type(mechanism)):
        _check_key_value_sql(known) if isinstance(known, CertifiedPairs) else _check_sql(certify_values(mechanism))
    _check_monotone(mechanism)


@contextmanager
def _registered(mechanism: type[Mechanism]) -> Iterator[None]:
    """Register a class within a ``with`` block, unless its plugin has: SQL gets a constructor for each registered class."""
    name, registered, constructors = mechanism.name, registry().mechanisms, registry().constructors
    assert registered.get(name, mechanism) is mechanism, f"another plugin offers a mechanism named {name}"
    if name in registered:
        yield
        return
    registered[name], constructors[name] = mechanism, constructor(name, mechanism, trusted=False)
    try:
        yield
    finally:
        del registered[name], constructors[name]


def _check_round_trips(mechanism: Mechanism) -> None:
    """Check that text and JSON give the same mechanism back."""
    again = json.loads(json.dumps(mechanism.to_json()))
    named = {name: value for name, value in again.items() if name != mechanism.kind}
    assert type(mechanism)(**named) == mechanism, "JSON does not give the mechanism back"
    assert hash(type(mechanism)(**named)) == hash(mechanism), "equal mechanisms have different hashes"
    if registry().mechanisms.get(mechanism.name) is type(mechanism):
        assert registry().mechanism(str(mechanism)) == mechanism, "its text does not give the mechanism back"


def _check_sql(known: CertifiedValues) -> None:
    """Check that SQL perturbs every value into the alphabet, and estimates as Python does, for every value of the domain."""
    mechanism, values = known.mechanism, known.values.values
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


def _check_key_value_sql(known: CertifiedPairs) -> None:
    """Check that SQL perturbs lists and maps of every type of key, and estimates frequencies and means as Python does."""
    mechanism, keys = known.mechanism, known.values.keys.values
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
