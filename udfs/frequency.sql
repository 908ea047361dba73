-- The values of the domain, in their own type, next to the numbers that Python returns. The values are part of the list, because
-- a lambda that captures them copies all of them for each element, and DuckDB refuses one that captures a subquery.
CREATE OR REPLACE MACRO ldp._next_to(vals, result) AS
    list_transform([{'vals': vals, 'result': result}], lambda r: CASE WHEN r['result'] IS NOT NULL THEN list_zip(r['vals'], r['result']) END)[1];
CREATE OR REPLACE MACRO ldp._rows(vals, shares) AS
    list_transform(ldp._next_to(vals, shares), lambda p: struct_concat({'value': p[1]}, p[2]));

-- Counts of reports: histogram() is what DuckDB turns into a plain GROUP BY.
CREATE OR REPLACE MACRO ldp.counts(report, keep := true) AS histogram(report) FILTER (WHERE try_cast(keep AS BOOLEAN));

CREATE OR REPLACE MACRO ldp._merged(reports, numbers) AS list_transform(
    [__ldp_merge(reports, numbers)], lambda result: map(list_select(reports, result.positions), result.n)
)[1];
-- An aggregate over counts: the sum for each report.
CREATE OR REPLACE MACRO ldp.merge(counts) AS ldp._merged(
    flatten(list(map_keys(counts)) FILTER (WHERE counts IS NOT NULL)),
    flatten(list(map_values(counts)) FILTER (WHERE counts IS NOT NULL))
);

-- `estimator` is any estimator, with its options: 'ibu', 'ibu(stop=100)'.
CREATE OR REPLACE MACRO ldp._plan(estimator, m) AS __ldp_plan(estimator, __ldp_mechanism(m), NULL);

CREATE OR REPLACE MACRO ldp._estimates(counts, estimator, m) AS
    ldp._rows(ldp._domain(m), __ldp_estimate(counts, ldp._plan(estimator, m)));

CREATE OR REPLACE MACRO ldp._diagnosis(vals, result) AS list_transform([{'vals': vals, 'result': result}], lambda r: CASE
    WHEN r['result'] IS NOT NULL THEN struct_update(r['result'], identified := ldp._rows(r['vals'], r['result']['identified']))
END)[1];

-- A macro of its own: `ldp.estimate` also takes a table as an identifier, whose name SQL cannot read.
CREATE OR REPLACE MACRO ldp.drawn_by(reports, report, m) AS __ldp_drawn_by(reports, [current_database(), current_schema()], (
    SELECT list({'path': [lower(database_name), lower(schema_name), lower(table_name)], 'comment': comment})
    FROM duckdb_columns() WHERE lower(column_name) = lower(report)
), __ldp_mechanism(m));

-- Over a table, a view, a file, a CTE, a Polars or Arrow frame. The report appears once: it may be an expression that draws.
-- Keys may have any name, such as counts.
CREATE OR REPLACE MACRO ldp.estimate(reports, report, m, estimator := 'ibu') AS TABLE
    SELECT unnest(ldp._estimates(counts, estimator, m), recursive := true),
           list_sum(map_values(counts))::BIGINT AS n
    FROM (SELECT ldp._counted(report, true) AS counts FROM query_table(reports));
CREATE OR REPLACE MACRO ldp.estimate_by(reports, report, keys, m, estimator := 'ibu') AS TABLE
    SELECT * EXCLUDE ("ldp counts"),
           unnest(ldp._estimates("ldp counts", estimator, m), recursive := true),
           list_sum(map_values("ldp counts"))::BIGINT AS n
    FROM (SELECT keys, ldp._counted(report, true) AS "ldp counts" FROM query_table(reports) GROUP BY keys);

COMMENT ON MACRO ldp.counts IS 'aggregate: the counts of the reports, a MAP';
COMMENT ON MACRO ldp.merge IS 'aggregate: the sum of counts of reports';
COMMENT ON MACRO ldp.drawn_by IS 'whether the comment of a column of a table says that the mechanism drew its reports; an error if another one did';
COMMENT ON MACRO TABLE ldp.estimate IS 'the estimate from the reports of a table, a file or a frame';
COMMENT ON MACRO TABLE ldp.estimate_by IS 'the estimate of each group from the reports of a table, a file or a frame';
