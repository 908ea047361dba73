"""Weights in few whole numbers where their structure allows it, from which a module derives its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import prod
from typing import Any

import numpy as np

from ldpsql.channels import Convolution, DenseChannel, PlanarNoise, TableChannel, Weights
from ldpsql.channels.exported import exported
from ldpsql.channels.moving import Window, two_reports
from ldpsql.errors import InvalidParameter
from ldpsql.mechanisms.families import PlanarMechanism

_FACTORS = ((), (1,), (2, 1), (3, 3, 1))  # of the last weights, over those before, and so on: see `_foreseen`


def moving(channel: DenseChannel) -> dict[str, Any] | None:
    """Return the numbers of a table of two reports that change evenly, of a window that moves evenly, or of both.

    Returns None for other tables.
    """
    weights = channel.weights()
    values, reports = weights.shape
    if values <= 2 or reports not in (2, values, values + 2):
        return None
    pair, rest = np.split(weights, [0 if reports == values else 2], axis=1)
    changing = _pair(pair) if pair.size else {"share": 0, "first": 0}
    window = _window(rest) if rest.any() else Window(rest.shape[1], 0, 0, 1, 0)
    if changing is None or window is None:
        return None
    return {"structure": "moving_weights", "values": values} | {
        name: str(number) for name, number in (changing | asdict(window)).items()
    }


def on_map(mechanism: PlanarMechanism, channel: TableChannel) -> dict[str, Any] | None:
    """Return the numbers of noise on a map, if they are those of its channel: a table of all pairs of cells or of offsets."""
    try:
        decay = mechanism.decay()
    except InvalidParameter:  # too far for anything but a table
        return None
    noise, many = decay.noise(), isinstance(channel, PlanarNoise)
    if not (exported(noise) == exported(channel) if many else np.array_equal(noise.weights(), channel.weights())):
        return None
    numbers = {name: str(number) for name, number in asdict(decay).items()}
    return {"structure": "planar_noise" if many else "planar_table", **numbers}


def _pair(weights: Weights) -> dict[str, int] | None:
    share, first = sum(weights[0].tolist()), int(weights[0, 0])
    even = 2 * first >= share and np.array_equal(two_reports(len(weights), first, share), weights)
    return {"share": share, "first": first} if even else None


def _window(weights: Weights) -> Window | None:
    """Return the window of a table in which some bin is covered."""
    low = int(weights.min())
    more = weights - np.uint64(low)
    step, inside, begins = int(more.max()), sum(more[0].tolist()), int((more[0] > 0).argmax())
    window = Window(len(weights), low, inside, step, (begins + 1) * step - int(more[0, begins]))
    return window if window.way >= 0 and np.array_equal(window.weights(), weights) else None


def noise(channel: Convolution) -> dict[str, Any] | None:
    """Return the noise of a channel as its weights from 0 on, each as the difference from what those before it foretell.

    Returns None unless the noise is symmetric, except for its last weights.
    """
    half = channel.noise[len(channel.noise) // 2 :].tolist()
    left = channel.noise[len(channel.noise) // 2 :: -1].tolist()
    if half[:-1] != left[:-1]:
        return None
    texts = [" ".join(str(one) for one in _differences(half, order)) for order in range(len(_FACTORS))]
    order = min(range(len(_FACTORS)), key=lambda at: len(texts[at]))
    return {"order": order, "differences": texts[order], "last": str(left[-1])}


def _differences(weights: Sequence[int], order: int) -> list[int]:
    return [weight - _foreseen(weights[:at], order) for at, weight in enumerate(weights)]


def _foreseen(before: Sequence[int], order: int) -> int:
    """Return the next weight if the ratios of weights, or the ratios of these ratios, stay the same; 0 for the first."""
    powers = [weight**times for weight, times in zip(before[::-1], _FACTORS[min(order, len(before))], strict=False)]
    return prod(powers[::2]) // prod(powers[1::2]) if powers else 0
