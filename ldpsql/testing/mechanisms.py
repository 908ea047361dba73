"""The checks of a mechanism."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import singledispatch

import numpy as np
import pyarrow as pa

from ldpsql.bulk.frames import heavy_hitters, key_value
from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.errors import InternalError, NotPrivate
from ldpsql.estimates.estimate import estimate_column
from ldpsql.inference.counting import possible
from ldpsql.mechanisms.base import (
    CertifiedMechanism,
    CertifiedPairs,
    CertifiedRow,
    CertifiedStrings,
    CertifiedValues,
    Mechanism,
    certify,
)
from ldpsql.mechanisms.key_value import KeyValueMechanism
from ldpsql.privacy.claims import Epsilon
from ldpsql.registry.constructors import constructor
from ldpsql.registry.registry import registry
from ldpsql.sql.attach import connect
from ldpsql.sql.named import sql_call
from ldpsql.testing.channels import check_rows, check_sampler


def check_mechanism(mechanism: Mechanism, draws: int = 200_000) -> None:
    """Check certificate, sampler, round trips and the SQL functions of one mechanism, registered by a plugin or not.

    Raises:
        AssertionError: naming the claim that does not hold.

    """
    try:
        certified = certify(mechanism)
    except NotPrivate as error:
        raise AssertionError(f"the channel does not keep its claim: {error}") from error
    check_rows(certified.channel)
    check_sampler(certified.channel, draws)
    _check_round_trips(mechanism)
    with _registered(type(mechanism)):
        _check_sql(certified)
    _check_monotone(mechanism)


@contextmanager
def _registered(mechanism: type[Mechanism]) -> Iterator[None]:
    """Register a class within a ``with`` block, unless its plugin did: SQL gets a constructor for each registered class."""
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
    read = json.loads(json.dumps(mechanism.to_json()))
    arguments = {name: value for name, value in read.items() if name != mechanism.kind}
    assert type(mechanism)(**arguments) == mechanism, "JSON does not give the mechanism back"
    assert hash(type(mechanism)(**arguments)) == hash(mechanism), "equal mechanisms have different hashes"
    if registry().mechanisms.get(mechanism.name) is type(mechanism):
        assert registry().mechanism(str(mechanism)) == mechanism, "its text does not give the mechanism back"


@singledispatch
def _check_sql(certified: CertifiedMechanism) -> None:
    """Check that SQL perturbs and estimates the same as Python."""
    raise InternalError(f"{type(certified).__name__} is not registered here", "register it next to the other kinds")


@_check_sql.register
def _(certified: CertifiedValues) -> None:
    """Check that SQL perturbs every value into the alphabet, and estimates the same as Python for every value."""
    if isinstance(certified.values, Product):
        _check_rows(certified, certified.values)
        return
    mechanism, values = certified.mechanism, certified.values.values
    arguments = {**mechanism.given(), **({"domain": values.to_pylist()} if "domain" in type(mechanism).model_fields else {})}
    people = pa.table({"x": values.take(pa.array(np.arange(max(4000, len(values))) % len(values)))})
    with connect() as con:
        con.execute(f"SET VARIABLE m = ldp.{mechanism.name}({_placeholders(arguments)})", arguments)
        con.register("people", people)
        con.execute("CREATE TABLE reports AS SELECT ldp.perturb(x, getvariable('m')) AS r FROM people")
        drawn = con.sql("SELECT r FROM reports").to_arrow_table()["r"].combine_chunks()
        assert len(drawn) == len(people), "SQL did not draw one report for each value"
        assert not drawn.null_count, "SQL drew NULL"
        if isinstance(certified.reports, Domain):
            assert not certified.reports.locate(drawn).null_count, "SQL drew a report outside the alphabet"
        rows = con.execute(
            "SELECT unnest(ldp.ibu(r, getvariable('m'), stop := 3, misfit := 'allow'), recursive := true) FROM reports"
        ).fetchall()
    assert [row[0] for row in rows] == values.to_pylist(), "ldp.ibu does not return one row for each value"
    expected = estimate_column(drawn, mechanism, registry().estimator("ibu(stop=3, misfit='allow')")).estimate
    assert np.allclose([row[1] for row in rows], expected, atol=1e-9), "SQL and Python do not estimate the same"


def _placeholders(arguments: Mapping[str, object]) -> str:
    """Return named arguments of a SQL function, each with its placeholder."""
    return ", ".join(f'"{name}" := ${name}' for name in arguments)


@_check_sql.register
def _(certified: CertifiedPairs) -> None:
    """Check that SQL perturbs lists and maps of every type of key, and estimates the same as Python."""
    mechanism, keys = certified.mechanism, certified.values.keys.values
    assert isinstance(mechanism, KeyValueMechanism)
    arguments = {**mechanism.given(), "keys": keys.to_pylist()}
    people = pa.table({"key": keys.take(pa.array(np.arange(max(4000, len(keys))) % len(keys)))})
    with connect() as con:
        con.execute(f"SET VARIABLE m = ldp.{mechanism.name}({_placeholders(arguments)})", arguments)
        con.register("people", people)
        held = (f"[{{'key': key, 'value': {mechanism.high}}}]", f"MAP {{key: {mechanism.low}}}")
        for pairs in held:
            con.execute(f"CREATE OR REPLACE TABLE reports AS SELECT ldp.perturb({pairs}, getvariable('m')) AS r FROM people")  # noqa: S608  # numbers
            drawn = con.sql("SELECT r FROM reports").to_arrow_table()["r"].combine_chunks()
            assert len(drawn) == len(people), "SQL did not draw one report for each set"
            assert not drawn.null_count, "SQL drew NULL"
            rows = con.execute("SELECT unnest(ldp.key_value(r, getvariable('m')), recursive := true) FROM reports").fetchall()
            expected = key_value(drawn, mechanism).to_arrow()
            assert [row[0] for row in rows] == keys.to_pylist(), "ldp.key_value does not return one row for each key"
            numbers = np.stack([column.to_numpy() for column in expected.columns[1:]], axis=1)
            computed = np.array([row[1:] for row in rows], dtype=np.float64)  # NULL becomes NaN
            assert np.allclose(computed, numbers, atol=1e-9, equal_nan=True), "SQL and Python do not estimate the same"


@_check_sql.register
def _(certified: CertifiedStrings) -> None:
    """Check that SQL perturbs strings, and finds the same frequent ones as Python."""
    mechanism, letters = certified.mechanism, [certified.channel.extreme(place) for place in (0, 1)]
    people = pa.table({"x": pa.array([certified.values.text(one) for one in letters] * 2000)})
    with connect() as con:
        con.execute(f"SET VARIABLE m = ldp.{mechanism.name}({_placeholders(mechanism.given())})", mechanism.given())
        con.register("people", people)
        con.execute("CREATE TABLE reports AS SELECT ldp.perturb(x, getvariable('m')) AS r FROM people")
        drawn = con.sql("SELECT r FROM reports").to_arrow_table()["r"].combine_chunks()
        assert len(drawn) == len(people), "SQL did not draw one report for each value"
        assert not drawn.null_count, "SQL drew NULL"
        query = "SELECT unnest(ldp.heavy_hitters(r, getvariable('m'), certain := false), recursive := true) FROM reports"
        rows = con.execute(query).fetchall()
    assert rows == heavy_hitters(drawn, mechanism, certain=False).rows(), "SQL and Python do not find the same"


@_check_sql.register
def _(certified: CertifiedRow) -> None:
    """Check that SQL perturbs every row into the alphabet, and estimates the same table as Python."""
    _check_rows(certified, certified.values)


def _check_rows(certified: CertifiedMechanism, table: Product) -> None:
    """Check a mechanism over the rows of a table."""
    mechanism, values = certified.mechanism, table.values
    people = pa.table({"x": values.take(pa.array(np.arange(max(4000, len(values))) % len(values)))})
    with connect() as con:
        con.register("people", people)
        con.execute(f"CREATE MACRO mechanism() AS {sql_call(mechanism, con)}")
        con.execute("CREATE TABLE reports AS SELECT ldp.perturb(x, mechanism()) AS r FROM people")
        drawn = con.sql("SELECT r FROM reports").to_arrow_table()["r"].combine_chunks()
        assert len(drawn) == len(people), "SQL did not draw one report for each row"
        assert not drawn.null_count, "SQL drew NULL"
        assert possible(mechanism, drawn).all(), "SQL drew a report outside the alphabet"
        query = "SELECT unnest(ldp.ibu(r, mechanism(), stop := 3, misfit := 'allow')) AS row FROM reports"
        rows = [row for (row,) in con.execute(query).fetchall()]
    assert [row["value"] for row in rows] == values.to_pylist(), "ldp.ibu does not return one row for each cell"
    expected = estimate_column(drawn, mechanism, registry().estimator("ibu(stop=3, misfit='allow')")).estimate
    assert np.allclose([row["estimate"] for row in rows], expected, atol=1e-9), "SQL and Python do not estimate the same"


def _check_monotone(mechanism: Mechanism) -> None:
    """Check that twice the epsilon never realises less."""
    epsilon = getattr(mechanism, "epsilon", None)
    if isinstance(epsilon, Epsilon) and 2 * epsilon.value <= epsilon.maximum:
        larger = mechanism.changed(epsilon=str(Epsilon(2 * epsilon.value)))
        more, less = certify(larger).certificate, certify(mechanism).certificate
        assert more.epsilon >= less.epsilon - 1e-9, "a larger epsilon realises less"
