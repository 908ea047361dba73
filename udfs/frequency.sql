-- Weighted counts: for each report a struct of the number of rows, the sum of their weights, and that of the squares of these.
-- The lists are read once: DuckDB cannot bind an aggregate inside a lambda if a lambda is in its argument.
CREATE OR REPLACE MACRO ldp._weighed(reports, weights) AS list_transform(
    [{'reports': reports, 'weights': weights}], lambda given: list_transform(
        [__ldp_weigh(given.reports, given.weights)], lambda result: map(list_select(given.reports, result.positions), result.n)
    )[1]
)[1];
-- Counts of reports: most by histogram(), which DuckDB turns into a plain GROUP BY.
CREATE OR REPLACE MACRO ldp._counts
    (report, weight "NULL", keep) AS ldp._histogram(report, ldp._kept(keep)),
    (report, weight, keep) AS ldp._weighed(list(report) FILTER (WHERE ldp._kept(keep)), list(weight) FILTER (WHERE ldp._kept(keep)));

CREATE OR REPLACE MACRO ldp._merged(reports, numbers) AS list_transform(
    [{'reports': reports, 'numbers': numbers}], lambda given: list_transform(
        [__ldp_merge(given.reports, given.numbers)], lambda result: map(list_select(given.reports, result.positions), result.n)
    )[1]
)[1];
CREATE OR REPLACE MACRO ldp._merged_kind
    (reports, numbers, kind DOUBLE[]) AS ldp._merged(reports, numbers),
    (reports, numbers, kind) AS ldp._weighed(reports, numbers);
-- Of counts, the sum for each report.
CREATE OR REPLACE MACRO ldp._added_up
    (counts, weight "NULL", keep) AS ldp._merged_kind(
        flatten(list(map_keys(counts)) FILTER (WHERE counts IS NOT NULL AND ldp._kept(keep))),
        flatten(list(map_values(counts)) FILTER (WHERE counts IS NOT NULL AND ldp._kept(keep))),
        map_values(counts)
    ),
    (counts, weight, keep) AS error('[LDP403] counts of reports take no weight. Hint: count with weights: ldp.counts(report, weight := w).');
CREATE OR REPLACE MACRO ldp._counts_of
    (report, weight, keep, kind MAP(VARCHAR, VARCHAR)) AS ldp._added_up(report, weight, keep),
    (report, weight, keep, kind) AS ldp._counts(report, weight, keep);
CREATE OR REPLACE MACRO ldp.counts(report, keep := true, weight := NULL) AS ldp._counts_of(report, weight, keep, report);

-- True, or an error if the table, that of a view, or the file records another mechanism. A table function takes the name of a table as a string.
-- A temporary table may hide another one of its name. A view has no column here.
CREATE OR REPLACE MACRO ldp._agreed(reports, report_name, asked) AS __ldp_agreed((
    SELECT {'name': any_value(name), 'place': [current_database(), current_schema()], 'catalog': ldp._catalog(),
    'search_path': current_setting('search_path'), 'columns': list({
        'path': [lower(database_name), lower(schema_name), lower(table_name)], 'column': lower(column_name), 'comment': comment
    }) FILTER (WHERE table_name IS NOT NULL)}
    FROM repeat(reports, 1) AS named(name) LEFT JOIN (
        SELECT database_name, schema_name, table_name, column_name, comment FROM duckdb_columns()
        WHERE database_name <> 'system' AND (contains(comment, 'ldpsql:') OR database_name = 'temp')
        UNION ALL SELECT database_name, schema_name, view_name, NULL, NULL FROM duckdb_views() WHERE database_name <> 'system'
    ) ON contains(lower(name), lower(table_name))
), report_name, asked);
-- True, or an error if there are more reports than can be read; before they are counted, as far as that is certain. Only sets and
-- hashes, which are made of words of 64 bits, can be too many, so no other column is read.
CREATE OR REPLACE MACRO ldp._few(reports, report, keep, asked) AS (
    SELECT __ldp_few(asked, count(report) FILTER (WHERE ldp._kept(keep)))
    FROM query(__ldp_reading(reports, ldp._here())) WHERE contains(typeof(report), 'UBIGINT')
);
-- The columns of the result after the keys; `borrowed` is one if the estimator shares anything between groups.
CREATE OR REPLACE MACRO ldp._columns_of(estimator) AS
    ['value', 'estimate', 'std_error', 'low', 'high', 'n', CASE WHEN __ldp_borrows(estimator) THEN 'borrowed' END];
