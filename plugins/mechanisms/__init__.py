"""One mechanism per file; new files are found automatically."""
