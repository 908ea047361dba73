-- The type of the cells of a margin, in an empty list. The subscript keeps CREATE MACRO from binding what does not exist yet.
CREATE OR REPLACE MACRO ldp._margin_kind
    (m, "columns" "NULL") AS ldp._kind(m),
    (m, "columns") AS from_json('[]', '[' || __ldp_margin_type(__ldp_mechanism(m), ["columns"][1]) || ']');

-- The joint table of several columns in long form: one row for each cell, and one column for each variable.
-- `report` is a struct, such as {city: city, age: age}. With `columns`, the table of some of them; with `given`, shares among the
-- rows with the same values of these columns.
CREATE OR REPLACE MACRO ldp.crosstab(reports, report, m, estimator := 'ibu', "columns" := NULL, given := NULL, confidence := NULL) AS TABLE
        SELECT unnest(ldp._rows(ldp._margin_kind(m, "columns"),
                   __ldp_margins(counts, __ldp_margin(ldp._plan(estimator, m, confidence), "columns", given))), recursive := true),
               list_sum(map_values(counts))::BIGINT AS n
        FROM (SELECT ldp._counted_by(report, true, m) AS counts, any_value(ldp._name(report)) AS report_name FROM query_table(__ldp_place(reports)))
        WHERE ldp._agreed(reports, report_name, m),
    (reports, report) AS TABLE
        (FROM query(__ldp_call('ldp._estimate', reports, current_setting('search_path'), ldp._catalog(),
                               report, alias(report))));

-- Two groups of people, each by the counts of its reports: ldp.counts(report, keep := region = 'north').
CREATE OR REPLACE MACRO ldp._of_compare(counts, others, m, of, given, estimator, confidence) AS __ldp_compared(
    ldp._compared(counts, m), ldp._compared(others, m), __ldp_number(ldp._plan(estimator, m, confidence), of, given)
);
CREATE OR REPLACE MACRO ldp.compare(counts, others, m := false, of := NULL, given := NULL, estimator := 'ibu', confidence := NULL) AS
    ldp._of_compare(counts, others, ldp._recorded(counts, m, m), of, given, estimator, confidence);

COMMENT ON MACRO ldp.compare IS 'the difference of a share or a mean between the counts of two groups, with its error, interval and p-value';
COMMENT ON MACRO TABLE ldp.crosstab IS 'the joint table of several columns of reports: a row for each cell, a column for each variable';
