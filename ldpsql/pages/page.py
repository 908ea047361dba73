"""Estimates as pages: one page with pictures that works offline, or one picture (extra ``report``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import TableChannel
from ldpsql.engine.groups import refuse_pairs
from ldpsql.errors import InvalidParameter, LdpError, NoReports, UsageError
from ldpsql.estimates.estimate import Estimate, estimate_likelihood
from ldpsql.estimates.planning import MAX_VALUES, compare, over_declared_values
from ldpsql.estimates.uncertainty import best_fit
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import likelihoods
from ldpsql.inference.operators import Floats
from ldpsql.inference.solver.mle import em_step, uniform
from ldpsql.mechanisms.base import CertifiedValues, Mechanism, certify_values
from ldpsql.privacy.claims import PureLdp
from ldpsql.registry.registry import registry

if TYPE_CHECKING:
    from ldpsql.pages.figures import Section

MAX_GROUPS = 24
MAX_BARS = 200
STEPS = 200
EPSILONS = ("0.25", "0.5", "1", "2", "4", "8")


def needs_extra() -> None:
    """Refuse where the extra that draws is not installed."""
    if find_spec("altair") is None or find_spec("vl_convert") is None:
        raise UsageError("pictures need the extra report", "pip install 'ldpsql[report]'")


def check(path: Path) -> None:
    """Refuse what could not be written: the extra that draws is missing, or the ending is not one of a page or a picture."""
    needs_extra()
    if path.suffix not in (".html", ".svg", ".png"):
        raise InvalidParameter("pages and pictures are written as .html, .svg or .png", "choose by the ending of the file")


def estimates(counted: pa.Table, mechanism: Mechanism, estimator: Estimator) -> dict[str, Estimate]:
    """Estimate every group of a table with columns report, n and the keys of the groups; return them by title.

    Raises:
        NoReports: where the table is empty.
        InvalidParameter: for more groups than a page can show, or reports of sets of pairs.

    """
    refuse_pairs(mechanism)
    if not len(counted):
        raise NoReports()
    titles, group = _groups(counted)
    found: dict[str, Estimate] = {}
    reports, numbers = (counted[name].combine_chunks() for name in ("report", "n"))
    for part, likelihood in likelihoods(mechanism, reports, numbers, group, len(titles)):
        some = estimate_likelihood(mechanism, likelihood, estimator)
        found |= {titles[row]: some[place] for place, row in enumerate(part)}
    return found


def truths(counted: pa.Table, mechanism: Mechanism) -> dict[str, Floats]:
    """Return the true shares of every group, from a table like that of `estimates` with values in place of reports."""
    titles, group = _groups(counted)
    values = certify_values(mechanism).values
    cells = group * len(values) + values.codes(counted["report"])
    counts = np.bincount(cells, weights=counted["n"].to_numpy(), minlength=len(titles) * len(values)).reshape(len(titles), -1)
    return dict(zip(titles, counts / counts.sum(axis=1, keepdims=True), strict=True))


def _groups(counted: pa.Table) -> tuple[list[str], NDArray[np.int64]]:
    """Return the titles of the groups, in the order of their keys, and the number of each row's group."""
    keys = [name for name in counted.column_names if name not in ("report", "n")]
    if not keys:
        return ["All reports"], np.zeros(len(counted), dtype=np.int64)
    rows = [tuple(str(value) for value in row) for row in zip(*(counted[key].to_pylist() for key in keys), strict=True)]
    groups = sorted(set(rows))
    if len(groups) > MAX_GROUPS:
        raise InvalidParameter(f"a page shows at most {MAX_GROUPS} groups, and there are {len(groups)}", "use ldpsql estimate")
    titles = [", ".join(f"{key} {value}" for key, value in zip(keys, group, strict=True)) for group in groups]
    return titles, np.array([groups.index(row) for row in rows])


def trace(found: Estimate, steps: int = STEPS) -> pl.DataFrame:
    """Return for the first steps of IBU how much log-likelihood is missing to the maximum, and the certified gap."""
    model = found.likelihood
    best = float(model.log_likelihood(best_fit(model))[0])
    theta, rows = uniform(model), []
    for step in range(1, steps + 1):
        theta = em_step(model, theta)
        missing = best - float(model.log_likelihood(theta)[0])
        rows.append({"step": step, "missing": max(missing, 1e-9), "gap": max(float(model.gap(theta)[0]), 1e-12)})
    return pl.DataFrame(rows)


