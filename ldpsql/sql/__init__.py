"""DuckDB connections with the functions on them: attaching, mechanisms named in settings, the lint, relational SQL."""
