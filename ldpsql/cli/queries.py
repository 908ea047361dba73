"""The queries of commands that estimate: SQL over reports, for each group of the keys if there are any."""

from __future__ import annotations

from collections.abc import Sequence

from ldpsql.bulk.many_groups import keys_named, result_columns
from ldpsql.cli.sides import Sides
from ldpsql.cli.source import Reports
from ldpsql.engine.functions import struct_text
from ldpsql.quoting import quoted, text_literal
from ldpsql.sql.named import sql_call


def shares(of: Reports, keys: Sequence[str]) -> str:
    """Return the query for the share of each value."""
    made, method = sql_call(of.mechanism, of.con), text_literal(str(of.estimator))
    if not keys:
        return f"FROM ldp.estimate({of.table}, {of.reports}, {made}, estimator := {method})"
    names = zip(keys_named(keys, result_columns(of.estimator)), keys, strict=True)
    groups = struct_text({name: quoted(key) for name, key in names})
    call = f"ldp.estimate_by({of.table}, {of.reports}, {groups}, {made}, estimator := {method})"
    # within a group the values keep the order of the domain
    numbered = f"SELECT *, row_number() OVER () AS place FROM {call} AS t(key)"
    return f"SELECT unnest(key), * EXCLUDE (key, place)\nFROM ({numbered})\nORDER BY key, place"


def top_values(of: Reports, keys: Sequence[str], most: int, *, named: bool) -> str:
    """Return the query for the most frequent values, by the estimator that is ``named`` or by that of ``ldp.top``."""
    method = text_literal(str(of.estimator)) if named else "NULL"
    call = f"ldp.top({of.reports}, {sql_call(of.mechanism, of.con)}, {most}, estimator := {method})"
    return f"{_by_group(call, of.table, keys)}\nORDER BY ALL"  # the keys, then the rank


def rectangles(of: Reports, keys: Sequence[str], on: Sides) -> str:
    """Return the query for the shares of rectangles of a map."""
    low, high = (f"[{', '.join(points)}]" for points in on.corners())
    call = f"""ldp.range_shares({of.reports}, {sql_call(of.mechanism, of.con)}, {low}, {high},
    estimator := {text_literal(str(of.estimator))}, grid := {on.grid(of.mechanism)})"""
    groups = "".join(f"{quoted(key)}, " for key in keys)
    listed = f"SELECT {groups}unnest([{', '.join(on.listed())}], recursive := true), unnest({call}, recursive := true)"
    order = f"\nGROUP BY {groups[:-2]}\nORDER BY {groups[:-2]}" if keys else ""
    return f"FROM (\n{listed}\nFROM query_table({of.table}){order}\n)\nWHERE estimate IS NOT NULL"


def top_strings(table: str, reports: str, made: str, keys: Sequence[str], most: int, *, certain: bool) -> str:
    """Return the query for the most frequent strings, without a list of them; ``made`` is the SQL of the mechanism."""
    call = f"ldp.heavy_hitters({reports}, {made}, {most}, certain := {certain})"
    order = ", ".join([*map(quoted, keys), "estimate DESC"])
    return f"SELECT * FROM (\n{_by_group(call, table, keys)}\n)\nORDER BY {order}"


def frequencies_and_means(of: Reports, keys: Sequence[str]) -> str:
    """Return the query for the frequency and the mean of each key of key-value reports."""
    call = f"ldp.key_value({of.reports}, {sql_call(of.mechanism, of.con)}, estimator := {text_literal(str(of.estimator))})"
    return in_order(call, of.table, keys)


def in_order(call: str, table: str, keys: Sequence[str]) -> str:
    """Return the query for the rows of an aggregate, with the groups in the order of their keys."""
    order = ", ".join(map(quoted, keys))
    return _by_group(call, table, keys) + (f"\nORDER BY {order}" if keys else "")


def _by_group(call: str, table: str, keys: Sequence[str]) -> str:
    groups = ", ".join(map(quoted, keys))
    listed = f"SELECT {groups + ', ' if groups else ''}unnest({call}, recursive := true)\nFROM query_table({table})"
    return f"{listed}\nGROUP BY {groups}" if groups else listed
