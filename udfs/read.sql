-- Reports that another library drew, in the type of the mechanism's reports; NULL stays NULL.
CREATE OR REPLACE MACRO ldp.read(report, m, format := 'bits') AS
    ldp._foreign(report, format, m, ldp._report_kind(m));

COMMENT ON MACRO ldp.read IS 'a report that another library drew, as a report of the mechanism: bits, array, position, positions, xxhash';
