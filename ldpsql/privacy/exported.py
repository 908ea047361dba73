"""Claims as JSON, in exact numbers, so that another program can check them against a channel.

`examples/ldpsql-verify` is such a program.
"""

from __future__ import annotations

from typing import Any

from ldpsql.channels import ChannelOf, PlanarNoise
from ldpsql.privacy.certificate import Certificate
from ldpsql.privacy.claims import ApproximateLdp, MetricLdp
from ldpsql.privacy.metric import Distances, Grid, Metric


def exported(certificate: Certificate) -> dict[str, Any]:
    """Return the claim of a certificate as plain JSON: ``epsilon``, and ``delta`` with its exact value, or ``metric``."""
    claim, own = certificate.claim, {"epsilon": str(certificate.claim.epsilon)}
    if isinstance(claim, ApproximateLdp):
        return own | {"delta": str(claim.delta), "exact_delta": str(certificate.delta)}
    return own | {"metric": _metric(claim.metric)} if isinstance(claim, MetricLdp) else own


def exported_ratio(certificate: Certificate, channel: ChannelOf[Any]) -> str | None:
    """Return the exact ratio that decides about the claim; None if delta or the distances of many points decide."""
    if isinstance(certificate.claim, ApproximateLdp) or isinstance(channel, PlanarNoise):
        return None
    return str(certificate.ratio)


def _metric(metric: Metric) -> dict[str, Any]:
    if isinstance(metric, Grid):
        return {"kind": "grid", "columns": metric.columns, "rows": metric.rows, "side": str(metric.side)}
    if isinstance(metric, Distances):
        return {"kind": "distances", "table": [[str(distance) for distance in row] for row in metric.table]}
    return {"kind": "line", "count": len(metric)}