def write(path: Path, found: Mapping[str, Estimate], truth: Mapping[str, Floats], sql: str = "") -> None:
    """Write a page (.html), or the pictures of the estimates alone (.svg, .png).

    Args:
        path: where to write; its ending says what.
        found: estimates by title, all under one mechanism.
        truth: true shares by title, where they are known.
        sql: what was run, shown on the page.

    Raises:
        InvalidParameter: for another ending.

    """
    check(path)
    from ldpsql.pages import figures  # noqa: PLC0415  # an extra

    if path.suffix == ".html":
        sections = [*_estimates(found, truth), *_mechanism(next(iter(found.values())))]
        path.write_text(figures.page("Estimates from private reports", _lead(found), sql, sections), encoding="utf-8")
    else:
        save(path, figures.stacked({name: _rows(one, truth.get(name)) for name, one in found.items()}))


def save(path: Path, chart: object) -> None:
    """Write one chart as .svg or .png, or alone on a page."""
    check(path)
    from ldpsql.pages import figures  # noqa: PLC0415  # an extra

    if path.suffix == ".png":
        path.write_bytes(figures.to_png(chart))
    elif path.suffix == ".svg":
        path.write_text(figures.to_svg(chart), encoding="utf-8")
    else:
        section = figures.Section("Expected error", "By mechanism and epsilon.", figures.to_svg(chart))
        path.write_text(figures.page("Privacy and utility", "", "", [section]), encoding="utf-8")


def _known(one: Estimate) -> CertifiedValues:
    """Return the mechanism of an estimate; a page is about a single one."""
    if not isinstance(one.of.source, CertifiedValues):
        raise InvalidParameter("a report shows the reports of one mechanism", "estimate mixed reports in SQL, by ldp.ibu_mixed")
    return one.of.source


def _lead(found: Mapping[str, Estimate]) -> str:
    one = next(iter(found.values()))
    proof, total = _known(one).certificate, sum(each.diagnosis.reports for each in found.values())
    return (
        f"{total:,} reports through the mechanism {_known(one).mechanism.name} ({proof.claim}, realised epsilon "
        f"{proof.epsilon:.6g}), estimated by {one.of.estimator.name}. Nothing but the reports was used."
    )


def _rows(one: Estimate, truth: Floats | None) -> pl.DataFrame:
    """Return at most `MAX_BARS` rows of an estimate, the largest shares, in the order of the domain."""
    columns = {"value": one.values.texts, "estimate": one.estimate, "low": one.low, "high": one.high}
    rows = pl.DataFrame(columns | ({"truth": truth} if truth is not None else {})).with_row_index("place")
    return rows.sort("estimate", descending=True).head(MAX_BARS).sort("place")


def _estimates(found: Mapping[str, Estimate], truth: Mapping[str, Floats]) -> list[Section]:
    from ldpsql.pages import figures  # noqa: PLC0415  # an extra

    sections = []
    for title, one in found.items():
        told, known = one.diagnosis, truth.get(title)
        text = f"{told.reports:,} reports: {told.status}, gap {told.gap:.2g}. Bars are estimates with their intervals"
        text += ", diamonds the truth." if known is not None else "."
        sections.append(figures.Section(title, text, figures.to_svg(figures.estimate_chart(_rows(one, known)))))
        columns = getattr(_known(one).mechanism, "columns", None)
        if columns:
            maps = {"estimate": one.estimate} | ({"truth": known} if known is not None else {})
            sections.append(
                figures.Section(f"{title}: map", "One cell a value.", figures.to_svg(figures.grid_chart(maps, columns)))
            )
    return sections


def _mechanism(one: Estimate) -> list[Section]:
    """Return what does not depend on the group: convergence, the channel, and what another epsilon would give."""
    from ldpsql.pages import figures  # noqa: PLC0415  # an extra

    title = "Likelihood and gap, step by step"
    text = "Of the iterative Bayesian update on the first group, from the uniform distribution."
    sections = [figures.Section(title, text, figures.to_svg(figures.trace_chart(trace(one))))]
    channel = _known(one).channel
    if isinstance(channel, TableChannel):
        sections.append(
            figures.Section(
                "The channel", "Every row is a value.", figures.to_svg(figures.channel_chart(channel.probabilities()))
            )
        )
    curve = _curve(one)
    if curve is not None:
        text = f"Expected standard error of a share from {one.diagnosis.reports:,} reports, under even shares."
        sections.append(figures.Section("Privacy and utility", text, figures.to_svg(figures.plan_chart(curve))))
    return sections


def _curve(one: Estimate) -> pl.DataFrame | None:
    """Return the expected errors of this mechanism and of those over as many declared values; None where there are none."""
    mechanism, claim = _known(one).mechanism, _known(one).certificate.claim
    size = _known(one).channel.inputs
    # An epsilon per unit of distance is not to be compared with one for all pairs.
    others = over_declared_values(registry().mechanisms, size) if isinstance(claim, PureLdp) and size <= MAX_VALUES else []
    others = [other for other in others if other.name != mechanism.name]
    try:
        rows = compare(EPSILONS, one.diagnosis.reports, [mechanism, *others])
    except LdpError:
        return None
    return pl.DataFrame([asdict(row) for row in rows])
