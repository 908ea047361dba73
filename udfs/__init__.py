"""The SQL functions: one family per file, scalars in Python, macros as SQL text next to it."""
