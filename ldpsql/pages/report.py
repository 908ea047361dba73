"""The page of a report: the summary, every group, and how the estimate came about; and of a plan: error against epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp

import numpy as np
import polars as pl

from ldpsql.channels import PlanarNoise, TableChannel
from ldpsql.domains.domain import Domain
from ldpsql.errors import LdpError
from ldpsql.estimates.diagnosis import UNKNOWN_RECORD, UNRECORDED
from ldpsql.estimates.estimate import Estimate
from ldpsql.estimates.functionals import best_fit
from ldpsql.estimates.planning import MAX_VALUES, Expected, compare, over_declared_values
from ldpsql.inference.operators import Floats
from ldpsql.inference.solver.mle import em_step, uniform
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedValues, Mechanism
from ldpsql.mechanisms.region import Region
from ldpsql.pages.charts import (
    COLOURS,
    Axis,
    Cell,
    Column,
    Heat,
    Places,
    Series,
    Side,
    blocks,
    figure,
    heat,
    legend,
    lines,
    scale_of_colours,
    table,
)
from ldpsql.pages.document import (
    WIDTH,
    Fact,
    Markup,
    code,
    counted,
    document,
    folded,
    joined,
    number,
    percent,
    points,
    tag,
    width,
)
from ldpsql.pages.groups import (
    Distributions,
    Group,
    agree,
    axis_names,
    conclusions,
    ordered,
    part_of,
    result_facts,
    sections,
    trust_facts,
)
from ldpsql.privacy.claims import Claim, MetricLdp, NoClaim, PureLdp
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
    facts = [Fact("Reports", f"{reports:,}"), *_facts_of_plan(best)]
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


def _facts_of_plan(best: Sequence[Expected]) -> list[Fact]:
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


MOST_ROWS = 20_000  # rows of all tables of a page together: more make it slow to open
MAX_SIDE = 32  # cells along one side of the map of a channel; a larger table is averaged in blocks
EPSILONS = ("0.25", "0.5", "1", "2", "4", "8")


def report_page(
    estimates: Mapping[str, Estimate],
    truth: Mapping[str, Floats],
    mechanism: CertifiedValues,
    sql: str = "",
    region: Region | None = None,
) -> str:
    """Return the page for estimates by title, all under one mechanism."""
    first, *_ = groups = _groups(estimates, truth, region)
    result = result_facts(first)[0].name
    columns = [
        Column(result, (result.lower().replace(" ", "_"),)),
        Column("Width of an interval", ("width",), wide=True),
        Column("Gap", ("gap",), wide=True),
    ]
    body = joined(
        conclusions(
            first.title if len(groups) > 1 else "",
            first.rows,
            first.diagnosis.reports,
            fits=agree(first.diagnosis) if first.numbers else first.fits,
            numbers=result_facts(first)[:2] if first.numbers else (),
        ),
        sections(columns, [part_of(group, max(1, MOST_ROWS // len(groups))) for group in groups]),
        _alternatives(mechanism, groups),
        tag("h2", "How the estimate came about"),
        folded("The SQL", code(sql)) if sql else None,
        folded("Step by step to the maximum of the likelihood", _steps(groups[0])),
        _channel(mechanism),
    )
    reports = sum(group.diagnosis.reports for group in groups)
    lead = (
        f"Estimated from {counted(reports, 'report')} by {groups[0].one.of.estimator.name}. Nothing but the reports was used."
    )
    return document("Estimates from private reports", lead, _facts(groups, mechanism), body)


def _groups(estimates: Mapping[str, Estimate], truth: Mapping[str, Floats], region: Region | None) -> list[Group]:
    together = {id(one.of): Distributions(one.of) for one in estimates.values() if ordered(one)}
    return [
        Group(title, one, truth.get(title), together.get(id(one.of)), Places.of(one, region))
        for title, one in estimates.items()
    ]


def _facts(groups: Sequence[Group], mechanism: CertifiedValues) -> list[Fact]:
    """Return the summary: reports, privacy and mechanism, then what matters most about the estimates."""
    facts = first_facts([group.diagnosis.reports for group in groups], mechanism)
    if not groups[0].one.of.recorded:
        facts.append(Fact("Record", UNRECORDED, UNKNOWN_RECORD))
    return facts + ([*result_facts(groups[0]), *trust_facts(groups[0])] if len(groups) == 1 else _common(groups))


def first_facts(sizes: Sequence[int], mechanism: CertifiedMechanism, inputs: str = "values") -> list[Fact]:
    """Return the facts that a summary begins with: the reports of each group, the privacy and the mechanism."""
    claimed = mechanism.certificate.claimed
    if isinstance(claimed, NoClaim):
        privacy = Fact("Privacy", "none", str(claimed))
    else:
        privacy = Fact("Privacy", f"epsilon {number(float(claimed.epsilon))}", promise(claimed, inputs))
    return [
        Fact("Reports", f"{sum(sizes):,}", "" if len(sizes) == 1 else f"in {len(sizes):,} groups of {_range(sizes)}"),
        privacy,
        Fact("Mechanism", mechanism.name, in_words(type(mechanism.mechanism))),
    ]


def _range(sizes: Sequence[int]) -> str:
    return f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"


def _common(groups: Sequence[Group]) -> list[Fact]:
    """Return the facts about many groups at once."""
    errors, wrong = sorted(group.error for group in groups), [group for group in groups if not group.fits]
    facts = [
        Fact(
            "Width of an interval", width(errors[len(errors) // 2]), f"from {width(errors[0])} to {width(errors[-1])} by group"
        )
    ]
    if any(group.truth is not None for group in groups):
        facts.append(Fact("Furthest from the truth", points(max(group.off for group in groups)), "in the worst group"))
    return [*facts, fit_of([group.title for group in wrong])]


def some_of(titles: Sequence[str]) -> str:
    """Return the first titles."""
    return ", ".join(titles[:3]) + ("…" if len(titles) > 3 else "")


def fit_of(misfits: Sequence[str]) -> Fact:
    """Return whether reports and estimates agree, as a fact; ``misfits`` are the titles of groups in which they do not."""
    verdict = f"look closer at {counted(len(misfits), 'group')}" if misfits else "fit in every group"
    return Fact("Reports and estimates", verdict, some_of(misfits) or "no sign of another mechanism or epsilon")


def promise(claim: Claim, inputs: str = "values") -> str:
    """Return in one sentence what a claim promises to a person; ``inputs`` is what is perturbed."""
    epsilon = float(claim.epsilon)
    if isinstance(claim, MetricLdp):
        return f"values at distance d give any report with chances at most e^({number(epsilon)} d) times as large as each other"
    ratio = number(exp(epsilon), exp(epsilon) / 100) if epsilon < 20 else f"e^{number(epsilon)}"
    rest = f", except with probability {float(claim.delta):g}" if claim.delta else ""
    return f"any two {inputs} give the same report with chances that differ at most by a factor of {ratio}{rest}"


def _alternatives(mechanism: CertifiedValues, groups: Sequence[Group]) -> Markup | None:
    """Return what other epsilons and mechanisms would give for the reports of the first group."""
    reports = groups[0].diagnosis.reports
    expected = curve(mechanism, reports)
    if not expected:
        return None
    text = f"Expected interval of a share from {counted(reports, 'report')}, if all values are equally frequent."
    return tag("section", tag("h2", "What another epsilon would give"), tag("p", text), curves(expected, mechanism.name))


def curve(mechanism: CertifiedValues, reports: int) -> list[Expected]:
    """Return the expected errors of this mechanism and of those over as many declared values; none if there are none."""
    claim, size = mechanism.certificate.claimed, mechanism.channel.inputs
    if isinstance(mechanism.channel, PlanarNoise) or isinstance(claim, NoClaim):
        return []
    # An epsilon per unit of distance cannot be compared with one for all pairs.
    others = over_declared_values(registry().mechanisms, size) if isinstance(claim, PureLdp) and size <= MAX_VALUES else []
    others = [other for other in others if other.name != mechanism.name]
    try:
        return compare(EPSILONS, reports, [mechanism.mechanism, *others])
    except LdpError:
        return []


def _steps(group: Group) -> Markup:
    """Return charts of how fast the iterative Bayesian update approaches the maximum."""
    steps = trace(group.one)
    text = f"The iterative Bayesian update on {group.title}, from the uniform distribution."
    missing = _trace("Log-likelihood missing to the maximum", steps, "missing")
    return joined(tag("p", text), tag("div", missing, _trace("Certified gap", steps, "gap"), class_="pair"))


def _trace(title: str, steps: pl.DataFrame, name: str) -> Markup:
    x, y = (steps[column].cast(pl.Float64).to_numpy() for column in ("step", name))
    tips = [f"step {i:.0f}: {value:.3g}" for i, value in zip(x, y, strict=True)]
    line = Series(title, x, y, tips, "line fine")
    up = Axis(float(y.min()), float(y.max()), _power, log=True)
    return figure(title, lines([line], Axis(0.0, float(x.max())), up, title), "step")


def _power(value: float, _: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e") if not 0.001 <= value < 10_000 else f"{value:g}"


def _channel(mechanism: CertifiedValues) -> Markup | None:
    """Return a map of the probability of every report for every value, if these can be listed."""
    if not isinstance(mechanism.channel, TableChannel) or isinstance(mechanism.channel, PlanarNoise):
        return None
    chances = mechanism.channel.probabilities()
    rows, columns = (blocks(size, MAX_SIDE) for size in chances.shape)
    means = np.array([[chances[row, column].mean() for column in columns] for row in rows])
    values, reports = (
        _block_names(axis_names(mechanism.values), rows),
        _block_names(report_names(mechanism, chances.shape[1]), columns),
    )

    def tip(i: int, j: int) -> str:
        return f"value {values[i]}, report {reports[j]}: {percent(float(means[i, j]), 1e-5)}"

    across, up, top = Side.of_names("report", reports), Side.of_names("value", values[::-1]), float(means.max())
    drawn = heat(Heat(means, top, across, up, tip, "chance of each report for each value"))
    return folded("The channel: the chance of each report for each value", drawn, scale_of_colours(top))


def report_names(mechanism: CertifiedValues, count: int) -> list[str]:
    """Return the names of a mechanism's reports: values if they have any, otherwise numbers."""
    reports = mechanism.reports
    return axis_names(reports) if isinstance(reports, Domain) else [str(i) for i in range(count)]


def _block_names(names: Sequence[str], parts: Sequence[slice]) -> list[str]:
    return [names[part.start] for part in parts]


# The path of the iterative Bayesian update to the maximum of the likelihood.


STEPS, STEPS_OF_LARGE = 200, 30


def trace(one: Estimate, steps: int = STEPS) -> pl.DataFrame:
    """Return for the first steps of IBU how much log-likelihood is missing to the maximum, and the certified gap."""
    model = one.likelihood
    best = float(model.log_likelihood(best_fit(model))[0])
    theta, rows = uniform(model), []
    for step in range(1, (min(steps, STEPS_OF_LARGE) if model.operator.large else steps) + 1):
        theta = em_step(model, theta)
        missing = best - float(model.log_likelihood(theta)[0])
        rows.append({"step": step, "missing": max(missing, 1e-9), "gap": max(float(model.gap(theta)[0]), 1e-12)})
    return pl.DataFrame(rows)
