"""The prior that groups have in common: it is learned from all of them, and then used for one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import fsum
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, PlainSerializer

from ldpsql.errors import InvalidParameter
from ldpsql.estimators.sharing import directions, normal, pseudo
from ldpsql.estimators.sharing.blocks import blocks
from ldpsql.estimators.sharing.cells import CLASSES, CONCENTRATIONS, Votes, concentrations
from ldpsql.estimators.sharing.pseudo import Alone
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats

_STEPS, _BASE = 100, 0.05  # of EM; groups that each class has beforehand
_CELLS = 1 << 19  # of (group, value), that are scored together
_TINY = 1e-300
_LEAST_SHARE = 1e-4  # of a value that has its part of all shares
_HINT = "pass what ldp.prior(counts, m) returns"


@dataclass(frozen=True)
class Prior:
    """The shares of all groups together, their standard errors, and how common each class of dispersion is among groups.

    ``interval_weights`` are the ``weights`` averaged over what else they may be, as few groups say little about how alike they
    are. ``own_mean`` is how far means are those of each group alone, from 0 to 1; empty if that was not learned.
    """

    mean: tuple[float, ...]
    error: tuple[float, ...]
    weights: tuple[float, ...]
    interval_weights: tuple[float, ...]
    own_mean: tuple[float, ...] = ()

    def classes(self, likelihood: Likelihood, alone: Alone) -> tuple[Floats, Floats]:
        """Return how probable each class is for each group, and the same for intervals, each of shape (groups, classes).

        ``alone`` estimates groups by themselves.
        """
        if len(self.mean) != likelihood.operator.inputs:
            raise InvalidParameter("the prior is one of another number of values", _HINT)
        logs = scores(likelihood, np.array(self.mean), alone)
        return probabilities(logs, np.array(self.weights)), probabilities(logs, np.array(self.interval_weights))

    def borrowed(self, likelihood: Likelihood, classes: Floats) -> Floats:
        """Return which part of the estimate of each group comes from the mean of all groups, from 0 to 1."""
        if directions.directed(likelihood):
            return directions.Coefficients.of(likelihood, np.array(self.mean)).borrowed(classes)
        if likelihood.operator.votes is None:
            return pseudo.pseudo_share(likelihood.n, classes)
        return self.borrowed_votes(Votes.of(likelihood), classes)

    def borrowed_votes(self, votes: Votes, classes: Floats) -> Floats:
        """Return from votes which part of the estimate of each group comes from the mean of all groups."""
        noise = len(self.mean) * votes.noise(votes.n[:, None])
        spread = (1.0 - np.square(self.mean).sum()) / (1.0 + concentrations(votes.n))
        return np.asarray((classes * (noise / (noise + spread))).sum(axis=1))


def learnt(mean: Floats, error: Floats, groups: Iterable[Likelihood], alone: Alone) -> Prior:
    """Return the prior with this mean whose classes explain all groups best: the maximum of its likelihood, by EM.

    If reports are votes, the errors of the mean include that other groups would have other shares. Source: Morris, "Parametric
    empirical Bayes inference: theory and applications", JASA 1983.
    """
    raised = floored(mean)
    logs, n = (np.concatenate(part) for part in zip(*_scored(groups, raised, alone), strict=True))
    weights = wide = class_weights(logs)
    if len(n):
        each = (probabilities(logs, weights) / (1.0 + concentrations(n))).sum(axis=1) * (n / fsum(n)) ** 2
        error, wide = np.sqrt(error**2 + raised * (1.0 - raised) * fsum(each)), averaged(logs, weights)
    return Prior(*(tuple(part.tolist()) for part in (raised, error, weights, wide)))


def _scored(groups: Iterable[Likelihood], mean: Floats, alone: Alone) -> Iterator[tuple[Floats, Floats]]:
    """Yield the `scores` of groups, and the numbers of their reports if these are votes.

    Groups that come one by one, as those of OUE do, are scored together if they have votes.
    """
    waiting, cells = list[Votes](), 0
    for some in groups:
        if some.operator.votes is None:
            yield scores(some, mean, alone), np.zeros(0)
            continue
        waiting.append(Votes.of(some))
        cells += waiting[-1].numbers.size
        if cells >= _CELLS:
            yield _together(waiting, mean)
            waiting, cells = [], 0
    if waiting:
        yield _together(waiting, mean)


def _together(waiting: list[Votes], mean: Floats) -> tuple[Floats, Floats]:
    votes = Votes.joined(waiting)
    return evidence(votes, mean), votes.n


def floored(mean: Floats) -> Floats:
    """Return shares none of which is zero, along the last axis."""
    raised = np.maximum(mean, _LEAST_SHARE / mean.shape[-1])
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def class_weights(logs: Floats) -> Floats:
    """Return how common classes are, by EM, from ln of how well each explains each group, (groups, classes)."""
    logs = logs[np.lexsort(logs.T)]  # the order of groups, which SQL does not fix, must not change a bit
    chances, weights = np.exp(logs - logs.max(axis=1, keepdims=True)), np.full(CLASSES, 1.0 / CLASSES)
    for _ in range(_STEPS):
        each = weights * (chances.T @ (1.0 / (chances @ weights)))
        weights = (each + _BASE) / (len(chances) + _BASE * CLASSES)
    return weights


def averaged(logs: Floats, weights: Floats) -> Floats:
    """Return how common classes are, averaged over how much more or less alike all groups may be than ``weights`` say.

    The classes of all groups move together by the same number of classes, and the variance of shares by the same factor. It has
    a flat prior, with which intervals from few groups cover. Source: Morris, Tang, "Estimating random effects via adjustment
    for density maximization", Statistical Science 2011.
    """
    logs = logs[np.lexsort(logs.T)]
    chances, place = np.exp(logs - logs.max(axis=1, keepdims=True)), np.arange(CLASSES)
    moves = np.arange(1 - CLASSES, CLASSES)
    moved = np.array([np.bincount(np.clip(place + move, 0, CLASSES - 1), weights, CLASSES) for move in moves])
    evidences = np.array([np.log(np.maximum(chances @ one, _TINY)).sum() for one in moved])
    evidences -= moves * np.log(CONCENTRATIONS[1] / CONCENTRATIONS[0])
    likely = np.exp(evidences - evidences.max())
    return np.asarray(likely @ moved / likely.sum())


def scores(likelihood: Likelihood, mean: Floats, alone: Alone) -> Floats:
    """Return ln of how well each class explains each group, (groups, classes), up to a term of the group."""
    if likelihood.operator.votes is None:
        return (normal if directions.directed(likelihood) else pseudo).scores(likelihood, mean, alone)
    return evidence(Votes.of(likelihood), mean)


def evidence(votes: Votes, mean: Floats) -> Floats:
    """Return ln of how likely the votes of each group are in each class, (groups, classes), up to a term of the group."""
    out = np.zeros((len(votes.n), CLASSES))
    for block in blocks(votes, mean):
        out[block.groups] = block.evidence()
    return out


def probabilities(logs: Floats, weights: Floats) -> Floats:
    """Return how probable each class is for each group, from ln of how well it explains the group and how common it is."""
    logs = logs + np.log(np.maximum(weights, 1e-12))
    chances = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=-1, keepdims=True))


def _prior(value: Any) -> Any:
    if value is None or isinstance(value, Prior):
        return value
    names = Prior.__dataclass_fields__
    fields = value if isinstance(value, Mapping) and set(value) == set(names) else {}
    if not fields or not all(isinstance(part, list | tuple | np.ndarray) for part in fields.values()):
        raise InvalidParameter("this is not a prior", _HINT)
    try:
        parts = mean, error, *weights, own = [np.array(fields[name], dtype=np.float64) for name in names]
    except (TypeError, ValueError):
        raise InvalidParameter("a prior holds numbers only", _HINT) from None
    common = all(_shares(one) and len(one) == CLASSES for one in weights)
    part = own.ndim == 1 and len(own) <= 1 and ((own >= 0) & (own <= 1)).all()
    if not (_shares(mean) and common and len(error) == len(mean) and (error >= 0).all() and part):
        raise InvalidParameter("the shares of a prior are positive and sum to one", _HINT)
    return Prior(*(tuple(part.tolist()) for part in parts))


def _shares(numbers: Floats) -> bool:
    return bool(numbers.ndim == 1 and len(numbers) and (numbers > 0).all() and abs(numbers.sum() - 1.0) < 1e-6)


PriorField = Annotated[Prior | None, BeforeValidator(_prior), PlainSerializer(lambda prior: prior and asdict(prior))]
