"""DuckDB connections with the functions on them: attaching, mechanisms named in settings, the lint, relational SQL."""

from ldpsql import moved

__getattr__ = moved.names_of("sql")
