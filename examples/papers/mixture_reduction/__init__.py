"""Ye, Wang, Zhang, Feng, "Revisiting EM-based estimation for locally differentially private protocols", NDSS 2025.

The counts of the paper's 60 categories of San Francisco's compensation stand in the authors' scripts, with the output of four of
them. Other figures are drawn with the destinations of the shipped flights in their place. Income is the IRS statistics of 2013,
if that file exists; the cross of state and income class has 306 cells, about the paper's 300.
"""

from __future__ import annotations

from reproduction import Reproduction, run

from mixture_reduction.convergence import convergence, laplace_runtimes, runtimes
from mixture_reduction.densities import densities
from mixture_reduction.frequencies import frequencies, uniform
from mixture_reduction.key_value import key_value
from mixture_reduction.means import by_script, mean, small_sample
from mixture_reduction.scripts import hashed_compensation, incomes, pairs

SQL = """\
CREATE MACRO m() AS ldp.olh(1, ['AK 1', 'AK 2', 'AK 3']);  -- and so on

CREATE TABLE reports AS SELECT run, ldp.perturb(value, m()) AS report FROM people, range(100) t(run);

SELECT run, ldp.em_mr(report, m()), ldp.ibu(report, m()), ldp.empirical_bayes(report, m()) FROM reports GROUP BY run;"""

# Every figure and table of the paper, and why it is not reproduced, if it is not.
CONTENTS = {
    "fig. 1": "",
    "fig. 2": "",
    "fig. 3": "",
    "fig. 4": "",
    "fig. 5": "",
    "fig. 6": "",
    "fig. 7": "",
    "fig. 8": "",
    "fig. 9": "",
    "fig. 10": "",
    "table I": "it lists methods and their complexity, and has no result",
    "table II": "",
}
PARTS = (  # those that take longest first
    frequencies, densities, mean, runtimes, convergence, pairs, by_script, key_value, small_sample, uniform, incomes, hashed_compensation,
    laplace_runtimes,
)  # fmt: skip


def reproduce(full: bool) -> Reproduction:
    """Run all parts."""
    paper = Reproduction(
        "Mixture reduction",
        "Ye, Wang, Zhang and Feng, Revisiting EM-based estimation for locally differentially private protocols, 2025.",
        SQL,
        CONTENTS,
    )
    return run(paper, PARTS, full)
