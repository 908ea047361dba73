"""The built-in mechanisms, a family in a file; new files are found automatically."""
