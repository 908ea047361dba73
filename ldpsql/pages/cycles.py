"""The page of a PRIVIC run: a map for each cycle."""

from __future__ import annotations

from collections.abc import Sequence

from ldpsql.mechanisms.base import certify
from ldpsql.pages.charts import Places, maps
from ldpsql.pages.document import Fact, Markup, cards, document, joined, number, tag
from ldpsql.pages.groups import marked
from ldpsql.privic import Cycle


def cycles_page(cycles: Sequence[Cycle], places: Places) -> str:
    """Return the page for finished cycles over the cells of a grid."""
    lead = "Each cycle's reports gave the estimate below, and the estimate the mechanism of the next cycle."
    spent = sum(certify(cycle.mechanism).epsilon for cycle in cycles)
    last = cycles[-1].summary
    facts = [
        Fact("Cycles", f"{len(cycles):,}", f"{last.reports:,} reports in the last one"),
        Fact("Spent by a user's reports of all cycles", f"epsilon {number(spent)}", "for cells at distance 1"),
        Fact("The next mechanism", f"epsilon {number(last.realised_epsilon)}", f"moves {_cells(last.average_distortion)}"),
    ]
    return document("PRIVIC", lead, facts, joined(*(_section(cycle, places) for cycle in reversed(cycles))))


def _section(cycle: Cycle, places: Places) -> Markup:
    summary, title = cycle.summary, f"Cycle {cycle.number}"
    facts = [
        Fact("Reports", f"{summary.reports:,}"),
        Fact("Estimate", summary.status),
        Fact("Next epsilon", number(summary.realised_epsilon), "per cell"),
        Fact("Next mutual information", number(summary.mutual_information), "nats"),
        Fact("Next distortion", number(summary.average_distortion), _cells(summary.average_distortion)),
    ]
    inside = joined(cards(facts, "facts small"), maps(places, {"Estimate": cycle.theta}))
    return tag("section", tag("h2", title), inside, **marked(cycle.number, title))


def _cells(distance: float) -> str:
    return f"a location by {number(distance)} cells on average"
