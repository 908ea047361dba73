"""The two cities of the PRIVIC paper: cells, check-ins, and tables 2 and 3 (distances after each cycle, five rounds a beta).

The paper's grid of Paris has 15 x 11 cells, not the 16 x 12 of the text, and the first line of each file of check-ins is read as
a head: with that, row 1 of table 2 comes out to all digits. The file of Paris
counts these lines by cell, 15 i + j: Gowalla_Paris_grid.csv of github.com/blitzwas/PRIVIC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import hypot

import numpy as np
from duckdb import DuckDBPyConnection
from reproduction import people, shared

# A row for each cycle; five rounds with beta 1, then five with beta 0.5. Before the first cycle it is UNIFORM in all of them.
_TABLE_2 = """
0.27104 0.27796 0.28247 0.27758 0.26276  0.57738 0.57994 0.55791 0.60717 0.56880
0.21916 0.23750 0.25035 0.25116 0.23241  0.51324 0.48295 0.47043 0.51285 0.45826
0.19156 0.21115 0.21726 0.20913 0.20408  0.43184 0.42398 0.41040 0.45230 0.41119
0.18241 0.19264 0.19570 0.19747 0.18728  0.39741 0.38771 0.37284 0.41176 0.36953
0.16526 0.18020 0.174578 0.17310 0.17268 0.37818 0.35482 0.36039 0.36375 0.38045
0.14643 0.18159 0.16092 0.17222 0.17139  0.35044 0.34383 0.34818 0.35760 0.36804
0.13860 0.17605 0.15938 0.17078 0.16192  0.34086 0.32983 0.35769 0.34430 0.34780
0.15047 0.16926 0.15153 0.17005 0.15266  0.33137 0.31749 0.34690 0.33840 0.34028
0.14734 0.14825 0.14585 0.15001 0.15459  0.3170 0.32975 0.32772 0.34529 0.32670
0.14227 0.14135 0.14326 0.13797 0.14507  0.31917 0.31851 0.32689 0.33667 0.32043
0.13818 0.14448 0.14703 0.13589 0.14142  0.32137 0.32451 0.31843 0.32556 0.34014
0.16111 0.13641 0.14893 0.14208 0.13808  0.31224 0.31219 0.31380 0.31515 0.31159
0.13894 0.13111 0.14094 0.14199 0.14192  0.30883 0.30496 0.30578 0.30726 0.30282
0.15106 0.14271 0.14601 0.13584 0.12413  0.29405 0.31198 0.30786 0.31167 0.30100
"""
_TABLE_3 = """
0.37229 0.37038 0.36784 0.36949 0.36816  0.79621 0.80474 0.80219 0.80670 0.79940
0.29828 0.298370 0.30017 0.29784 0.29859 0.64931 0.66292 0.65362 0.65950 0.65285
0.26091 0.26029 0.26231 0.26180 0.26518  0.56896 0.57378 0.57338 0.57125 0.56618
0.23472 0.23419 0.23337 0.23740 0.23897  0.51672 0.51710 0.51735 0.51880 0.51138
0.21367 0.21432 0.21537 0.21777 0.21881  0.48194 0.48299 0.47992 0.48267 0.47791
0.19612 0.19761 0.19904 0.20120 0.20067  0.45531 0.45861 0.45122 0.45732 0.45450
0.18244 0.18412 0.18741 0.18724 0.18674  0.43588 0.43745 0.43558 0.43704 0.43584
"""


def _by_beta(text: str) -> dict[float, np.ndarray]:
    """Return the five rounds of each beta, shape (cycles, 5)."""
    numbers = np.array(text.split(), dtype=np.float64).reshape(-1, 10)
    return {1: numbers[:, :5], 0.5: numbers[:, 5:]}


UNIFORM = {"Paris": 2.02262, "San Francisco": 7.37595}


@dataclass(frozen=True)
class City:
    """The cells of a city, how the paper runs PRIVIC on it, and where its results are.

    Attributes:
        columns: cells from east to west; ``rows`` of them from north to south.
        ibu: steps of IBU in a cycle; ``blahut_arimoto`` iterations make its mechanism.
        checkins: number in section 3, and in section 7.
        better: betas below which figure 3 claims that Blahut-Arimoto serves better.
        published: distances after each cycle in five rounds, by beta, shape (cycles, 5).

    """

    name: str
    file: str
    columns: int
    rows: int
    ibu: int
    blahut_arimoto: int
    checkins: tuple[int, int]
    better: float
    figures: dict[str, str]
    published: dict[float, np.ndarray] = field(repr=False)

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.columns * self.rows

    def channel(self, beta: float, iterations: int = 10) -> str:
        """Return the mechanism of Blahut-Arimoto for the true shares."""
        return (f"ldp.blahut_arimoto({beta}, range({self.cells}), (SELECT p FROM truth), columns := {self.columns}, "
                f"iterations := {iterations})")  # fmt: skip

    def laplace(self, epsilon: float) -> str:
        """Return planar Laplace noise on the grid."""
        return f"ldp.planar_laplace({epsilon}, {self.columns}, {self.rows})"

    def away(self, a: int, b: int) -> float:
        """Return the distance of two cells."""
        return hypot(a % self.columns - b % self.columns, a // self.columns - b // self.columns)


PARIS = City("Paris", "gowalla_paris_privic_grid.csv", 15, 11, 10, 8, (10_078, 10_260), 1.4,
             {"table": "table 2", "utility": "fig. 3a", "last": "fig. 7a and b", "cycles": "fig. 8", "levels": "fig. 10a"},
             _by_beta(_TABLE_2))  # fmt: skip
BAY = City("San Francisco", "gowalla_sf_privic_grid.csv", 24, 16, 5, 5, (123_025, 123_108), 1,
           {"table": "table 3", "utility": "fig. 3b", "last": "fig. 7c and d", "cycles": "fig. 9", "levels": "fig. 10b"},
           _by_beta(_TABLE_3))  # fmt: skip


def load(con: DuckDBPyConnection, city: City) -> list[int]:
    """Load the check-ins as the authors used them, and return the number in each cell."""
    counts: list[int] = con.read_csv(str(shared(city.file))).pl().sort("cell")["n_as_used"].to_list()
    people(con, counts)
    return counts
