"""The building blocks of SQL functions: Arrow functions and macros, handles, counts of groups, estimates.

A plugin that offers SQL functions imports only from here, from `ldpsql.mechanisms` and from `ldpsql.estimators`; the names
are stable within one `API_VERSION`.
"""

from __future__ import annotations

from ldpsql.bulk.engines import Database, Staged, rows_of
from ldpsql.bulk.fingerprints import check_files, check_view, columns_at, compare_comments, records_at
from ldpsql.bulk.frames import recommend
from ldpsql.bulk.orders import random_arrangement, random_order, random_parts
from ldpsql.bulk.sources import check_columns
from ldpsql.channels import Drawn
from ldpsql.domains.columns import distinct, family, plain, python_value, with_nulls
from ldpsql.domains.unlisted import sql_cells
from ldpsql.domains.written import check_epsilon, check_listed, check_written
from ldpsql.engine.arguments import (
    Booleans,
    Column,
    Doubles,
    Handles,
    Lists,
    Options,
    Settings,
    Takes,
    TextLists,
    Texts,
    WholeLists,
    Wholes,
    by_row,
    lists_of,
    same_in_all_rows,
    structs_with,
)
from ldpsql.engine.forms import (
    EVERYBODY,
    ToColumn,
    aggregate,
    counted_by_form,
    drawn_by_form,
    drawn_kind,
    kind_in_type,
    kind_of_reports,
    listed_by,
    scalar_of_kind,
    scalars_by_form,
    type_of_reports,
    weighed_by,
)
from ldpsql.engine.functions import (
    STATEMENTS,
    Macros,
    Scalar,
    changing,
    guarded,
    names_withheld,
    qualified,
    struct_fields,
    struct_text,
    struct_type,
)
from ldpsql.engine.groups import (
    answering,
    as_structs,
    at_once,
    check_counts,
    counts_of,
    in_order,
    learnt_from,
    learnt_from_order,
    once_a_run,
    one_thread,
    sql_type,
    with_prior,
)
from ldpsql.engine.identity import parts
from ldpsql.engine.in_c import learn
from ldpsql.engine.sql_struct import as_struct, columns_of, reports_type, struct_scalars, struct_sql, values_type
from ldpsql.errors import (
    InvalidSpec,
    KeyUnusable,
    MechanismUnrecorded,
    NotReleased,
    OutsideDomain,
    WrongType,
    of_column,
)
from ldpsql.estimates import distances
from ldpsql.estimates.conditions import named_place, values_of
from ldpsql.estimates.estimate import check_single, check_size, estimated, estimator_of_shares
from ldpsql.estimates.planning import PlannedTable, plan_tables
from ldpsql.estimates.rappor_files import collection_shares
from ldpsql.estimates.recommending import Candidate
from ldpsql.estimates.simulated import (
    OF_PLACES,
    MetricName,
    compare_simulated,
    drawn_cells,
    metric_named,
    weights,
)
from ldpsql.estimates.tables import difference
from ldpsql.hooks import API_VERSION, hookimpl
from ldpsql.inference.counting import SomeColumns, aligned, check_reports, likelihoods
from ldpsql.inference.counts import weighed
from ldpsql.inference.mixed import Mixed, Perturbed, Repeated
from ldpsql.ledger.guard import (
    GIVE_LEDGER,
    Statements,
    drawing,
    drawing_permanent,
    draws_handles,
    guard_at,
    naming_column,
    statement_of,
)
from ldpsql.ledger.people import id_bytes
from ldpsql.mechanisms import audit
from ldpsql.mechanisms.audit import AnalyticAudit, Shuffled, shuffled
from ldpsql.mechanisms.base import CertifiedMechanism
from ldpsql.mechanisms.foreign import read_foreign
from ldpsql.mechanisms.region import Region
from ldpsql.mechanisms.spec import Spec, sql_literal
from ldpsql.names import SHARES
from ldpsql.outcomes import corrected
from ldpsql.outcomes.moments import people as people_of_rows
from ldpsql.outcomes.moments import sums_sql
from ldpsql.places import pattern_of
from ldpsql.privacy.claims import Line
from ldpsql.quoting import fields_of, quoted, text_literal
from ldpsql.registry.agreement import (
    check_typed,
    read_source,
    recorded,
    recorded_in_type,
    records_in,
    refuse_groups,
    values_type_of,
)
from ldpsql.registry.documents import document_text, fingerprint, record_name
from ldpsql.registry.handles import (
    ASKED,
    DECLARATIONS,
    GRIDS,
    MECHANISMS,
    SOURCES,
    is_mechanism,
    mechanism_number,
    numbers,
    read_estimator,
    read_levels,
    read_mechanism,
    read_parts,
    without_inversion,
)
from ldpsql.registry.registry import Registry, registry
from ldpsql.reports import octets, type_of
from ldpsql.sql.lint import Finding, Object, lint_objects
from ldpsql.sql.recorded import of_rows as recorded_tables

