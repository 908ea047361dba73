-- The query of perturb_rows; perturb_rows.py replaces some words in capitals. COLUMNS finds columns by their names, in any case,
-- and a report keeps the name of its column.
-- All values of a column are one list, which is drawn by one call of Python. ldp.perturb needs a call for every 2,048 rows. The random
-- order is one list of places in these lists: it is read 2,048 places at a time, so that no reordered copy of a column is needed.
-- Reading random places of long lists is slow. If each row occurs eight times or more among the first ones, equal rows are counted: the
-- lists then contain each row once, and the order contains its place as often as it occurs. Such rows are divided into random parts, each
-- in a query of its own, because DuckDB then reads one part at a time and lets threads share the parts. They only do so if the order of
-- `counts` is free: therefore it is a GROUP BY.
-- The source is materialized, because a view may return other rows when it is read again, and a stream can be read only once.
-- Draws come from a query of their own, because unnest comes before all other expressions of its query.
WITH source AS MATERIALIZED (
    SELECT COLUMNS(lambda c: lower(c) IN ALL_NAMES) FROM (
        -- For a missing column, COLUMNS only says that it finds nothing. from_json reads a type when it is bound.
        FROM query(system.main.__ldp_reading(TABLE, ldp._here())) AS "_ldpsql_row"
        WHERE from_json('null', system.main.__ldp_there(typeof("_ldpsql_row"), PERTURBED, KEPT_NAMES)) IS NULL
    )
), sampled AS (
    SELECT *, count(*) AS "_ldpsql_count"
    FROM (FROM source AS "_ldpsql_row" WHERE system.main.__ldp_identical(typeof("_ldpsql_row")) LIMIT 65536)
    GROUP BY ALL
), few AS MATERIALIZED (
    SELECT coalesce(8 * count(*) <= sum("_ldpsql_count"), false) AS "_ldpsql_few" FROM sampled
), counted AS (
    SELECT *, ldp._key(COLUMNS('(?s)^(.*)$')) AS "_ldpsql_key_\1", count(*) AS "_ldpsql_count"
    FROM source WHERE (FROM few) GROUP BY ALL
), counts AS MATERIALIZED (
    SELECT list(COLUMNS(lambda c: NOT starts_with(c, '_ldpsql_'))), system.main.__ldp_parts(list("_ldpsql_count")) AS "_ldpsql_parts"
    FROM counted, few GROUP BY "_ldpsql_few"
), parts AS MATERIALIZED (
    EACH_PART
), lists AS (
    SELECT COLUMNS(lambda c: NOT starts_with(c, '_ldpsql_')), true AS "_ldpsql_counted",
        system.main.__ldp_order(0, "_ldpsql_parts"["_ldpsql_part"]) AS "_ldpsql_places"
    FROM parts
    UNION ALL
    SELECT list(COLUMNS(*)), false, system.main.__ldp_order(count(*), NULL) FROM source WHERE NOT (FROM few)
), drawn AS (
    SELECT DRAWN PLACED_KEPT, "_ldpsql_places" FROM lists
), placed AS (
    SELECT unnest(COLUMNS(lambda c: lower(c) IN PERTURBED OR_PLACES)) PLACED_KEPT FROM drawn
)
SELECT SHOWN TAKEN_KEPT FROM placed
