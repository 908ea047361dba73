"""Where Python meets DuckDB: the functions that a connection calls, counts in SQL columns, interrupts, threads."""
