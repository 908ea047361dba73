-- `estimator` is 'unbiased' or any estimator, with its options: 'ibu', 'em_mr(minimum=10)'.
CREATE OR REPLACE MACRO ldp._key_value_plan(estimator, m, confidence) AS
    __ldp_key_value_plan(estimator, __ldp_mechanism(m), confidence::VARCHAR);
-- Of `kind`, the keys, only the type matters.
CREATE OR REPLACE MACRO ldp._keyed(kind, result) AS cast_to_type(result, [{
    'key': kind[1], 'frequency': NULL::DOUBLE, 'frequency_error': NULL::DOUBLE, 'low': NULL::DOUBLE, 'high': NULL::DOUBLE,
    'mean': NULL::DOUBLE, 'mean_error': NULL::DOUBLE, 'mean_low': NULL::DOUBLE, 'mean_high': NULL::DOUBLE
}]);
CREATE OR REPLACE MACRO ldp._densities(kind, result) AS
    cast_to_type(result, [{'key': kind[1], 'value': NULL::DOUBLE, 'share': NULL::DOUBLE}]);
