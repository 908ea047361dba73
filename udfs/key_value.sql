-- `estimator` is 'unbiased' or any estimator, with its options: 'ibu', 'em_mr(minimum=10)'.
CREATE OR REPLACE MACRO ldp._key_value_plan(estimator, m, confidence) AS
    __ldp_key_value_plan(estimator, __ldp_mechanism(m), confidence::VARCHAR);
CREATE OR REPLACE MACRO ldp._keyed(keys, found) AS
    list_transform(ldp._beside(keys, found), lambda p: struct_concat({'key': p[1]}, p[2]));
CREATE OR REPLACE MACRO ldp._densities(keys, found) AS list_transform([{'keys': keys, 'found': found}], lambda r: CASE
    WHEN r['found'] IS NOT NULL THEN list_transform(
        list_zip(list_select(r['keys'], list_transform(r['found'], lambda d: d['position']::BIGINT)), r['found']),
        lambda p: {'key': p[1], 'value': p[2]['value'], 'share': p[2]['share']}
    )
END)[1];

CREATE OR REPLACE MACRO ldp.key_value(report, m, estimator := 'unbiased', confidence := NULL, keep := true) AS ldp._keyed(
    ldp._domain(m),
    __ldp_key_value(histogram(report) FILTER (WHERE try_cast(keep AS BOOLEAN)), ldp._key_value_plan(estimator, m, confidence))
);
CREATE OR REPLACE MACRO ldp.key_value_counts(counts, m, estimator := 'unbiased', confidence := NULL) AS
    ldp._keyed(ldp._domain(m), __ldp_key_value(counts, ldp._key_value_plan(estimator, m, confidence)));

CREATE OR REPLACE MACRO ldp.key_value_diagnose(report, m, estimator := 'unbiased', keep := true) AS
    __ldp_key_value_diagnose(histogram(report) FILTER (WHERE try_cast(keep AS BOOLEAN)), ldp._key_value_plan(estimator, m, NULL));
CREATE OR REPLACE MACRO ldp.key_value_diagnose_counts(counts, m, estimator := 'unbiased') AS
    __ldp_key_value_diagnose(counts, ldp._key_value_plan(estimator, m, NULL));

CREATE OR REPLACE MACRO ldp.key_value_density(report, m, estimator := 'ibu', keep := true) AS ldp._densities(
    ldp._domain(m),
    __ldp_key_value_density(histogram(report) FILTER (WHERE try_cast(keep AS BOOLEAN)), ldp._key_value_plan(estimator, m, NULL))
);
CREATE OR REPLACE MACRO ldp.key_value_density_counts(counts, m, estimator := 'ibu') AS
    ldp._densities(ldp._domain(m), __ldp_key_value_density(counts, ldp._key_value_plan(estimator, m, NULL)));

COMMENT ON MACRO ldp.key_value IS 'aggregate: frequency and mean of every key, with errors and intervals';
COMMENT ON MACRO ldp.key_value_counts IS 'the same from counts';
COMMENT ON MACRO ldp.key_value_diagnose IS 'aggregate: share of dummies, whether sets seem larger than the padding, fit';
COMMENT ON MACRO ldp.key_value_diagnose_counts IS 'the same from counts';
COMMENT ON MACRO ldp.key_value_density IS 'aggregate: distribution of the values of every key, for pckv_pm';
COMMENT ON MACRO ldp.key_value_density_counts IS 'the same from counts';
