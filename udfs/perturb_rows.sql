-- The words in capitals with _EACH stand for one place for each column that can be perturbed: see perturb_rows.py. Places that are
-- not needed are NULL, and are left out at the end. COLUMNS finds columns by their names, in any case, and a report keeps the name
-- of its column.
CREATE OR REPLACE MACRO ldp._padded(columns) AS struct_concat(columns, {PADDING_EACH});
-- Without names that are used here: such a column cannot be kept.
CREATE OR REPLACE MACRO ldp._lowered(names) AS list_transform(
    list_filter(names::VARCHAR[], lambda name: NOT starts_with(lower(name), '_ldpsql_')), lambda name: lower(name)
);
-- The table, if it has all these columns: for a missing one, COLUMNS only says that it finds nothing. typeof() and the pattern of
-- regexp_extract are computed when a statement is bound, so no row is read, and the condition is a constant.
CREATE OR REPLACE MACRO ldp._with_columns(t, columns, keep) AS TABLE
    FROM query_table(t) AS "_ldpsql_row"
    WHERE regexp_extract('', __ldp_there(typeof("_ldpsql_row"), typeof(columns), keep::VARCHAR[])) = '';
CREATE OR REPLACE MACRO ldp._drawn_rows
    (x, m STRUCT(nothing INTEGER)[]) AS CASE WHEN m IS NULL THEN ldp._no_mechanism() END::INTEGER[],
    (x, m) AS ldp._report_rows(x, ldp._draws(m), ldp._reports(m), ldp._reports(m));

-- All values of a column are one list, which is drawn by one call of Python. ldp.perturb needs a call for every 2,048 rows. The random
-- order is one list of places: it is read 2,048 places at a time, so that no reordered copy of a column is needed. Draws come from a
-- query of their own, because unnest comes before all other expressions of its query.
CREATE OR REPLACE MACRO ldp.perturb_rows(t, columns, keep := []) AS TABLE
    WITH lists AS (
        SELECT list(COLUMNS(lambda c: lower(c) IN ldp._lowered(list_concat(struct_keys(columns), keep::VARCHAR[])))),
            count(*) AS "_ldpsql_count",
            NULL::INTEGER[] AS "_ldpsql_0", EMPTY_EACH
        FROM ldp._with_columns(t, columns, keep)
    ), ordered AS (
        SELECT *, __ldp_order("_ldpsql_count") AS "_ldpsql_places" FROM lists
    ), drawn AS (
        SELECT
            DRAWN_EACH,
            COLUMNS(lambda c: lower(c) IN ldp._lowered(keep) AND lower(c) NOT IN ldp._lowered(struct_keys(columns)) OR c = '_ldpsql_0'),
            "_ldpsql_places"
        FROM ordered
    ), placed AS (
        SELECT * EXCLUDE "_ldpsql_places", unnest("_ldpsql_places") AS "_ldpsql_place" FROM drawn
    )
    SELECT list_extract(COLUMNS(lambda c: NOT starts_with(c, '_ldpsql_')), "_ldpsql_place") FROM placed;

COMMENT ON MACRO TABLE ldp.perturb_rows IS 'the rows of a table in random order: reports of columns, and kept columns';
