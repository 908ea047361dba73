"""Perturb and count files, tables and streams of any size in record batches, and publish them whole or not at all.

What users call:
    run             everything named `perturb`: what is opened and checked, then charged, drawn and published
    releases        `release`: reports that SQL draws
    frames          `estimate` and its relatives in Python, comparisons, regressions, and reports of other libraries
    counts          `partial_counts`, `merge`
    pairs           `key_value`
    strings         `heavy_hitters`
    many_groups     `estimate_groups`
A run, from top to bottom:
    sources         files, tables, frames and streams, cut into parts
    columns         perturbed by a mechanism, afresh or permanently, or kept
    charging        the charge of a run, before the first draw
    phases          reports in two phases: what the first estimates is the prior of the second
    orders          the rows in random order, over buckets of scattered rows, or in that of the source
    databases       tables of other systems, as sources and as sinks
    engines         what is asked of PostgreSQL and SQLite, of Snowflake and BigQuery
    sinks           files and tables; `staging`, the folder from which files are published by renaming
    fingerprints    the mechanism that drew a column, next to its reports
What commands and `estimate` share:
    queries         the SQL of estimates and questions, for each group
    backends        counts of reports in the engine of a table of Ibis
    views           shares as one query of another engine, on top of these counts
"""
