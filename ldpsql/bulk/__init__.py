"""Perturb and count files, tables and streams of any size in record batches, and publish them whole or not at all.

What users call:
    run             `perturb_copy` and `perturb_table`; `prepared` checks a run before it is charged
    batches         `perturb_batches`
    frames          `perturb` and `estimate` of columns of any Python library
    once            `perturb_once`: permanent reports
    releases        `release`: reports that SQL draws
    counts          `partial_counts`, `merge`
    many_groups     `estimate_groups`
    comparing       `compare_estimators`, `recommend`
    regressing      `regression` on perturbed columns
    foreign         `read`, `rappor_shares`: reports of other libraries
What they are made of, one after the other:
    reading/        sources: files, tables, streams, and the parts into which they are cut
    columns/        which columns are perturbed, by which mechanism, and kept
    charging        the charge of a run; `in_memory`, and for permanent reports `permanent` and `reported`; `settling` of those
                    that were not published
    writing/        files and tables of reports in random order, published by renaming
    fingerprints    the mechanism that drew a column, next to the reports; `recording` by a statement of SQL
    binding         what a statement of SQL names: the recorded mechanism of a column, and columns
    groups/         counts and estimates of very many groups
    meter           the progress
"""
