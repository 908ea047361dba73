CREATE OR REPLACE MACRO ldp._column_values
    (m, of "NULL") AS ldp._domain(m),
    (m, of) AS ldp._of_kind(__ldp_column_values(__ldp_source(m), of), ldp._column_kind(m, of));
-- Numbers about a distribution. Means of dates and times are times. `kind` is the domain; only its type matters.
CREATE OR REPLACE MACRO ldp._in_unit
    (kind DATE[], result) AS list_transform([result], lambda f: CASE WHEN f IS NOT NULL THEN {
        'estimate': make_timestamp((struct_extract(f, 'estimate') * 86400000000)::BIGINT), 'std_error': struct_extract(f, 'std_error'),
        'low': make_timestamp((struct_extract(f, 'low') * 86400000000)::BIGINT),
        'high': make_timestamp((struct_extract(f, 'high') * 86400000000)::BIGINT)} END)[1],
    (kind TIMESTAMP[], result) AS list_transform([result], lambda f: CASE WHEN f IS NOT NULL THEN {
        'estimate': make_timestamp((struct_extract(f, 'estimate') * 1000000)::BIGINT), 'std_error': struct_extract(f, 'std_error'),
        'low': make_timestamp((struct_extract(f, 'low') * 1000000)::BIGINT),
        'high': make_timestamp((struct_extract(f, 'high') * 1000000)::BIGINT)} END)[1],
    (kind TIMESTAMPTZ[], result) AS list_transform([result], lambda f: CASE WHEN f IS NOT NULL THEN {
        'estimate': to_timestamp(struct_extract(f, 'estimate')), 'std_error': struct_extract(f, 'std_error'),
        'low': to_timestamp(struct_extract(f, 'low')), 'high': to_timestamp(struct_extract(f, 'high'))} END)[1],
    (kind, result) AS result;
-- Positions in the domain, from 0, become its values; the ends of an interval are extended by the largest distance of a number
-- from the value of its bin. The cast goes through text because only bins have such a distance, and other values need not be numbers.
-- 15 digits: 7.7, not 7.699999999999999.
CREATE OR REPLACE MACRO ldp._reaching(value, distance) AS CASE WHEN distance = 0 THEN value
    ELSE cast_to_type(format('{:.15g}', try_cast(value::VARCHAR AS DOUBLE) + distance), value) END;
CREATE OR REPLACE MACRO ldp._at(vals, result) AS list_transform([{'vals': vals, 'f': result}], lambda r: CASE WHEN r['f'] IS NOT NULL THEN {
    'estimate': r['vals'][r['f']['estimate']::BIGINT + 1], 'std_error': r['f']['std_error'],
    'low': ldp._reaching(r['vals'][r['f']['low']::BIGINT + 1], -r['f']['rounding']),
    'high': ldp._reaching(r['vals'][r['f']['high']::BIGINT + 1], r['f']['rounding'])} END)[1];
-- The same for a list of quantiles, each next to its share q.
CREATE OR REPLACE MACRO ldp._each_at(vals, results) AS list_transform([{'vals': vals, 'fs': results}], lambda r: list_transform(r['fs'], lambda f: {
    'q': f['q'], 'estimate': r['vals'][f['estimate']::BIGINT + 1], 'std_error': f['std_error'],
    'low': ldp._reaching(r['vals'][f['low']::BIGINT + 1], -f['rounding']),
    'high': ldp._reaching(r['vals'][f['high']::BIGINT + 1], f['rounding'])}))[1];
