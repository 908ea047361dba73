-- The words in capitals with _EACH stand for one place for each column that can be perturbed: see perturb_rows.py. Places that are
-- not needed are NULL, and are left out at the end. COLUMNS finds columns by their names, in any case, and a report keeps the name
-- of its column.
CREATE OR REPLACE MACRO ldp._padded(columns) AS struct_concat(columns, {PADDING_EACH});
-- Columns to be kept: a list of their names, or the name of one.
CREATE OR REPLACE MACRO ldp._named
    (names VARCHAR) AS [names],
    (names) AS names::VARCHAR[];
-- Without names that are used here: such a column cannot be kept.
CREATE OR REPLACE MACRO ldp._lowered(names) AS list_transform(
    list_filter(ldp._named(names), lambda name: NOT starts_with(lower(name), '_ldpsql_')), lambda name: lower(name)
);
-- The table, if it has all these columns: for a missing one, COLUMNS only says that it finds nothing. typeof() and the pattern of
-- regexp_extract are computed when a statement is bound, so no row is read, and the condition is a constant.
CREATE OR REPLACE MACRO ldp._with_columns(t, columns, keep) AS TABLE
    FROM query_table(__ldp_place(t)) AS "_ldpsql_row"
    WHERE regexp_extract('', __ldp_there(typeof("_ldpsql_row"), typeof(columns), ldp._named(keep))) = '';
-- Reports whose type records what drew them: the fingerprint of the mechanism is the name of the only field of a STRUCT.
CREATE OR REPLACE MACRO ldp._recorded_rows(listed, m) AS cast_to_type(
    list_transform(listed, lambda report: row(report)),
    [from_json('null', '' || __ldp_record_type(__ldp_mechanism([m][1]), typeof([ldp._reports(m)][1])))]
);
CREATE OR REPLACE MACRO ldp._drawn_rows
    (x, places, counted, name, m STRUCT(nothing INTEGER)[]) AS CASE WHEN m IS NULL THEN ldp._no_mechanism() END::INTEGER[],
    (x, places, counted, name, m) AS ldp._recorded_rows(
        ldp._report_rows(x, places, counted, name, ldp._draws(m), ldp._reports(m), ldp._reports(m)), m
    );
-- A key by which GROUP BY keeps strings apart that are equal by their collation: their bytes.
CREATE OR REPLACE MACRO ldp._key(x VARCHAR) AS encode(x), (x) AS x;

-- All values of a column are one list, which is drawn by one call of Python. ldp.perturb needs a call for every 2,048 rows. The random
-- order is one list of places in these lists: it is read 2,048 places at a time, so that no reordered copy of a column is needed.
-- Reading random places of long lists is slow. If each row occurs eight times or more among the first ones, equal rows are counted: the
-- lists then contain each row once, and the order contains its place as often as it occurs. Such rows are divided into random parts, each
-- in a query of its own, because DuckDB then reads one part at a time and lets threads share the parts. They only do so if the order of
-- `counts` is free: therefore it is a GROUP BY.
-- The source is materialized, because a view may return other rows when it is read again, and a stream can be read only once.
-- Draws come from a query of their own, because unnest comes before all other expressions of its query.
CREATE OR REPLACE MACRO ldp.perturb_rows(t, columns, keep := []) AS TABLE
    WITH source AS MATERIALIZED (
        SELECT COLUMNS(lambda c: lower(c) IN ldp._lowered(list_concat(struct_keys(columns), ldp._named(keep))))
        FROM ldp._with_columns(t, columns, keep)
    ), sampled AS (
        SELECT *, count(*) AS "_ldpsql_count"
        FROM (FROM source AS "_ldpsql_row" WHERE __ldp_identical(typeof("_ldpsql_row")) LIMIT 65536)
        GROUP BY ALL
    ), few AS MATERIALIZED (
        SELECT coalesce(8 * count(*) <= sum("_ldpsql_count"), false) AS "_ldpsql_few" FROM sampled
    ), counted AS (
        SELECT *, ldp._key(COLUMNS('(?s)^(.*)$')) AS "_ldpsql_key_\1", count(*) AS "_ldpsql_count"
        FROM source WHERE (FROM few) GROUP BY ALL
    ), counts AS MATERIALIZED (
        SELECT list(COLUMNS(lambda c: NOT starts_with(c, '_ldpsql_'))), __ldp_parts(list("_ldpsql_count")) AS "_ldpsql_parts"
        FROM counted, few GROUP BY "_ldpsql_few"
    ), parts AS MATERIALIZED (
        EACH_PART
    ), lists AS (
        SELECT COLUMNS(lambda c: NOT starts_with(c, '_ldpsql_')), true AS "_ldpsql_counted", NULL::INTEGER[] AS "_ldpsql_0", EMPTY_EACH,
            __ldp_order(0, "_ldpsql_parts"["_ldpsql_part"]) AS "_ldpsql_places"
        FROM parts
        UNION ALL
        SELECT list(COLUMNS(*)), false, NULL, NULL_EACH, __ldp_order(count(*), NULL) FROM source WHERE NOT (FROM few)
    ), drawn AS (
        SELECT
            DRAWN_EACH,
            COLUMNS(lambda c: lower(c) IN ldp._lowered(keep) AND lower(c) NOT IN ldp._lowered(struct_keys(columns)) OR c = '_ldpsql_0'),
            "_ldpsql_places"
        FROM lists
    ), placed AS (
        SELECT unnest(COLUMNS(lambda c: lower(c) IN ldp._lowered(struct_keys(columns)) OR c = '_ldpsql_places')),
            COLUMNS(lambda c: lower(c) IN ldp._lowered(keep) OR c = '_ldpsql_0')
        FROM drawn
    )
    SELECT * EXCLUDE "_ldpsql_0" FROM (
        SELECT COLUMNS(lambda c: lower(c) IN ldp._lowered(struct_keys(columns))),
            list_extract(COLUMNS(lambda c: lower(c) IN ldp._lowered(keep) OR c = '_ldpsql_0'), "_ldpsql_places")
        FROM placed
    );

COMMENT ON MACRO TABLE ldp.perturb_rows IS 'the rows of a table in random order: reports of columns, and kept columns';
