-- `estimator` is 'unbiased' or any estimator, with its options: 'ibu', 'em_mr(minimum=10)'.
CREATE OR REPLACE MACRO ldp._key_value_plan(estimator, m, confidence) AS
    __ldp_key_value_plan(estimator, __ldp_mechanism(m), confidence::VARCHAR);
CREATE OR REPLACE MACRO ldp._keyed(keys, result) AS
    list_transform(ldp._next_to(keys, result), lambda p: struct_concat({'key': p[1]}, p[2]));
CREATE OR REPLACE MACRO ldp._densities(keys, result) AS list_transform([{'keys': keys, 'result': result}], lambda r: CASE
    WHEN r['result'] IS NOT NULL THEN list_transform(
        list_zip(list_select(r['keys'], list_transform(r['result'], lambda d: d['position']::BIGINT)), r['result']),
        lambda p: {'key': p[1], 'value': p[2]['value'], 'share': p[2]['share']}
    )
END)[1];
