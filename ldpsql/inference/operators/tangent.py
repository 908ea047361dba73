"""The inverse of an information matrix among directions that sum to zero, the only ones in which shares can move."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.inference.operators import positive


def tangent_inverse(information: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the inverse of the information among directions that sum to zero, and which values it does not determine."""
    size = len(information)
    lower = _factor(information)
    if lower is not None:
        inverse = positive.inverse(lower)
        along = inverse.sum(axis=0)
        return inverse - np.outer(along, along) / along.sum(), np.zeros(size, dtype=np.bool_)
    eigenvalues, vectors = _tangent_spectrum(information)
    lost = np.eye(size) - 1.0 / size - vectors @ vectors.T
    return (vectors / eigenvalues) @ vectors.T, np.abs(lost).max(axis=1, initial=0.0) > 1e-6


def tangent_solve(information: Floats, c: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return V c for the columns of c, where V is `tangent_inverse`, and which columns the information does not determine."""
    lower = _factor(information)
    if lower is not None:
        solved = positive.solved(lower, np.column_stack([c, np.ones(len(c))]))
        moved, along = solved[:, :-1], solved[:, -1:]
        return moved - along * (moved.sum(axis=0) / along.sum()), np.zeros(c.shape[1], dtype=np.bool_)
    eigenvalues, vectors = _tangent_spectrum(information)
    along, centred = vectors.T @ c, c - c.mean(axis=0)
    lost = np.abs(centred - vectors @ along).max(axis=0) > 1e-6 * np.maximum(np.abs(centred).max(axis=0), 1e-300)
    return vectors @ (along / eigenvalues[:, None]), lost


def _factor(information: Floats) -> Floats | None:
    """Return Cholesky's factor, with a curvature along (1, ..., 1) added; None if its pivots show a lost direction."""
    lower = positive.factor(information + information.trace() / len(information) ** 2)
    if lower is None:
        return None
    pivots = lower.diagonal() ** 2
    return lower if pivots.min() > 1e-8 * pivots.max() else None


def _tangent_spectrum(information: Floats) -> tuple[Floats, Floats]:
    """Return the eigenvalues that are clearly not zero, and their vectors, among directions that sum to zero."""
    centring = np.eye(len(information)) - 1.0 / len(information)
    eigenvalues, vectors = np.linalg.eigh(centring @ information @ centring)
    kept = eigenvalues > 1e-10 * max(eigenvalues[-1], 1e-300)
    return eigenvalues[kept], vectors[:, kept]
