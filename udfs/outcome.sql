-- Python returns values as text, and they are cast to the type of the column. Of `kind`, its domain, only the type matters.
CREATE OR REPLACE MACRO ldp._outcomes(kind, outcomes) AS cast_to_type(outcomes, [{'value': kind[1], 'estimate': NULL::DOUBLE,
    'std_error': NULL::DOUBLE, 'low': NULL::DOUBLE, 'high': NULL::DOUBLE, 'effective_reports': NULL::DOUBLE}]);
CREATE OR REPLACE MACRO ldp._outcome_options(of, measure, versus, estimator, confidence, together) AS {'of': of, 'measure': measure,
    'versus': versus, 'estimator': estimator, 'confidence': confidence::DOUBLE, 'together': together::BOOLEAN};
CREATE OR REPLACE MACRO ldp._outcome(reports, "rows", m, options, of) AS ldp._outcomes(
    ldp._column_kind(m, of), __ldp_outcome(reports, "rows", __ldp_mechanism(m), options));

-- The rows are passed to Python; FROM ldp.outcome and ldp.outcome_sums add them up in DuckDB.
CREATE OR REPLACE MACRO ldp.outcome(report, m, y, weight := 1, measure := 'mean', of := NULL, versus := NULL, estimator := 'best',
                                    confidence := 0.95, together := false, keep := true) AS ldp._outcome(
    ldp._listed_by(report, keep, m), list({'y': y, 'w': weight, 'x': NULL}) FILTER (WHERE ldp._kept(keep)), m,
    ldp._outcome_options(of, measure, versus, estimator, confidence, together), of);
CREATE OR REPLACE MACRO ldp.outcome_sums(sums, m, measure := 'mean', of := NULL, versus := NULL, estimator := 'best',
                                         confidence := 0.95, together := false) AS ldp._outcome(
    ldp._listed_by(struct_extract(sums, 'report'), true, m), list(sums), m,
    ldp._outcome_options(of, measure, versus, estimator, confidence, together), of);
CREATE OR REPLACE MACRO ldp.outcome(reports, report, m, y, weight := 1, measure := 'mean', of := NULL, versus := NULL,
                                    estimator := 'best', confidence := 0.95, together := false, "by" := NULL) AS TABLE
    SELECT COLUMNS(lambda c: c <> 'ldp everybody') FROM (
        SELECT unnest("ldp keys", recursive := true), unnest("ldp answers", recursive := true) FROM (
            SELECT any_value("ldp keys") AS "ldp keys", any_value("ldp name") AS "ldp report",
                   ldp.outcome_sums("ldp sums", m, measure := measure, of := of, versus := versus, estimator := estimator,
                                    confidence := confidence, together := together) AS "ldp answers"
            FROM (SELECT "by" AS "ldp by", ldp.sums(report, y, weight := weight) AS "ldp sums", any_value(ldp._name(report)) AS "ldp name",
                         any_value(ldp._keys("by", ['value', 'estimate', 'std_error', 'low', 'high', 'effective_reports'])) AS "ldp keys"
                  FROM query_table(__ldp_place(reports)) GROUP BY "by", report)
            GROUP BY "ldp by"
        ) WHERE ldp._agreed(reports, "ldp report", __ldp_source(m, NULL)));

CREATE OR REPLACE MACRO ldp.regression(report, m, y, x := NULL, weight := 1, family := 'linear', numbers := false,
                                       interactions := false, of := NULL, confidence := 0.95, keep := true) AS __ldp_regressed(
    ldp._listed_by(report, keep, m), list({'y': y, 'w': weight, 'x': x}) FILTER (WHERE ldp._kept(keep)), __ldp_mechanism(m),
    {'of': of, 'family': family, 'numbers': numbers::BOOLEAN, 'interactions': interactions::BOOLEAN,
     'confidence': confidence::DOUBLE});

-- What each report weighs for each value: sums over rows with these weights are unbiased.
CREATE OR REPLACE MACRO ldp.weights(report, m, of := NULL) AS cast_to_type(
    CASE WHEN ldp._drew(report, m, m) THEN __ldp_weights(report, __ldp_mechanism(m), of) END, [{'value': ldp._column_kind(m, of)[1], 'weight': NULL::DOUBLE}]);

-- An outcome that is itself perturbed: sums of these numbers have the expectation of sums of the values.
CREATE OR REPLACE MACRO ldp.unbiased(report, m) AS CASE WHEN ldp._drew(report, m, m) THEN __ldp_unbiased(report, __ldp_mechanism(m)) END;

COMMENT ON MACRO ldp.outcome IS 'aggregate: the mean, sum or variance of a raw column for each value of a perturbed one, or the weighted share of each value';
COMMENT ON MACRO ldp.sums IS 'aggregate, under GROUP BY report: the sums of a raw column and its weights that outcomes need';
COMMENT ON MACRO ldp.outcome_sums IS 'aggregate: the same as outcome, from sums';
COMMENT ON MACRO TABLE ldp.outcome IS 'the same over a table, a file or a frame, added up in DuckDB';
COMMENT ON MACRO ldp.regression IS 'aggregate: the coefficients of a linear or logistic regression on a perturbed column and raw ones';
COMMENT ON MACRO ldp.unbiased IS 'a number for each report, whose expectation is the value behind it: for outcomes that are perturbed, too';
COMMENT ON MACRO ldp.weights IS 'what a report weighs for each value, for tools that take weights of rows';
