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
