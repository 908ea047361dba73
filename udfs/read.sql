-- Reports that another library drew, in the type of the mechanism's reports; NULL stays NULL.
CREATE OR REPLACE MACRO ldp.read(report, m, format := 'bits') AS
    ldp._foreign(report, format, __ldp_mechanism(m), ldp._reports(m), ldp._reports(m));

COMMENT ON MACRO ldp.read IS 'a report that another library drew, as a report of the mechanism: bits, array, position, positions, xxhash';
