-- The functions are folded when a statement is bound, and the type of the result with them. || keeps CREATE MACRO from binding it.
CREATE OR REPLACE MACRO ldp.mechanism(reports, report) AS from_json(
    __ldp_recorded_values(reports, report, current_setting('search_path'), ldp._catalog()),
    __ldp_recorded_type(reports || '', report, current_setting('search_path'), ldp._catalog())
);

COMMENT ON MACRO ldp.mechanism IS 'the mechanism that drew a column of reports, as the table or the file records it; both are strings';

-- Reports that another library drew, in the type of the mechanism's reports; NULL stays NULL.
CREATE OR REPLACE MACRO ldp.read(report, m, format := 'bits') AS
    ldp._foreign(report, format, m, ldp._report_kind(m));

COMMENT ON MACRO ldp.read IS 'a report that another library drew, as a report of the mechanism: bits, array, position, positions, xxhash';

-- A collection of google/rappor: its params, counts and map, as files or tables. Rows are passed as JSON, since the number of
-- their columns is not known.
CREATE OR REPLACE MACRO ldp.rappor_shares(params, counts, map, rate := 0.05) AS TABLE
    SELECT unnest(__ldp_bloom_shares(
        (SELECT list(to_json(r)::VARCHAR) FROM query(__ldp_reading(params, ldp._here())) AS r),
        (SELECT list(to_json(r)::VARCHAR) FROM query(__ldp_reading(counts, ldp._here())) AS r),
        (SELECT list(to_json(r)::VARCHAR) FROM query(__ldp_reading(map, ldp._here())) AS r),
        rate
    ), recursive := true);

COMMENT ON MACRO TABLE ldp.rappor_shares IS 'shares of candidate strings from a collection of google/rappor, with errors and a false discovery rate';
