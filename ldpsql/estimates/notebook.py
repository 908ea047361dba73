"""The display of an estimate in a notebook: a table with a chart in its last column, self-contained."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ldpsql.estimates.uncertainty import error_text

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimate

MAX_ROWS = 200
_WIDTH = 240


def html(one: Estimate) -> str:
    """Return rows of value, estimate, standard error and interval, each with a bar; the values are escaped."""
    diagnosis = one.diagnosis
    scale = _WIDTH / max(float(one.high.max()), float(one.estimate.max()), 1e-12)
    cells = zip(one.values.texts[:MAX_ROWS], one.estimate, one.std_error, one.low, one.high, strict=False)
    rows = "".join(
        f"<tr><td>{escape(value)}</td><td>{share:.4f}</td><td>{error_text(error)}</td><td>{low:.4f}</td><td>{high:.4f}</td>"
        f"<td>{_bar(share * scale, low * scale, high * scale)}</td></tr>"
        for value, share, error, low, high in cells
    )
    left = len(one.values) - MAX_ROWS
    more = f"<p>{left} more values</p>" if left > 0 else ""
    head = "".join(f"<th>{name}</th>" for name in ("value", "estimate", "std_error", "low", "high", ""))
    caption = f"{one.of.estimator.name} of {diagnosis.reports:,} reports under {one.of.source.name}: {diagnosis.status}"
    caption += "" if one.of.recorded else f", {diagnosis.record}"
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{rows}</table>{more}"


def _bar(share: float, low: float, high: float) -> str:
    return (
        f'<svg width="{_WIDTH}" height="14" role="img"><rect y="2" height="10" width="{max(share, 0.0):.1f}" fill="#9ecae1"/>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="7" y2="7" stroke="#08519c" stroke-width="1.5"/></svg>'
    )
