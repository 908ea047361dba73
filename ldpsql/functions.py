"""What a plugin needs to offer SQL functions: columns and functions, handles, text of SQL, counts, databases.

A plugin imports from here, from `ldpsql.mechanisms`, `ldpsql.estimators` and `ldpsql.questions` only; the names are stable
within one `API_VERSION`. The guide to plugins says what each of them is for.
"""

from __future__ import annotations

from ldpsql.bulk.engines import Database, Staged, rows_of
from ldpsql.domains.columns import plain, python_value
from ldpsql.engine.arguments import (
    Booleans,
    Column,
    Doubles,
    Handles,
    Lists,
    Settings,
    TextLists,
    Texts,
    WholeLists,
    Wholes,
    by_row,
)
from ldpsql.engine.functions import Macros, Scalar, guarded, names_withheld, struct_type
from ldpsql.engine.groups import check_counts, counts_of, once_a_run, one_thread
from ldpsql.engine.sql_struct import struct_scalars
from ldpsql.hooks import API_VERSION, hookimpl
from ldpsql.mechanisms.spec import sql_literal
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.documents import document_text, fingerprint
from ldpsql.registry.handles import MECHANISMS, SOURCES, read_estimator, read_mechanism
from ldpsql.registry.registry import Registry, registry

__all__ = [
    "API_VERSION", "MECHANISMS", "SOURCES", "Booleans", "Column", "Database", "Doubles", "Handles", "Lists", "Macros",
    "Registry", "Scalar", "Settings", "Staged", "TextLists", "Texts", "WholeLists", "Wholes", "by_row", "check_counts",
    "counts_of", "document_text", "fingerprint", "guarded", "hookimpl", "names_withheld", "once_a_run", "one_thread", "plain",
    "python_value", "quoted", "read_estimator", "read_mechanism", "registry", "rows_of", "sql_literal", "struct_scalars",
    "struct_type", "text_literal",
]  # fmt: skip
