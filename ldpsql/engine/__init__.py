"""Where Python meets DuckDB: functions that a connection calls, counts as SQL hands them over, interrupts, threads."""
