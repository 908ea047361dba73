"""The sources of a run and the parts into which they are cut; each part is a stream of record batches."""
