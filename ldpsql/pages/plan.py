"""The page of a plan: expected error against epsilon, for the mechanisms that fit the question."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ldpsql.estimates.planning import Expected
from ldpsql.mechanisms.base import Mechanism
from ldpsql.pages.charts import COLOURS, Axis, Cell, Column, Series, figure, legend, lines, table
from ldpsql.pages.document import WIDTH, Fact, Markup, counted, document, joined, number, points, tag, width
from ldpsql.registry.registry import registry

GOOD = 0.01  # the error that people ask for first

COLUMNS = [
    Column("Mechanism", ("mechanism",)),
    Column("Epsilon", ("epsilon",)),
    Column("Width of an interval", ("width",)),
    Column("Standard error", ("std_error",), wide=True),
    Column(f"Reports for an interval of {width(GOOD)}", ("reports_needed",)),
]


def plan_page(expected: Sequence[Expected], reports: int) -> str:
    """Return the page for the errors to expect from this many reports, by mechanism and epsilon."""
    lead = (
        f"What to expect from {counted(reports, 'report')}, before anything is collected, if all values are equally frequent."
    )
    best = _best(expected)
    body = joined(
        _said(best, reports) if best else None,
        tag("section", tag("h2", "How wide the interval of a share will be"), curves(expected)),
        tag("section", tag("h2", "All figures"), _table(expected)),
    )
    facts = [Fact("Reports", f"{reports:,}"), *_facts(best)]
    return document("Privacy and precision", lead, facts, body)


def _best(expected: Sequence[Expected]) -> list[Expected]:
    """Return the expected error of the best mechanism at each epsilon, rising; of none if no reports determine the shares."""
    finite = [one for one in expected if one.std_error is not None]
    epsilons = sorted({one.epsilon for one in finite})
    return [min((one for one in finite if one.epsilon == epsilon), key=_error) for epsilon in epsilons]


def _said(best: Sequence[Expected], reports: int) -> Markup:
    """Return what can be said from the best mechanism at each epsilon, in sentences."""
    said = [
        f"With epsilon {number(one.epsilon)} and {one.mechanism}, expect an interval of {width(_error(one))} around each share "
        f"from {counted(reports, 'report')}; estimates that differ by less may be of equal shares."
        for one in dict.fromkeys([best[0], best[-1]])
    ]
    said.append("Four times as many reports halve the interval. A smaller epsilon protects more and makes it wider.")
    return tag("section", tag("h2", "What you can say from this"), tag("ul", *(tag("li", one) for one in said)))


def _facts(best: Sequence[Expected]) -> list[Fact]:
    """Return the best mechanism at the smallest and the largest epsilon, and the epsilon that a good estimate needs."""
    if not best:
        return [Fact("Expected error", "unknown", "these reports would not determine the shares")]
    facts = [
        Fact(
            f"Best at epsilon {number(one.epsilon)}",
            one.mechanism,
            f"{in_words(registry().mechanisms[one.mechanism])}, interval {width(_error(one))} wide",
        )
        for one in dict.fromkeys([best[0], best[len(best) // 2], best[-1]])
    ]
    enough = next((one for one in best if _error(one) <= GOOD), None)
    needed = "more reports", f"{best[-1].reports_needed:,} at epsilon {number(best[-1].epsilon)}"
    if enough is not None:
        needed = f"epsilon {number(enough.epsilon)}", f"with {enough.mechanism}, of those compared"
    return [*facts, Fact(f"For an interval of {width(GOOD)}", *needed)]


def in_words(mechanism: type[Mechanism]) -> str:
    """Return the name of a mechanism in words, from the start of its documentation."""
    first = (mechanism.__doc__ or "").strip().split("\n")[0]
    return first.partition(":")[0].rstrip(".")


def _error(one: Expected) -> float:
    return float("inf") if one.std_error is None else one.std_error


def curves(expected: Sequence[Expected], marked: str = "") -> Markup:
    """Return the errors as lines over epsilon, one for each mechanism; ``marked`` comes first and is drawn stronger."""
    finite = [one for one in expected if one.std_error is not None]
    if not finite:
        return tag("p", "The reports do not determine the shares at any of these epsilons.")
    names = sorted({one.mechanism for one in finite}, key=lambda name: (name != marked, name))
    drawn = [_series(name, i, marked, [one for one in finite if one.mechanism == name]) for i, name in enumerate(names)]
    plot = lines(drawn[::-1], *_axes(finite), "expected error by epsilon and mechanism")
    return figure(
        "Width of a 95 % interval, in percentage points", plot, "epsilon", legend([(line.kind, line.name) for line in drawn])
    )


def _series(name: str, at: int, marked: str, unordered: Sequence[Expected]) -> Series:
    ordered = sorted(unordered, key=lambda one: one.epsilon)
    kind = f"line l{at % COLOURS}" + (" dashed" if at >= COLOURS else "") + (" marked" if name == marked else "")
    tips = [f"{name} at epsilon {number(one.epsilon)}: {width(_error(one))}" for one in ordered]
    return Series(
        name, np.array([one.epsilon for one in ordered]), np.array([WIDTH * _error(one) for one in ordered]), tips, kind
    )


def _axes(finite: Sequence[Expected]) -> tuple[Axis, Axis]:
    epsilons, errors = [one.epsilon for one in finite], [WIDTH * _error(one) for one in finite]
    wide, tall = (0.8, 1.25) if min(epsilons) == max(epsilons) else (1.0, 1.0), (0.8, 1.25)
    marks = tuple(sorted(set(epsilons)))
    across = Axis(min(epsilons) * wide[0], max(epsilons) * wide[1], number, log=True, marks=marks if len(marks) <= 7 else ())
    return across, Axis(min(errors) * tall[0], max(errors) * tall[1], lambda share, _: number(100 * share), log=True)


def _table(expected: Sequence[Expected]) -> Markup:
    return table("plan", COLUMNS, [(one.mechanism, _cells(one)) for one in expected])


def _cells(one: Expected) -> list[Cell | Markup]:
    epsilon = Cell(number(one.epsilon), (one.epsilon,))
    if one.std_error is None or one.reports_needed is None:
        return [epsilon, Cell("unknown", ("",)), Cell("unknown", ("",), wide=True), Cell("unknown", ("",))]
    error, needed = (
        Cell(points(one.std_error), (one.std_error,), wide=True),
        Cell(f"{one.reports_needed:,}", (one.reports_needed,)),
    )
    return [epsilon, Cell(width(one.std_error), (WIDTH * one.std_error,)), error, needed]
