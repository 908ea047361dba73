"""A DuckDB connection with the functions on it: attaching, mechanisms named in settings, the lint, estimators as pure SQL."""

from ldpsql import moved

__getattr__ = moved.names_of("sql")