-- All shares, by an estimator that may have to learn from all groups first. Keys may have any name, such as counts: the names here
-- begin with "ldp ".
CREATE OR REPLACE MACRO ldp._table_estimate(reports, report, m, estimator := NULL, confidence := NULL, keep := true, weight := NULL,
                                            "by" := NULL) AS TABLE
    WITH "ldp asking" AS MATERIALIZED (
        SELECT __ldp_ask('estimate', m, typeof(any_value(report)), estimator, {'confidence': confidence}, NULL) AS asked
        FROM (FROM query(__ldp_reading(reports, ldp._here())) LIMIT 0) GROUP BY ()
    ), "ldp few" AS MATERIALIZED (
        SELECT ldp._few(reports, report, keep, (SELECT asked FROM "ldp asking")) AS few
    ), "ldp counted" AS MATERIALIZED (
        SELECT * EXCLUDE ("ldp report") FROM (
            SELECT any_value(ldp._keys("by", ldp._columns_of(estimator))) AS "ldp keys",
                   ldp._weighed_by(report, keep, weight) AS "ldp counts", (SELECT asked FROM "ldp asking") AS "ldp asked",
                   any_value(ldp._name(report)) AS "ldp report", row_number() OVER (ORDER BY CASE WHEN true THEN "by" END) AS "ldp place"
            FROM query(__ldp_reading(reports, ldp._here())) WHERE (SELECT few FROM "ldp few")
            GROUP BY CASE WHEN true THEN "by" END  -- not NULL, which would stand for each NULL in SELECT
        ) WHERE ldp._agreed(reports, "ldp report", "ldp asked")
    ), "ldp learned" AS MATERIALIZED (
        SELECT __ldp_learn_in_order(
            list("ldp counts" ORDER BY "ldp place"), any_value("ldp asked"), any_value("ldp keys")) AS learned
        FROM "ldp counted" WHERE __ldp_learns("ldp asked") HAVING count(*) > 0
    ), "ldp placed" AS (
        SELECT "ldp counted".*, learned.runs["ldp place"] AS "ldp run", learned.priors AS "ldp priors"
        FROM "ldp counted" LEFT JOIN "ldp learned" ON true
    )
    SELECT COLUMNS(lambda c: c <> 'ldp everybody') FROM (
        SELECT unnest("ldp keys", recursive := true), unnest("ldp answer", recursive := true)
        FROM (SELECT "ldp keys", cast_to_type(
                  __ldp_answer__borrowing("ldp counts", __ldp_learnt("ldp asked", "ldp run", "ldp priors"["ldp run" + 1])),
                  from_json('null', '' || __ldp_shares_type(typeof(m), ldp._text(m), estimator))) AS "ldp answer"
              FROM "ldp placed"));

COMMENT ON MACRO ldp.counts IS 'aggregate: the counts of the reports, a MAP, or the sum of such counts';

-- Without a weight, all rows count the same.
CREATE OR REPLACE MACRO ldp._weight
    (weight "NULL") AS 1,
    (weight) AS weight;

-- What each report weighs for each value: sums over rows with these weights are unbiased.
CREATE OR REPLACE MACRO ldp.weights(report, m, of := NULL) AS cast_to_type(
    CASE WHEN ldp._drew(typeof(report), m, m) THEN __ldp_weights(report, __ldp_mechanism(m), of) END, [{'value': ldp._column_kind(m, of)[1], 'weight': NULL::DOUBLE}]);

-- An outcome that is itself perturbed: sums of these numbers have the expectation of sums of the values.
CREATE OR REPLACE MACRO ldp.unbiased(report, m) AS CASE WHEN ldp._drew(typeof(report), m, m) THEN __ldp_unbiased(report, __ldp_mechanism(m)) END;

COMMENT ON MACRO ldp.sums IS 'aggregate, under GROUP BY report: sums of a raw column and its weights, which questions about it take in place of reports';
COMMENT ON MACRO ldp.unbiased IS 'a number for each report, whose expectation is the value behind it: for outcomes that are perturbed, too';
COMMENT ON MACRO ldp.weights IS 'what a report weighs for each value, for tools that take weights of rows';
