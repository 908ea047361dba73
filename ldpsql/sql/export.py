"""Estimators of a declared mechanism as pure SQL, for clients of DuckDB without Python: its shell, Node, Java.

Perturbing is not exported: it needs the certified channel and the cryptographic source, which SQL does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from ldpsql import __version__
from ldpsql.channels import TOTAL, KeepOrSpread, SetChannel, TableChannel
from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.errors import InvalidParameter
from ldpsql.inference.counting import operator_of
from ldpsql.inference.operators import Floats
from ldpsql.inference.operators.base import MAX_CONDITION
from ldpsql.inference.score_intervals import deviations
from ldpsql.mechanisms.base import CertifiedValues, Mechanism, certify_values
from ldpsql.names import IBU, INV, INV_N, INV_P
from ldpsql.quoting import text_literal
from ldpsql.reports import SetReports
from ldpsql.sql.named import list_literal

MAX_PROBABILITIES = 1 << 16
STORAGE_VERSION = "v1.2.0"  # which DuckDB 1.5 opens as well
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}", re.ASCII)


class Exported(NamedTuple):
    """An estimator in SQL: its name, its body in terms of ``counts``, and the name of its option, if it has one."""

    method: str
    body: str
    option: str = ""


def macros(mechanism: Mechanism, name: str) -> str:
    """Return SQL that creates ``NAME_inv``, ``NAME_inv_n``, ``NAME_inv_p`` and ``NAME_ibu`` over reports, and over counts.

    They are aggregates and return a list of structs: value and estimate, for k-RR also std_error, low and high. ``NAME_ibu``
    is the maximum of the likelihood for k-RR; otherwise it takes ``steps`` steps, as ``ibu(stop=1000)`` does.

    Raises:
        InvalidParameter: if SQL cannot use the name, or the channel is too large or has no closed form.

    """
    if not _NAME.fullmatch(name):
        raise InvalidParameter("the macros need a name of lowercase letters, digits and _", "for example city")
    certified = certify_values(mechanism, "key-value estimates have no pure SQL form: use ldp.key_value")
    if isinstance(certified.values, Product):
        raise InvalidParameter("tables of several columns have no pure SQL form", "use ldp.crosstab")
    helpers = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    head = (
        f"-- {mechanism.name}, {certified.certificate.claim}; by ldpsql {__version__}. This estimates; nothing here perturbs.\n"
    )
    return (
        head + helpers.replace("NAME", name) + "\n".join(_pair(estimator, name) for estimator in _estimators(certified, name))
    )


def write(mechanism: Mechanism, name: str, path: Path) -> None:
    """Write the macros into a file of SQL, or into a DuckDB database, which is created if it does not exist."""
    text = macros(mechanism, name)
    if path.suffix == ".sql":
        path.write_text(text, encoding="utf-8")
        return
    version = "" if path.exists() else f" (STORAGE_VERSION '{STORAGE_VERSION}')"
    with duckdb.connect() as con:
        con.execute(f"ATTACH {text_literal(str(path))} AS exported{version}; USE exported")
        con.execute(text)


def _pair(estimator: Exported, name: str) -> str:
    """Return the two macros of an estimator: over counts, and as an aggregate over reports."""
    method, body, option = estimator
    declared, passed = (f", {option} := 1000", f", {option} := {option}") if option else ("", "")
    return (
        f"CREATE OR REPLACE MACRO {name}_{method}_counts(counts{declared}) AS {body};\n"
        f"CREATE OR REPLACE MACRO {name}_{method}(report{declared}) AS {name}_{method}_counts(histogram(report){passed});\n"
    )


def _estimators(certified: CertifiedValues, name: str) -> Iterator[Exported]:
    """Return the estimators of a mechanism.

    Raises:
        InvalidParameter: if the channel is too large or has no closed form.

    """
    channel, reports = certified.channel, certified.reports
    if isinstance(channel, SetChannel) and isinstance(reports, SetReports):
        return _sets(channel, reports, _literal(certified.values), name)
    if isinstance(channel, KeepOrSpread) and channel.keep > channel.spread and isinstance(reports, Domain):
        return _keep_or_spread(channel, _literal(certified.values), _literal(reports), name)
    if isinstance(channel, TableChannel) and isinstance(reports, Domain):
        if channel.inputs * channel.outputs > MAX_PROBABILITIES:
            size = f"{MAX_PROBABILITIES} probabilities"
            raise InvalidParameter(f"a channel of more than {size} is too large for SQL text", "use ldpsql itself")
        invertible = operator_of(certified.mechanism).condition <= MAX_CONDITION
        return _listed(channel, _literal(certified.values), _literal(reports), name, invertible=invertible)
    raise InvalidParameter(
        f"the reports of {certified.mechanism.name} have no pure SQL form", "k-RR, listed reports and sets of values have one"
    )


def _literal(domain: Domain) -> str:
    with duckdb.connect() as con:
        return list_literal(domain.values, con)


def _keep_or_spread(channel: KeepOrSpread, values: str, alphabet: str, name: str) -> Iterator[Exported]:
    lift, spread = number((channel.keep - channel.spread) / TOTAL), number(channel.spread / TOTAL)
    inverse = f"list_transform(s, lambda x: (x - {spread}) / {lift})"
    estimates = {**_inversions(inverse, name), IBU: f"{name}__filled(s, {lift}, {spread})"}
    z = number(deviations(0.95))
    for method, theta in estimates.items():
        yield Exported(
            method,
            f"""list_transform([{name}__counted(counts, {alphabet})], lambda c:
    list_transform([list_sum(c)], lambda n: CASE WHEN n > 0 THEN
    list_transform([{name}__explained({name}__scaled(c), n, {lift}, {spread})], lambda s:
        {name}__rows({values}, {theta}, s, n, {lift}, {spread}, {z}))[1] END)[1])[1]""",
        )


def _listed(channel: TableChannel, values: str, alphabet: str, name: str, *, invertible: bool) -> Iterator[Exported]:
    table = channel.probabilities()
    inverse = np.asarray(np.linalg.pinv(table).T, dtype=np.float64)
    solved = f"{name}__scaled(list_transform({numbers(inverse)}, lambda row: list_dot_product(row, s)))"
    estimates = _inversions(solved, name) if invertible else {}
    stepped = f"{name}__stepped({numbers(table)}, {numbers(table.T)}, s, steps)"
    shares = f"{name}__scaled({name}__counted(counts, {alphabet}))"
    for method, theta in {**estimates, IBU: stepped}.items():
        yield Exported(
            method,
            f"list_transform([{shares}], lambda s: CASE WHEN s IS NOT NULL THEN {name}__shares({values}, {theta}) END)[1]",
            "steps" if method == IBU else "",
        )


def _sets(channel: SetChannel, reports: SetReports, values: str, name: str) -> Iterator[Exported]:
    positions = f"range({channel.inputs})"
    held = "((r[x // 64 + 1] >> (x % 64)) & 1)::DOUBLE"
    hit, miss, lift = number(float(channel.hit)), number(float(channel.miss)), number(float(channel.ratio - 1))
    possible = (
        f"list_transform([counts], lambda c: CASE WHEN c IS NULL OR list_aggregate(list_transform(map_keys(c), lambda r: "
        f"len(r) = {reports.words} AND {_no_more_bits(reports)}), 'bool_and') THEN c "
        "ELSE error('[LDP401] some reports cannot occur under this mechanism. Hint: check that these are its reports.') END)[1]"
    )
    supported = f"list_transform({positions}, lambda x: list_dot_product(list_transform(k, lambda r: {held}), s))"
    solved = f"list_transform({supported}, lambda c: (c - {miss}) / ({hit} - {miss}))"
    rows = f"list_transform({positions}, lambda x: list_transform(k, lambda r: 1 + {lift} * {held}))"
    columns = f"list_transform(k, lambda r: list_transform({positions}, lambda x: 1 + {lift} * {held}))"
    stepped = f"{name}__stepped(a, b, s, steps)"
    ibu = f"list_transform([{rows}], lambda a: list_transform([{columns}], lambda b: {stepped})[1])[1]"
    for method, theta in {**_inversions(solved, name), IBU: ibu}.items():
        yield Exported(
            method,
            f"""list_transform([{possible}], lambda c: CASE WHEN c IS NOT NULL THEN
    list_transform([map_keys(c)], lambda k:
    list_transform([{name}__scaled(list_transform(map_values(c), lambda n: n::DOUBLE))], lambda s:
        {name}__shares({values}, {theta}))[1])[1] END)[1]""",
            "steps" if method == IBU else "",
        )


def _inversions(solved: str, name: str) -> dict[str, str]:
    """Return the SQL of the shares of each inverting estimator, from the SQL of the solution of the linear equations."""
    return {INV: solved, INV_N: f"{name}__clipped({solved})", INV_P: f"{name}__nearest({solved})"}


def _no_more_bits(reports: SetReports) -> str:
    """Return the SQL condition that a report r sets no bit beyond the last value."""
    return f"(r[-1] >> {reports.size % 64}) = 0" if reports.size % 64 else "true"


def number(value: float) -> str:
    """Return a double as SQL that reads back to the last bit; the exponent keeps it from being a DECIMAL."""
    return np.format_float_scientific(value)


def numbers(table: Floats) -> str:
    """Return a table as a SQL list of lists."""
    return "[" + ", ".join("[" + ", ".join(number(cell) for cell in row) + "]" for row in table) + "]"
