"""Positive definite systems, by LAPACK's routines for them: a third of the work of general systems."""

from __future__ import annotations

import numpy as np

from ldpsql.channels import Floats


def solution(matrix: Floats, right: Floats) -> Floats | None:
    """Return x with matrix x = right, None if the matrix is not positive definite; the matrix is overwritten."""
    from scipy.linalg.lapack import dposv  # noqa: PLC0415  # slow to import

    _, x, failed = dposv(matrix.T, right, overwrite_a=1)  # symmetric, and in the order of LAPACK's tables
    return None if failed else np.asarray(x, dtype=np.float64)


def factor(matrix: Floats) -> Floats | None:
    """Return the lower Cholesky factor; None if the matrix is not positive definite."""
    from scipy.linalg.lapack import dpotrf  # noqa: PLC0415

    lower, failed = dpotrf(matrix, lower=1)
    return None if failed else np.asarray(lower, dtype=np.float64)


def inverse(lower: Floats) -> Floats:
    """Return the inverse of the matrix that has this Cholesky factor."""
    from scipy.linalg.lapack import dpotri  # noqa: PLC0415

    half = np.tril(dpotri(lower, lower=1)[0])
    return np.asarray(half + half.T - np.diag(half.diagonal()), dtype=np.float64)


def solved(lower: Floats, right: Floats) -> Floats:
    """Return x with matrix x = right for the matrix that has this Cholesky factor."""
    from scipy.linalg.lapack import dpotrs  # noqa: PLC0415

    return np.asarray(dpotrs(lower, right, lower=1)[0], dtype=np.float64)
