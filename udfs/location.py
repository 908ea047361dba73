"""Conversion of longitudes and latitudes to the cells of a grid, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.engine.arguments import Options
from ldpsql.errors import WrongType
from ldpsql.functions import Column, Handles, Macros, Scalar, Settings, by_row, guarded, hookimpl, plain
from ldpsql.mechanisms import InvalidParameter, Region, sql_cells
from ldpsql.registry.handles import GRIDS


@by_row(Options, returns=pa.int64())
def grid_handle(grid: dict[str, Any]) -> int:
    """Return the handle of a grid, a STRUCT that ``ldp.grid`` makes."""
    return GRIDS.number(Region.read(grid))


@guarded
def cell(lon: Column, lat: Column, grids: Handles, outside: Settings) -> pa.Array:
    """Return the cell of each point; NULL if longitude or latitude is NULL."""
    lon, lat = plain(lon), plain(lat)
    if pa.types.is_nested(lon.type) or pa.types.is_nested(lat.type):
        raise WrongType("a longitude and a latitude must be numbers", "in degrees")
    valid = lon.is_valid().to_numpy(zero_copy_only=False) & lat.is_valid().to_numpy(zero_copy_only=False)
    rules = plain(outside)
    nearest = [_is_nearest(rule) for rule in (rules if pa.types.is_nested(rules.type) else rules.unique()).to_pylist()]
    cells = np.zeros(len(lon), dtype=np.int64)
    if valid.any():
        kept = pa.array(valid)
        cells[valid] = _only(grids).cells(lon.filter(kept), lat.filter(kept), nearest=all(nearest))
    return pa.array(cells, mask=~valid)


def _is_nearest(rule: Any) -> bool:
    if rule not in (None, "nearest"):
        raise InvalidParameter("outside must be 'nearest' or NULL", "NULL refuses points outside the grid")
    return rule == "nearest"


@guarded
def cell_centre(cells: Column, grids: Handles) -> pa.Array:
    """Return the centre of each cell; NULL for NULL.

    Raises:
        WrongType, OutsideDomain: if a cell is not a whole number, or not that of a cell of the grid.

    """
    column = plain(cells)
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise WrongType("a cell must be a whole number", "as ldp.cell returns it")
    missing = column.is_null().to_numpy(zero_copy_only=False)
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) if len(column) else np.zeros(0, np.int64)
    lon, lat = _only(grids).centres(numbers) if len(column) else (np.zeros(0), np.zeros(0))
    return pa.StructArray.from_arrays([pa.array(lon), pa.array(lat)], ["lon", "lat"], mask=pa.array(missing))


def _only(grids: pa.ChunkedArray) -> Region:
    handles = plain(grids).unique().to_pylist()
    if len(handles) > 1:
        raise InvalidParameter("the grid changes from row to row", "use one grid for one column")
    return GRIDS.thing(handles[0])


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.grid``, ``ldp.cell``, ``ldp.cells`` and ``ldp.cell_centre``."""
    return [
        Scalar("__ldp_grid", grid_handle, "BIGINT"),
        Scalar("__ldp_cell", cell, "BIGINT"),
        Scalar("__ldp_cell_centre", cell_centre, "STRUCT(lon DOUBLE, lat DOUBLE)"),
        Macros(f'CREATE OR REPLACE MACRO ldp._cells("columns", "rows") AS {sql_cells("columns", "rows")};'),
        Macros.beside(__file__),
    ]
