"""The built-in estimators, one file each; a new file is registered automatically."""