__all__ = [
    "API_VERSION", "ASKED", "DECLARATIONS", "EVERYBODY", "GIVE_LEDGER", "GRIDS", "MECHANISMS", "OF_PLACES", "SHARES",
    "SOURCES", "STATEMENTS", "AnalyticAudit", "Booleans", "Candidate", "CertifiedMechanism", "Column", "Database", "Doubles",
    "Drawn", "Finding", "Handles", "InvalidSpec", "KeyUnusable", "Line", "Lists", "Macros", "MechanismUnrecorded", "MetricName",
    "Mixed", "NotReleased", "Object", "Options", "OutsideDomain", "Perturbed", "PlannedTable", "Region", "Registry", "Repeated",
    "Scalar", "Settings", "Shuffled", "SomeColumns", "Spec", "Staged", "Statements", "Takes", "TextLists", "Texts", "ToColumn",
    "WholeLists", "Wholes", "WrongType", "aggregate", "aligned", "answering", "as_struct", "as_structs", "at_once", "audit",
    "by_row", "changing", "check_columns", "check_counts", "check_epsilon", "check_files", "check_listed", "check_reports",
    "check_single", "check_size", "check_typed", "check_view", "check_written", "collection_shares", "columns_at",
    "columns_of", "compare_comments", "compare_simulated", "corrected", "counted_by_form", "counts_of", "difference",
    "distances", "distinct", "document_text", "drawing", "drawing_permanent", "drawn_by_form", "drawn_cells", "drawn_kind",
    "draws_handles", "estimated", "estimator_of_shares", "family", "fields_of", "fingerprint", "guard_at", "guarded",
    "hookimpl", "id_bytes", "in_order", "is_mechanism", "kind_in_type", "kind_of_reports", "learn", "learnt_from",
    "learnt_from_order", "likelihoods", "lint_objects", "listed_by", "lists_of", "mechanism_number",
    "metric_named", "named_place", "names_withheld", "naming_column", "numbers", "octets", "of_column", "once_a_run",
    "one_thread", "parts", "pattern_of", "people_of_rows", "plain", "plan_tables", "python_value", "qualified", "quoted",
    "random_arrangement", "random_order", "random_parts", "read_estimator", "read_foreign", "read_levels", "read_mechanism",
    "read_parts", "read_source", "recommend", "record_name", "recorded", "recorded_in_type",
    "recorded_tables", "records_at", "records_in", "refuse_groups", "registry", "reports_type",
    "rows_of", "same_in_all_rows", "scalar_of_kind", "scalars_by_form", "shuffled", "sql_cells",
    "sql_literal", "sql_type", "statement_of", "struct_fields", "struct_scalars", "struct_sql",
    "struct_text", "struct_type", "structs_with", "sums_sql", "text_literal", "type_of", "type_of_reports",
    "values_of", "values_type", "values_type_of", "weighed", "weighed_by", "weights", "with_nulls", "with_prior",
    "without_inversion",
]  # fmt: skip
