"""Names by which the core calls what the built-in plugins offer; a test checks that they offer each of them."""

from __future__ import annotations

ROW = "row"  # the mechanism of several columns
KRR = "krr"  # the mechanism that is the identity where its epsilon is infinite
BEST, EMS, IBU, INV, INV_N, INV_P = "best", "ems", "ibu", "inv", "inv_n", "inv_p"  # estimators; the default is ibu
EMPIRICAL_BAYES = "empirical_bayes"

SHARES = "estimate"  # the question that all estimators answer

ALLOWED = "__ldp_allowed"  # (handle, drawn, statement): the handle, or an error if a policy refuses the draw
ANSWER_TYPE = "__ldp_answer_type"  # (question, type of the mechanism, its text, names of columns, type of the reports)
ASK = "__ldp_ask"  # (question, mechanism, type of the reports, estimator, its options, arguments): the handle of the question
COMPARED = "__ldp_compared"  # (counts, handle, counts, handle): the difference between two groups
TEXT = "ldp._text"  # (mechanism): its text; NULL if it is not text
AGREED = "ldp._agreed"  # (reports, name, question): true, or an error if another mechanism is recorded for the column
COLUMN_NAME = "ldp._name"  # (report): text with the name of the column
COUNTS = "ldp.counts"  # (report, keep): aggregate
COUNTED_BY = "ldp._counted_by"  # (report, keep): the counts of reports
FEW = "ldp._few"  # (reports, report, keep, question): true, or an error if there are more reports than can be read
FIRST_LIST = "ldp._first"  # (list, other)
HERE = "ldp._here"  # (): how a statement finds tables and files
KEPT = "ldp._kept"  # (keep): whether a row is counted
KEYS = "ldp._keys"  # (key or struct of keys, other columns): a struct of the keys by their names, to be unnested
KIND = "ldp._kind"  # (mechanism): a list of the type of its domain
NO_MECHANISM = "ldp._no_mechanism"  # (): the error of a mechanism that is NULL
LISTED = "ldp._listed"  # (argument): NULL in the type BOOLEAN if it is a list
LISTED_BY = "ldp._listed_by"  # (report, keep): the list of reports
MECHANISM_HANDLE = "__ldp_mechanism"  # (mechanism): its handle
MERGED = "ldp._merged"  # (list of reports, list of numbers): their counts
MISSING = "__ldp_missing"  # (call, parameter, SQL): the error of a constructor without a parameter
NEXT_STEP = "ldp._step"  # (mechanism, step): the step of PRIVIC with the next mechanism
ONE_OR_EACH = "ldp._one_or_each"  # (answers, `LISTED`): the answers, or the only one
PEOPLE = "__ldp_people"  # (counts): how many rows were counted
RECORD_OF = "ldp._record_of"  # (report, report): the type of reports or of their counts
READING = "__ldp_reading"  # (table, `HERE`): the SQL that reads a table, or files without changing a value
RECORDED = "ldp._recorded"  # (report, m, m): m, or if it is false the mechanism in the type of the reports or of their counts
RECORDING = "__ldp_recording"  # (type): a type that chooses how reports of this type are counted
REPORT_KIND = "ldp._report_kind"  # (mechanism): a list of the type of its reports
ROW_REPORTS = "__ldp_row_reports"  # (mechanisms by column): the type of a report of a row, as from_json reads it
ROW_VALUES = "__ldp_row_values"  # (mechanisms by column): the type of a row
OCTETS = "__ldp_octets"  # (report): a set as bytes
MOMENTS = "ldp._moments"  # the macro that gives a list the type of the values between two ends
ROWS_QUERY = "__ldp_rows_query"  # (table, keep, catalog): the SQL of perturb_rows
SUMS = "ldp.sums"  # (report, outcome, weight): the sums of a raw column by report
STRUCT = "ldp._struct"  # (mechanism): the STRUCT of its constructor
WEIGHED = "ldp._weighed"  # (list of reports, list of weights): weighted counts
WEIGHED_BY = "ldp._weighed_by"  # (report, keep, weight): the counts of reports, with weights unless weight is NULL
WRITTEN = "__ldp_written"  # (name, SQL, ...) of lists: a type, if they are lists, none of them too long
WRITTEN_CALL = "__ldp_call"  # (macro, reports, search path, catalog, columns): SQL that draws nothing
