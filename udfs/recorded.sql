-- The functions are folded when a statement is bound, and the type of the result with them. || keeps CREATE MACRO from binding it.
CREATE OR REPLACE MACRO ldp.mechanism(reports, report) AS from_json(
    __ldp_recorded_values(reports, report, current_setting('search_path'), ldp._catalog()),
    __ldp_recorded_type(reports || '', report, current_setting('search_path'), ldp._catalog())
);

COMMENT ON MACRO ldp.mechanism IS 'the mechanism that drew a column of reports, as the table or the file records it; both are strings';
