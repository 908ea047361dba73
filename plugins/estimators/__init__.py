"""The built-in estimators, a family in a file; a new file is registered automatically."""
