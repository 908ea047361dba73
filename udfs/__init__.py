"""The SQL functions: one family a file, scalars in Python, macros as SQL text beside it."""
