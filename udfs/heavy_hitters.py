"""Frequent strings that nobody listed, as an aggregate over reports and over counts of them."""

from __future__ import annotations

from dataclasses import asdict

import pyarrow as pa

from ldpsql.functions import (
    MECHANISMS,
    SEARCHES,
    Aggregate,
    Column,
    Handles,
    HeavyHitter,
    HeavyHitters,
    Macros,
    PlainOptions,
    Scalar,
    aggregates,
    arrow_fields,
    counts_of,
    guarded,
    heavy_hitters,
    hookimpl,
    once_a_run,
    plain,
    quoted,
    sql_literal,
    struct_text,
    struct_type,
)


@guarded
def search_handle(mechanisms: Handles, options: PlainOptions) -> pa.Array:
    """Return the handle of each pair of a mechanism and the options of a search."""
    rows = zip(plain(mechanisms).to_pylist(), plain(options).to_pylist(), strict=True)
    return pa.array([_search(handle, chosen) for handle, chosen in rows], pa.int64())


def _search(handle: int, options: dict[str, object] | None) -> int:
    chosen = HeavyHitters(**{name: value for name, value in (options or {}).items() if value is not None})
    return SEARCHES.number((MECHANISMS.thing(handle), chosen))


@guarded
@once_a_run
def frequent(histograms: Column, handles: Handles) -> pa.Array:
    """Return for each group its most frequent strings; NULL if it is empty."""
    out: list[list[dict[str, object]] | None] = [None] * len(histograms)
    for handle, counts in counts_of(histograms, handles, lists=True):
        mechanism, options = SEARCHES.thing(handle)
        for row, hitters in heavy_hitters(mechanism, counts, options):
            out[row] = [asdict(hitter) for hitter in hitters]
    return pa.array(out, pa.list_(pa.struct(arrow_fields(HeavyHitter))))


def _aggregate() -> Aggregate:
    parameters = HeavyHitters.parameters()
    chosen = struct_text({p.name: quoted(p.name) for p in parameters})
    return Aggregate(
        "heavy_hitters",
        f"__ldp_heavy_hitters({{counts}}, __ldp_search(__ldp_mechanism(m), {chosen}))",
        {"m": None, **{p.name: sql_literal(p.default) for p in parameters}},
        "the most frequent strings, without a list of strings: shares with intervals that hold together",
        counted="ldp._listed_by(report, keep, m)",  # nearly all reports differ
        size="len({counts})",
        rows=True,
    )


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.heavy_hitters``."""
    return [
        Scalar("__ldp_search", search_handle, "BIGINT"),
        Scalar("__ldp_heavy_hitters", frequent, f"{struct_type(HeavyHitter)}[]"),
        aggregates(_aggregate()),
    ]
