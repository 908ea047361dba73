-- Numbers about a distribution. Means of dates and times are times; `kind` is the domain, of which only the type is looked at.
CREATE OR REPLACE MACRO ldp._in_unit
    (kind DATE[], found) AS list_transform([found], lambda f: CASE WHEN f IS NOT NULL THEN {
        'estimate': make_timestamp((struct_extract(f, 'estimate') * 86400000000)::BIGINT), 'std_error': struct_extract(f, 'std_error'),
        'low': make_timestamp((struct_extract(f, 'low') * 86400000000)::BIGINT),
        'high': make_timestamp((struct_extract(f, 'high') * 86400000000)::BIGINT)} END)[1],
    (kind TIMESTAMP[], found) AS list_transform([found], lambda f: CASE WHEN f IS NOT NULL THEN {
        'estimate': make_timestamp((struct_extract(f, 'estimate') * 1000000)::BIGINT), 'std_error': struct_extract(f, 'std_error'),
        'low': make_timestamp((struct_extract(f, 'low') * 1000000)::BIGINT),
        'high': make_timestamp((struct_extract(f, 'high') * 1000000)::BIGINT)} END)[1],
    (kind TIMESTAMPTZ[], found) AS list_transform([found], lambda f: CASE WHEN f IS NOT NULL THEN {
        'estimate': to_timestamp(struct_extract(f, 'estimate')), 'std_error': struct_extract(f, 'std_error'),
        'low': to_timestamp(struct_extract(f, 'low')), 'high': to_timestamp(struct_extract(f, 'high'))} END)[1],
    (kind, found) AS found;
-- Positions in the domain, from 0, become its values; the ends of an interval reach as far as numbers lie from the value of their
-- bin. Text and back, as only bins have such a distance, and other values need not be numbers.
CREATE OR REPLACE MACRO ldp._reaching(value, distance) AS
    CASE WHEN distance = 0 THEN value ELSE cast_to_type((try_cast(value::VARCHAR AS DOUBLE) + distance)::VARCHAR, value) END;
CREATE OR REPLACE MACRO ldp._at(vals, found) AS list_transform([{'vals': vals, 'f': found}], lambda r: CASE WHEN r['f'] IS NOT NULL THEN {
    'estimate': r['vals'][r['f']['estimate']::BIGINT + 1], 'std_error': r['f']['std_error'],
    'low': ldp._reaching(r['vals'][r['f']['low']::BIGINT + 1], -r['f']['rounding']),
    'high': ldp._reaching(r['vals'][r['f']['high']::BIGINT + 1], r['f']['rounding'])} END)[1];

CREATE OR REPLACE MACRO ldp.mean_counts(counts, m, estimator := 'ibu') AS
    ldp._in_unit(ldp._domain(m), __ldp_measure(counts, __ldp_functional('mean', ldp._plan(estimator, m))));
CREATE OR REPLACE MACRO ldp.variance_counts(counts, m, estimator := 'ibu') AS
    __ldp_measure(counts, __ldp_functional('variance', ldp._plan(estimator, m)));
CREATE OR REPLACE MACRO ldp.quantile_counts(counts, m, q, estimator := 'ibu') AS
    ldp._at(ldp._domain(m), __ldp_measure_positions(counts, __ldp_functional('quantile', ldp._plan(estimator, m), q)));
CREATE OR REPLACE MACRO ldp.range_share_counts(counts, m, low, high, estimator := 'ibu') AS
    __ldp_measure(counts, __ldp_functional('range_share', ldp._plan(estimator, m), low, high));

CREATE OR REPLACE MACRO ldp.mean(report, m, estimator := 'ibu', keep := true) AS
    ldp.mean_counts(histogram(report) FILTER (WHERE try_cast(keep AS BOOLEAN)), m, estimator := estimator);
CREATE OR REPLACE MACRO ldp.variance(report, m, estimator := 'ibu', keep := true) AS
    ldp.variance_counts(histogram(report) FILTER (WHERE try_cast(keep AS BOOLEAN)), m, estimator := estimator);
CREATE OR REPLACE MACRO ldp.quantile(report, m, q, estimator := 'ibu', keep := true) AS
    ldp.quantile_counts(histogram(report) FILTER (WHERE try_cast(keep AS BOOLEAN)), m, q, estimator := estimator);
CREATE OR REPLACE MACRO ldp.range_share(report, m, low, high, estimator := 'ibu', keep := true) AS
    ldp.range_share_counts(histogram(report) FILTER (WHERE try_cast(keep AS BOOLEAN)), m, low, high, estimator := estimator);

COMMENT ON MACRO ldp.mean IS 'aggregate: the mean of the values, with its error and interval';
COMMENT ON MACRO ldp.mean_counts IS 'the same from counts';
COMMENT ON MACRO ldp.variance IS 'aggregate: the variance of the values, with its error and interval';
COMMENT ON MACRO ldp.variance_counts IS 'the same from counts';
COMMENT ON MACRO ldp.quantile IS 'aggregate: the value below which a share q of all values lies, with its interval';
COMMENT ON MACRO ldp.quantile_counts IS 'the same from counts';
COMMENT ON MACRO ldp.range_share IS 'aggregate: the share of the values from low to high, with its error and interval';
COMMENT ON MACRO ldp.range_share_counts IS 'the same from counts';
