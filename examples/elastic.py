"""Elastic privacy: Blahut-Arimoto hides an isolated place among distant crowds, planar Laplace leaves it isolated.

``python examples/elastic.py [PAGE]`` (needs the extra ``report``). A made-up city of 16 x 10 cells has two crowds and a house
in an empty corner. Both mechanisms keep the same epsilon per cell. The page shows where reports from the house go; the program
prints the share that falls where nobody is, and the share at the house. After Biswas, Palamidessi, "PRIVIC", section 3.3.
"""

from __future__ import annotations

import sys
from fractions import Fraction

import altair as alt
import numpy as np
import polars as pl

from ldpsql import certify
from ldpsql.channels import TableChannel
from ldpsql.registry.registry import registry

COLUMNS, ROWS = 16, 10
HOUSE = (ROWS - 2) * COLUMNS + 1
BETA = Fraction(4, 10)


def city() -> np.ndarray:
    """Return how many people are in each cell."""
    row, column = np.divmod(np.arange(COLUMNS * ROWS), COLUMNS)
    people = np.zeros(COLUMNS * ROWS)
    for at_row, at_column, size in ((2, 11, 900), (6, 12, 500)):
        people += np.round(size * np.exp(-((row - at_row) ** 2 + (column - at_column) ** 2) / 3))
    people[HOUSE] = 20
    return people


def reports(spec: dict[str, object]) -> tuple[np.ndarray, float]:
    """Return where reports from the house go, and the epsilon per cell that the mechanism keeps."""
    certified = certify(registry().mechanism(spec))
    assert isinstance(certified.channel, TableChannel)
    return certified.channel.probabilities()[HOUSE], certified.certificate.epsilon


def main(page: str) -> None:
    """Print the comparison and write the page."""
    people = city()
    elastic, epsilon = reports(
        {"mechanism": "blahut_arimoto", "beta": float(BETA), "domain": list(range(COLUMNS * ROWS)), "prior": people.tolist(),
         "columns": COLUMNS, "iterations": 200}
    )  # fmt: skip
    rigid, _ = reports({"mechanism": "planar_laplace", "epsilon": round(epsilon, 6), "columns": COLUMNS, "rows": ROWS})
    deserted = people == 0
    for name, shares in (("Blahut-Arimoto", elastic), ("planar Laplace", rigid)):
        line = f"{shares[deserted].sum():6.1%} where nobody is, {shares[HOUSE]:6.1%} at the house"
        print(f"{name:<15} epsilon {epsilon:.3f} per cell: {line}")
    row, column = np.divmod(np.arange(COLUMNS * ROWS), COLUMNS)
    panels = [("people", people / people.sum()), ("Blahut-Arimoto", elastic), ("planar Laplace", rigid)]
    frame = pl.concat([pl.DataFrame({"row": row, "column": column, "share": s, "panel": [n] * len(s)}) for n, s in panels])
    chart = (
        alt.Chart(frame)
        .mark_rect()
        .encode(x="column:O", y="row:O", color=alt.Color("share:Q", scale=alt.Scale(scheme="blues")))
        .properties(width=320, height=200)
        .facet(facet=alt.Facet("panel:N", sort=[name for name, _ in panels], title=None), columns=1)
        .resolve_scale(color="independent")
    )
    chart.save(page)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "elastic.html")
