"""The data of the paper, and data that take their place.

The counts of San Francisco's compensation and of incomes stand in the authors' scripts (github.com/yyt20080808/LDP-EM-MR,
simulation/fre_est_olh.py); that for k-RR, fre_est_grr.py, repeats some of the incomes.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from duckdb import DuckDBPyConnection
from reproduction import SHARED, frame, shared

from ldpsql import flights_file

COMPENSATION = [
    2828, 1981, 1807, 1745, 1730, 1718, 1718, 1670, 1630, 1619, 1608, 1607, 1541, 1541, 1532, 1530, 1509, 1453, 1404, 1308, 686, 667,
    553, 540, 534, 334, 163, 153, 150, 119, 194, 110, 110, 145, 140, 97, 137, 34, 87, 101, 113, 103, 90, 45, 32, 25, 17, 14, 12, 13, 3,
    10, 23, 20, 13, 13, 13, 12, 12, 10,
]  # fmt: skip
INCOME = [
    13856, 13284, 12857, 11463, 9225, 9179, 8883, 8762, 8718, 8000, 7968, 7367, 7011, 6845, 6523, 6410, 6246, 6020, 5904,
    5829, 5726, 5702, 5661, 5552, 5329, 5215, 4952, 4462, 4294, 4184, 3910, 3884, 3767, 3661, 3498, 3298, 3282, 3270, 3240,
    3198, 3184, 3182, 3049, 2728, 2667, 2612, 2471, 2421, 2410, 2242, 2156, 2147, 2109, 2068, 2064, 2063, 1908, 1672, 1653,
    1539, 1528, 1514, 1488, 1485, 1469, 1451, 1176, 1176, 1124, 1111, 1080, 1035, 1021, 887, 873, 714, 693, 693, 657, 642,
    639, 516, 473, 434, 423, 400, 381, 379, 351, 341, 320, 320, 316, 270, 256, 227, 200, 186, 179, 174, 169, 167, 152, 148,
    124, 94, 81, 48, 38, 36, 33, 32, 31, 30, 26, 25, 19, 19, 19, 18, 17, 16, 15, 14, 13, 12, 12, 12, 12, 12, 11, 10, 10, 10,
    10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 9, 9, 9, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8,
    8, 8, 8, 8, 8, 8, 8, 7, 7, 7, 7, 7, 7, 6, 6, 6, 6, 6, 6, 6, 6, 5, 5, 5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2,
    2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1,
]  # fmt: skip
REPEATED_INCOME = [*INCOME[:109], *6 * INCOME[97:108], 2, 1, *INCOME[-75:]]


def s_mn(n: int) -> np.ndarray:
    """Draw from the paper's S-MN: N(.7, .2) with weight .6 and N(.2, .1) with weight .4, clipped to [-1, 1]."""
    source = np.random.default_rng()
    first = source.random(n) < 0.6
    return np.clip(np.where(first, source.normal(0.7, 0.2, n), source.normal(0.2, 0.1, n)), -1, 1)


def normals(centres: dict[float, float], people: int) -> np.ndarray:
    """Draw so many people as the authors' scripts do: normals, by share, whose deviation is .35^2; those outside [-1, 1] are left out."""
    source = np.random.default_rng()
    values = np.concatenate([source.normal(centre, 0.35**2, round(share * people)) for centre, share in centres.items()])
    return np.asarray(values[np.abs(values) <= 1])


def income(con: DuckDBPyConnection) -> np.ndarray:
    """Return total incomes scaled to [-1, 1]."""
    path = shared("irs2013_agi_sample.parquet")
    capped = frame(con, f"SELECT a02650_capped AS income FROM read_parquet('{path}')")["income"].to_numpy()
    return capped / 100_000 - 1


def destinations(con: DuckDBPyConnection) -> list[int]:
    """Return how many of the shipped flights went to each airport."""
    return frame(con, f"SELECT dest, count(*) AS n FROM read_parquet('{flights_file()}') GROUP BY dest ORDER BY dest")[
        "n"
    ].to_list()


def numbers(con: DuckDBPyConnection, values: np.ndarray) -> None:
    """Make the table ``people`` (value)."""
    con.register("given", pl.DataFrame({"value": values}))
    con.execute("CREATE OR REPLACE TABLE people AS SELECT value FROM given")


def numeric(con: DuckDBPyConnection) -> dict[str, np.ndarray]:
    """Return the sets of numbers, in [-1, 1]."""
    sets = {"S-MN, n = 2,000": s_mn(2000), "S-MN, n = 43,000": s_mn(43_000)}
    if (SHARED / "irs2013_agi_sample.parquet").is_file():
        sets["income"] = income(con)
    return sets
