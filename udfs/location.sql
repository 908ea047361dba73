-- Bounds are passed as text, so that decimals stay exact.
CREATE OR REPLACE MACRO ldp.grid(west, south, east, north, "columns", "rows") AS {
    'west': west::VARCHAR, 'south': south::VARCHAR, 'east': east::VARCHAR, 'north': north::VARCHAR,
    'columns': "columns", 'rows': "rows"
};
CREATE OR REPLACE MACRO ldp.cell(lon, lat, grid, outside := NULL) AS __ldp_cell(lon, lat, __ldp_grid(grid), outside);
CREATE OR REPLACE MACRO ldp.cells(grid) AS ldp._cells((grid)."columns", (grid)."rows");
CREATE OR REPLACE MACRO ldp.cell_centre(cell, grid) AS __ldp_cell_centre(cell, __ldp_grid(grid));

COMMENT ON MACRO ldp.grid IS 'a rectangle of longitudes and latitudes cut into cells, a value';
COMMENT ON MACRO ldp.cell IS 'the exact cell of a point; outside := ''nearest'' moves points beyond the edge to the nearest cell';
COMMENT ON MACRO ldp.cells IS 'the cells of a grid, row by row: the domain of a mechanism';
COMMENT ON MACRO ldp.cell_centre IS 'longitude and latitude of the centre of a cell';
