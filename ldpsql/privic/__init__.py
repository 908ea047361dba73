"""PRIVIC: incremental collection of locations; the reports of each cycle give the mechanism of the next.

Source: Biswas, Palamidessi, "PRIVIC: a privacy-preserving method for incremental collection of location data", PETS 2024.
"""

from ldpsql.privic.beginning import start
from ldpsql.privic.run import collect
from ldpsql.privic.state import Cycle
from ldpsql.privic.step import STEPS, Step, Summary, full_prior, step

__all__ = ["STEPS", "Cycle", "Step", "Summary", "collect", "full_prior", "start", "step"]
