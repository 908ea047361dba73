"""What people answer and how the answers are protected, in words that need no knowledge of privacy or of this project."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, exp

from ldpsql.channels import KeepOrSpread, RepeatedHash
from ldpsql.channels.base import TOTAL
from ldpsql.domains.domain import Domain
from ldpsql.domains.pair_sets import PairSets
from ldpsql.domains.product import Product
from ldpsql.domains.ranges import Numbers
from ldpsql.ledger.permanent import permanent_claim
from ldpsql.ledger.review import distances
from ldpsql.mechanisms.base import CertifiedMechanism
from ldpsql.mechanisms.spec import decimal_text
from ldpsql.pages.wording import counted, percent
from ldpsql.privacy.claims import ApproximateLdp, MetricLdp

_LISTED = 8  # so many possible answers are listed
_SAID = 40  # characters of an answer


def possible(certified: CertifiedMechanism) -> str:
    """Return the possible answers of an item."""
    values, mechanism = certified.values, certified.mechanism
    if isinstance(values, PairSets):
        return f"any of {counted(len(values.keys), 'entry').replace('entrys', 'entries')}, each with a number"
    if not isinstance(values, Domain):
        return "any text"
    if isinstance(values, Product):
        parts = zip(values.names, values.parts, strict=True)
        return f"any combination of {', '.join(f'{name} ({len(part):,} answers)' for name, part in parts)}"
    low, high = getattr(mechanism, "low", None), getattr(mechanism, "high", None)
    if isinstance(values, Numbers) and low is not None and high is not None:
        return f"a number from {float(low):g} to {float(high):g}"
    if len(certified.layout) == 2:
        return f"one of {len(values):,} squares of a map, {certified.layout[1]:,} wide and {certified.layout[0]:,} high"
    texts = [text[:_SAID] for text in values.written[:_LISTED].to_pylist()]
    return ", ".join(texts) if len(values) <= _LISTED else f"one of {len(values):,}, such as {', '.join(texts[:3])}"


def protection(certified: CertifiedMechanism) -> str:
    """Return what happens to an answer before it is handed on."""
    return "; ".join(_protection(certified))


def _protection(certified: CertifiedMechanism) -> Iterator[str]:
    channel, claim, mechanism = certified.channel, certified.certificate.claim, certified.mechanism
    if isinstance(channel, KeepOrSpread) and isinstance(certified.values, Domain) and certified.reports is certified.values:
        kept = channel.keep / TOTAL
        yield f"replaced at random: the true answer is handed on in {percent(kept)} of cases, any other with equal chance"
    else:
        yield "replaced by a random message that depends on the answer"
    if isinstance(claim, MetricLdp):
        yield f"only near answers are hard to tell apart, where {distances(certified, claim.metric)}"
    if isinstance(claim, ApproximateLdp):
        yield f"the limit may fail with a chance of {float(claim.delta):g}"
    if isinstance(channel, RepeatedHash):
        together = permanent_claim(certified).epsilon
        yield f"if each person's first random choice is kept, all messages about one answer have epsilon {together} together"
    for absent, rule in (("a missing answer", mechanism.nulls), ("any other answer", mechanism.outside)):
        if rule is not None:
            yield (
                f"{absent} counts as {rule.removeprefix('as:')[:_SAID]}"
                if rule != "clip"
                else f"{absent} counts as the nearest"
            )


def factor(epsilon: Fraction) -> str:
    """Return the largest factor by which an answer may change the odds of a guess, rounded up.

    >>> factor(Fraction(1)), factor(Fraction(20))
    ('2.8', 'more than a million')
    """
    if epsilon > 13:
        return "more than a million"
    value = exp(float(epsilon))
    return f"{ceil(10 * value) / 10:,.1f}" if value < 100 else f"{ceil(value):,}"


def certainty(epsilon: Fraction) -> str:
    """Return the largest probability that a guess between two equally likely answers can reach, rounded up.

    >>> certainty(Fraction(1)), certainty(Fraction(20))
    ('74 %', 'more than 99.9 %')
    """
    percents = 100 / (1 + exp(-min(float(epsilon), 700)))
    if percents > 99.9:
        return "more than 99.9 %"
    return f"{ceil(percents)} %" if percents < 99 else f"{ceil(10 * percents) / 10:.1f} %"


def plain(epsilon: Fraction) -> str:
    """Return an epsilon as a decimal number."""
    return decimal_text(epsilon)
