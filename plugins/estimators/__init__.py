"""One estimator a file; a new file is picked up by itself."""
