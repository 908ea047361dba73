"""The SQL functions: one subject a file, scalars in Python, macros as SQL text next to it."""
