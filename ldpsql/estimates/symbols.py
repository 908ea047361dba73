"""Symbols of orthogonal hashes with which estimates are much quicker, for those who have not collected reports yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from ldpsql.channels import OrthogonalHash
from ldpsql.channels.galois import quicker_symbols
from ldpsql.errors import DataError, NotPrivate, UsageError
from ldpsql.mechanisms.base import CertifiedValues, Mechanism, certify


def quicker(mechanisms: Sequence[Mechanism], epsilons: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each mechanism and epsilon for which other symbols make estimates far quicker."""
    for mechanism in mechanisms:
        for epsilon in epsilons:
            with suppress(UsageError, NotPrivate, DataError):
                if sentence := _advice(mechanism.changed(epsilon=epsilon)):
                    yield f"{mechanism.name} at epsilon {epsilon}: {sentence}"


def _advice(mechanism: Mechanism) -> str | None:
    certified = certify(mechanism)
    channel = certified.channel if isinstance(certified, CertifiedValues) else None
    if not isinstance(channel, OrthogonalHash):
        return None
    one = quicker_symbols(channel.ratio, channel.inputs, channel.response.size)
    return one and (
        f"with symbols={one.symbols}, estimates transform {one.fewer:.0f} times as few numbers, and errors are "
        f"{one.larger - 1:.0%} larger"
    )
